// blocked: C = A·B, a TM × TN register tile of C per invocation, a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; bound as array<vec4> if the
// contiguous length is a multiple of 4; accumulation in f32.
// Changed from vectorized: an invocation keeps TM × TN sums in registers and uses each element from workgroup memory
// for a whole row or column of them: (TM + TN)/4 loads for TM·TN FMAs. Both tiles are stored k-major, so loads are
// vec4.
// Shapes: any; partial tiles are padded with zeros. Workgroup memory: (BM + BN + 8)·BK·4 bytes.
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ tiles.declarations() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ tiles.assign_tile() }}
{{ matrix.bases() }}
{{ tiles.invocation_position() }}
{{ tiles.plan_loads() }}
{{ tiles.declare_sums() }}
{{ tiles.declare_registers() }}
    for (var k0 = 0u; k0 < params.k; k0 += BK) {
{{ tiles.load_next("k0") }}
{{ tiles.write_tiles() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
{{ tiles.multiply_tiles() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
{{ tiles.store_sums(tiles.staged) }}
}
