// vectorized: y = {{ s.operation }} of each row of x, by one invocation per row, sixteen bytes at a time.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; bound as array<vec4> if k is contiguous and all lengths
// are multiples of 4; a row is one (i, j); y holds the results in order.
// Changed from per_row: UNROLL vec4 are loaded before the first is used, and reduced component by component.
// Shapes: any; rows are padded with the identity. Workgroup memory: none.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ reduce.load4(1) }}
@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = (workgroup.x + workgroup.y * grid.x) * SIZE + lane;
    if (row >= params.outer * params.inner) {
        return;
    }
    let base = {{ reduce.base() }};
{{ reduce.walk(1) }}
    {{ out.store("params.y_offset + row", "result(own)") }}
}
