// persistent: C = A·B, as pipelined, by a fixed number of workgroups that loop over the tiles of C.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from pipelined: the grid does not grow with C. Workgroup w computes tiles w, w + count, w + 2·count …; each
// tile is computed by exactly one workgroup. Tiles in progress at the same time are neighbours, so that they share rows
// of A and columns of B in the L2 cache.
// Edges: partial tiles are padded with zeros. Workgroup memory: at most (BM + BN + 8)·BK·4 bytes; tiles
// written as vec4 need no padding.
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
{{ layout.count_tiles() }}
{{ matrix.bases() }}
{{ layout.invocation_position(interleaved=kernel.interleaved(s)) }}
{{ load.declare_registers() }}
    //# tiles
    for (var tile = workgroup.x + workgroup.y * grid.x; tile < tiles_m * tiles_n; tile += grid.x * grid.y) {
{{ layout.locate_tile() }}
        //# end
{{ load.plan_loads() }}
{{ layout.declare_sums() }}
{{ load.load_next("0u") }}
        workgroupBarrier(); // everyone is done with the tiles of the previous tile of C
{{ load.write_tiles() }}
        workgroupBarrier(); // the first tiles are complete before anyone reads them
        for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ load.load_next("k0") }}
{{ multiply.multiply_tiles(k0="k0 - BK") }}
            workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ load.write_tiles() }}
            workgroupBarrier(); // the tiles are complete before anyone reads them
        }
{{ multiply.multiply_tiles(k0="(params.k - 1u) / BK * BK") }}
{{ store.store_sums(store.staged) }}
    }
}
