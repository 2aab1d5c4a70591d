// copy: measures memory bandwidth; each invocation reads and writes one vec4.
@group(0) @binding(0) var<storage, read> source: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4f>;

@compute @workgroup_size({{ workgroup }})
fn main(
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = (group.x + group.y * grid.x) * {{ workgroup }}u + local_index;
    if (i < arrayLength(&source)) {
        result[i] = source[i];
    }
}
