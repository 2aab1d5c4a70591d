// row_tiles: y = {{ s.operation }} of each row of x, many short rows per workgroup.
//
// Storage: x[i, k] is dense, reduced over k; y[i].
// Changed from tree: a workgroup has ROWS rows, which it fetches into workgroup memory in the order in which they lie:
// neighbouring lanes read neighbours although no vec4 or subgroup fits the rows. PER_ROW lanes then share each.
// Shapes: rows of at most 4 * UNROLL * PER_ROW elements; beyond the end of a row stands what changes nothing.
// Workgroup memory: the tile, ROWS rows with gaps, and a part of up to 8 bytes per invocation where they meet in a
// tree.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/row_tiles.wgsl" as tiles with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ tiles.functions() }}
@compute @workgroup_size(LANES)
fn main(
{{ tiles.builtins() }}
) {
{{ tiles.fetch() }}
{% if s.operation == "logsumexp" %}
{{ tiles.exponentials() }}
{% else %}
{{ reduce.walk(kernel.per_row, once=true) }}
    let all = together(own, place);
{% endif %}
    if (lane == 0u && row < params.outer) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
}
