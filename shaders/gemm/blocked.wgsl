// blocked: C = A·B, a TM × TN register tile of C per invocation, a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from vectorized: an invocation keeps TM × TN sums in registers and uses each element from workgroup memory
// for a whole row or column of them: (TM + TN)/4 loads for TM·TN FMAs. Both tiles are stored k-major, so loads are
// vec4.
// Edges: partial tiles are padded with zeros. Workgroup memory: (BM + BN + 8)·BK·4 bytes.
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/load.wgsl" as load with context %}
{% import "common/register_tiles/multiply.wgsl" as multiply with context %}
{% import "common/register_tiles/store.wgsl" as store with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ load.declarations() }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ layout.assign_tile() }}
{{ matrix.bases() }}
{{ layout.invocation_position(interleaved=kernel.interleaved(s)) }}
{{ load.plan_loads() }}
{{ layout.declare_sums() }}
{{ load.declare_registers() }}
    //# inner
    for (var k0 = 0u; k0 < params.k; k0 += BK) {
{{ load.load_next("k0") }}
{{ load.write_tiles() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
{{ multiply.multiply_tiles() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
    //# end
{{ store.store_sums(store.staged) }}
}
