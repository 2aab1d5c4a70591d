// persistent: C = A·B, as pipelined, by a fixed number of workgroups that loop over the tiles of C.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; bound as array<vec4> if the
// contiguous length is a multiple of 4; accumulation in f32.
// Changed from pipelined: the grid does not grow with C. Workgroup w computes tiles w, w + count, w + 2·count …; each
// tile is computed by exactly one workgroup. Tiles in progress at the same time are neighbours, so that they share rows
// of A and columns of B in the L2 cache.
// Shapes: any; partial tiles are padded with zeros. Workgroup memory: at most (BM + BN + 8)·BK·4 bytes; tiles
// written as vec4 need no padding.
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
{{ tiles.count_tiles() }}
{{ matrix.bases() }}
{{ tiles.invocation_position() }}
{{ tiles.declare_registers() }}
    for (var tile = workgroup.x + workgroup.y * grid.x; tile < tiles_m * tiles_n; tile += grid.x * grid.y) {
{{ tiles.locate_tile() }}
{{ tiles.plan_loads() }}
{{ tiles.declare_sums() }}
{{ tiles.load_next("0u") }}
        workgroupBarrier(); // everyone is done with the tiles of the previous tile of C
{{ tiles.write_tiles() }}
        workgroupBarrier(); // the first tiles are complete before anyone reads them
        for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ tiles.load_next("k0") }}
{{ tiles.multiply_tiles(k0="k0 - BK") }}
            workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ tiles.write_tiles() }}
            workgroupBarrier(); // the tiles are complete before anyone reads them
        }
{{ tiles.multiply_tiles(k0="(params.k - 1u) / BK * BK") }}
{{ tiles.store_sums(tiles.staged) }}
    }
}
