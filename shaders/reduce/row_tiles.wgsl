// row_tiles: y = {{ s.operation }} of each row of x, many short rows per workgroup.
//
// Storage: x[i, k] with a stride per axis, reduced over k; y[i].
// Changed from subgroup: PER_ROW neighbouring invocations share a row, so that a workgroup reduces ROWS short rows. A
// row takes a single step, and no barrier if its invocations combine in a subgroup.
{#
  Without workgroup memory and barriers, on an H200: minima of 4,986,435 × 69 760 µs → 337, which is a copy's time.
  Keys of maxima and positions in four integer instructions: with eight, max, min and argmax took 1.1 to 1.3 times as
  long. Integer instructions run at half rate, and limit rows whose length is not a multiple of four.
#}
// Edges: rows have at most 4 * UNROLL * PER_ROW elements; they are padded with the identity.
// Workgroup memory: a partial result per invocation if they combine in a tree.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "common/row_tiles.wgsl" as tiles with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ tiles.functions() }}
@compute @workgroup_size(LANES)
fn main(
{{ tiles.builtins() }}
) {
    //# inner
{{ tiles.rows() }}
{% if s.operation == "logsumexp" %}
{{ tiles.exponentials() }}
{% else %}
{{ invocation.walk(kernel.per_row, once=true) }}
    let all = combined(own, place);
{% endif %}
    if (lane == 0u && row < params.outer) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
    //# end
}
