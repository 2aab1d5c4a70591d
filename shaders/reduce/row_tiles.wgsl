// row_tiles: y = {{ s.operation }} of each row of x, many short rows per workgroup.
//
// Storage: x[i, k] with a stride per axis, reduced over k; y[i].
// Changed from subgroup: PER_ROW neighbouring invocations share a row, so that a workgroup reduces ROWS short rows. A
// row takes a single step, and no barrier if its invocations combine in a subgroup.
// Shapes: rows of at most 4 * UNROLL * PER_ROW elements; rows are padded with the identity.
// Workgroup memory: a partial result per invocation if they combine in a tree.
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
{{ tiles.rows() }}
{% if s.operation == "logsumexp" %}
{{ tiles.exponentials() }}
{% else %}
{{ reduce.walk(kernel.per_row, once=true) }}
    let all = combined(own, place);
{% endif %}
    if (lane == 0u && row < params.outer) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
}
