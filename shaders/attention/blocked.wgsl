// blocked: attention, a tile of BQ queries per workgroup.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from online: a workgroup holds its rows of q in workgroup memory, and loads BK rows of k and of v at a time,
// so that each of these is read once for BQ queries. An invocation has TM queries: for q·k, {{ kernel.tk }} keys of
// each, for weights·v {{ kernel.tn }} columns. WX invocations share a query: they exchange its largest score, and hand
// its weights over through workgroup memory.
// If rows of q and k are longer than SPAN columns, these are in workgroup memory at a time, and q is read in each step:
// tiles of as many queries then fit for longer rows.
// Keys that no query of the tile sees are skipped; steps with keys that all queries see test nothing.
//
//                lx = 0 1 2 …                 rows      ly + i*WY,  i < TM
//        ly = 0     ■ □ □                     keys      (lx + j*WX)*4 .. +3 of a step
//             1     □ □ □                     columns   (lx + j*WX)*4 .. +3
//
// Edges: loads beyond the last query or key repeat it. Workgroup memory: the tiles, with rows of q, k and weights
// padded by a vec4, so that the rows that a subgroup reads are in different banks. Four consecutive keys of an
// invocation are BK/4 rows apart in k_tile, for the same reason.
{% import "common/attention_tiles.wgsl" as tiles with context %}
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}
{% set whole_rows = kernel.at_once == kernel.columns %}

{{ tiles.declarations() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ attention.tile_of("BQ") }}
    let lx = local_index % WX;
    let ly = local_index / WX;
{{ attention.bases() }}
{% if whole_rows %}
{{ tiles.copy("q", "start", "params.queries - 1u") }}
{% endif %}
{{ tiles.begin() }}
    //# inner
    for (var k0 = first.x; k0 < last.y; k0 += BK) {
{{ tiles.copy("v", "k0", "last.y - 1u") }}
{{ tiles.no_scores() }}
{% if whole_rows %}
{{ tiles.copy("k", "k0", "last.y - 1u") }}
{% else %}
        for (var c0 = 0u; c0 < COLUMNS; c0 += SPAN) {
        if (c0 > 0u) {
            workgroupBarrier(); // everyone is done with these columns before they are overwritten
        }
{{ tiles.copy("q", "start", "params.queries - 1u", "c0 + ") }}
{{ tiles.copy("k", "k0", "last.y - 1u", "c0 + ") }}
{% endif %}
        workgroupBarrier(); // the tiles are complete before anyone reads them
{{ tiles.multiply_keys() }}
{% if not whole_rows %}
        }
{% endif %}
{{ tiles.weigh() }}
        workgroupBarrier(); // the weights are complete before anyone reads them
{{ tiles.multiply_values() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
    //# end
{{ tiles.sum_up() }}
{{ tiles.store() }}
}
