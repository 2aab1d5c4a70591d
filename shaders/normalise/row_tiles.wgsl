// row_tiles: y = {{ s.function }} of each row of x, many short rows per workgroup.
//
// Storage: x[i, k] and y[i, k] are dense; k runs along a row.
// Changed from rows: a workgroup loads ROWS contiguous rows into workgroup memory. Neighbouring invocations read
// neighbouring elements although no vec4 or subgroup fits the rows. Then PER_ROW invocations share each row, and the
// results are stored through the same tile.
// Shapes: rows of at most 4 * UNROLL * PER_ROW elements; rows are padded with the identity.
// Workgroup memory: the tile, ROWS rows with padding, and a partial result per invocation if they combine in a tree.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/normalise.wgsl" as normalise with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/row_tiles.wgsl" as tiles with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ tiles.functions() }}
{{ normalise.functions(kernel.per_row) }}
@compute @workgroup_size(LANES)
fn main(
{{ tiles.builtins() }}
) {
{{ tiles.fetch() }}
{% if s.function == "softmax" %}
{{ tiles.exponentials() }}
{% else %}
{% for u in range(kernel.unroll) %}
    let held{{ u }} = load4(base, k + {{ 4 * kernel.per_row * u }}u, params.length);
{% endfor %}
{{ normalise.statistics(kernel.per_row, whole="combined(own, place)") }}
{% endif %}
{{ normalise.scale() }}
    workgroupBarrier(); // all elements are read before results replace them
{% for u in range(kernel.unroll) %}
    let value{{ u }} = {{ "power" ~ u ~ " * scale" if s.function == "softmax" else normalise.value(u, "k") }};
    dbg_far(RESULT, row, 0u, k + {{ 4 * kernel.per_row * u }}u, PER_ROW, value{{ u }});
    let places{{ u }} = places4(base, k + {{ 4 * kernel.per_row * u }}u);
{% for c in range(4) %}
{% set at = "k + " ~ (kernel.per_row * (4 * u + c)) ~ "u" %}
{% set factor = " * " ~ matrix.element("weight", at) if s.weight else "" %}
{% set term = " + " ~ matrix.element("bias", at) if s.bias else "" %}
{% if s.edge %}
    if ({{ at }} < params.length) {
{% endif %}
    tile[places{{ u }}[{{ c }}]] = value{{ u }}[{{ c }}]{{ factor }}{{ term }};
{% if s.edge %}
    }
{% endif %}
{% endfor %}
{% endfor %}
    workgroupBarrier(); // all results are in the tile before they are stored
    let y_base = params.y_offset + first * params.length;
{% for i in range(4 * kernel.unroll) %}
    if ({{ tiles.after(i) }} < count) {
        {{ out.store("y_base + " ~ tiles.after(i), "tile[own_place" ~ tiles.next(i) ~ "]") }}
    }
{% endfor %}
}
