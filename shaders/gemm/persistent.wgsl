// persistent: C = A·B by a fixed number of workgroups, each of which walks over tiles of C.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; bound as array<vec4> where the
// contiguous length is a multiple of 4; accumulation in f32.
// Changed from pipelined: the grid no longer grows with C. Workgroup w takes tiles w, w + count, w + 2·count …; each
// tile is written by exactly one. Tiles that are worked on at the same time are neighbours, so that their rows of A and
// columns of B meet in the L2 cache.
// Shapes: any; tiles that hang over an edge are filled with zeros. Workgroup memory: (BM + BN + 8)·BK·4 bytes,
// 8·BK·4 less where vec4 fit.
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
{{ tiles.count_tiles() }}
{{ matrix.bases() }}
{{ tiles.lane_position() }}
{{ tiles.declare_registers() }}
    for (var tile = workgroup.x + workgroup.y * grid.x; tile < tiles_m * tiles_n; tile += grid.x * grid.y) {
{{ tiles.locate_tile() }}
{{ tiles.plan_loads() }}
{{ tiles.declare_sums() }}
{{ tiles.fetch("0u") }}
        workgroupBarrier(); // everyone is done with the last tiles of the tile before
{{ tiles.put() }}
        workgroupBarrier(); // the first tiles are complete before anyone reads them
        for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ tiles.fetch("k0") }}
{{ tiles.multiply(k0="k0 - BK") }}
            workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ tiles.put() }}
            workgroupBarrier(); // the tiles are complete before anyone reads them
        }
{{ tiles.multiply(k0="(params.k - 1u) / BK * BK") }}
{{ tiles.store(tiles.staged) }}
    }
}
