// row_tiles: y = {{ s.function }} of each row of x, many short rows per workgroup.
//
{% if kernel.load == "tile" %}
// Storage: x[i, k] and y[i, k] are dense; k runs along a row.
// Changed from rows: a workgroup loads ROWS contiguous rows into workgroup memory. Neighbouring invocations read
// neighbouring elements although rows are shorter than a subgroup. Then PER_ROW invocations share each row, and the
// results are stored through the same tile.
{% else %}
// Storage: x[i, k] with a stride per axis; y[i, k] is dense; k runs along a row.
// Changed from rows: PER_ROW neighbouring invocations share a row, so that a workgroup has ROWS short rows and no
// barrier if they combine in a subgroup.
{% endif %}
{#
  Loaded directly, without workgroup memory, softmax of 104,805 × 96 took 26 µs instead of 34 on an H200; of fewer than
  64 elements it is still faster through workgroup memory.
#}
// Edges: rows have at most 4 * UNROLL * PER_ROW elements; they are padded with the identity.
// Workgroup memory: a partial result per invocation if they combine in a tree
{%- if kernel.load == "tile" %}, and ROWS rows with padding{% endif %}.

{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/normalise.wgsl" as normalise with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/row_tiles.wgsl" as tiles with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ tiles.functions() }}
{{ normalise.functions(kernel.per_row) }}
@compute @workgroup_size(LANES)
fn main(
{{ tiles.builtins() }}
) {
    //# inner
{{ tiles.rows() }}
{% if s.function == "softmax" %}
{{ tiles.exponentials() }}
{% else %}
{% for u in range(kernel.unroll) %}
    let held{{ u }} = {{ tiles.loaded(u) }};
{% endfor %}
{{ normalise.statistics(kernel.per_row, whole="combined(own, place)") }}
{% endif %}
{{ normalise.scale() }}
    //# end
{% if tiles.tiled %}
    workgroupBarrier(); // all elements are read before results replace them
{% else %}
    let y_base = params.y_offset + row * params.length;
    let end = select(0u, params.length, row < params.outer);
{% endif %}
{% for u in range(kernel.unroll) %}
{% set first = "k + " ~ (4 * kernel.per_row * u) ~ "u" %}
    let value{{ u }} = {{ "powers" ~ u ~ " * scale" if s.function == "softmax" else normalise.value(u, first) }};
    dbg_far(RESULT, row, 0u, {{ first }}, PER_ROW, value{{ u }});
{% if tiles.tiled %}
    let slots{{ u }} = places4(base, {{ first }});
{% endif %}
{% for c in range(4) %}
{% set at = "k + " ~ (kernel.per_row * (4 * u + c)) ~ "u" %}
{% set factor = " * " ~ matrix.element("weight", at) if s.weight else "" %}
{% set term = " + " ~ matrix.element("bias", at) if s.bias else "" %}
{% set result = "value" ~ u ~ "[" ~ c ~ "]" ~ factor ~ term %}
    if ({{ at }} < {{ "params.length" if tiles.tiled else "end" }}) {
{% if tiles.tiled %}
        tile[slots{{ u }}[{{ c }}]] = {{ result }};
{% else %}
        {{ out.store("y_base + " ~ at, result) }}
{% endif %}
    }
{% endfor %}
{% endfor %}
{% if tiles.tiled %}
    workgroupBarrier(); // all results are in the tile before they are stored
    let y_first = params.y_offset + first * params.length;
{% for i in range(4 * kernel.unroll) %}
    if ({{ tiles.after(i) }} < count) {
        {{ out.store("y_first + " ~ tiles.after(i), "tile[own_place" ~ tiles.next(i) ~ "]") }}
    }
{% endfor %}
{% endif %}
}
