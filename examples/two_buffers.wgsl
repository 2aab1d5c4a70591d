// two_buffers: C = A·B, as blocked, with two copies of the tiles in workgroup memory.
//
// Changed from blocked: while the tiles in one copy are multiplied, the next ones are written to the other, so that a
// step needs one barrier instead of two. The copies are two variables, and an iteration does two steps.
// Edges: partial tiles are padded with zeros. Workgroup memory: 2·(BM + BN + 8)·BK·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/load.wgsl" as load with context %}
{% import "common/register_tiles/multiply.wgsl" as multiply with context %}
{% import "common/register_tiles/store.wgsl" as store with context %}
{% include "common/header.wgsl" %}

{{ load.declarations(buffers=2) }}
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
{{ load.load_next("0u") }}
{{ load.write_tiles() }}
    for (var k0 = 0u; k0 < params.k; k0 += 2u * BK) {
{% for now in range(2) %}
        workgroupBarrier(); // the tiles are complete before anyone reads them, and everyone is done with the others
{{ load.load_next("(k0 + " ~ (now + 1) ~ "u * BK)") }}
{{ multiply.multiply_tiles(now, "k0 + " ~ now ~ "u * BK") }}
{{ load.write_tiles(1 - now) }}
{% endfor %}
    }
{{ store.store_sums(store.staged) }}
}
