// blocked: C = A·B, TM × TN elements of C per invocation out of a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; bound as array<vec4> where the
// contiguous length is a multiple of 4; accumulation in f32.
// Changed from vectorized: each vec4 of A and B from workgroup memory serves a whole row or column of a TM × TN tile in
// registers: (TM + TN)/4 loads for TM·TN FMAs. A is transposed on its way in, so that both fragments are vec4.
// Shapes: any; tiles that hang over an edge are filled with zeros. Workgroup memory: (BM + BN + 8)·BK·4 bytes.
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ tiles.declarations() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
{{ tiles.lane_position() }}
{{ tiles.plan_loads() }}
{{ tiles.declare_sums() }}
{{ tiles.declare_registers() }}
    for (var k0 = 0u; k0 < params.k; k0 += BK) {
{{ tiles.fetch("k0") }}
{{ tiles.put() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
{{ tiles.multiply() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
{{ tiles.store(tiles.staged) }}
}
