// matrix_unit: C = A·W for many rows of A by the GPU's matrix units, W of quantised weights.
//
// Storage: A (m, k) with its own row length, float16; W (k, n) by columns, {{ s.per_word }} weights of {{ s.bits }}
// bits to a u32, with a scale and a zero point per block of {{ s.block }}; factors (n), a power of two for each column;
// C (m, n), dense, float16. Sums in f32.
// Changed from gemm/matrix_unit: B are weights, eight of which are unpacked, scaled and rounded to float16 on their way
// from registers into workgroup memory. There a column is multiplied by its factor, too, so that float16 can hold it; C
// is divided by that at the end.
// Shapes: any. What lies beyond the end of k is zero; what lies beyond the other edges is read wherever the engine's
// bounds checks let it be, and not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 2·(BM·(BK + 8·SLICES) + BN·(BK + 8·SLICES)) bytes where A runs along k; C takes A's place.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/halves.wgsl" as halves with context %}
{% import "common/weights.wgsl" as weights with context %}
{% set operands = [
  {"x": "a", "axis": "row", "tile": kernel.bm, "part": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "params.a_offset", "vec": s.vec_a},
  {"x": "b", "axis": "col", "tile": kernel.bn, "part": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": true, "loads": kernel.b_loads, "base": "0u", "vec": false, "next": "b_eight"},
] %}
{% set a, b = operands %}

{% include "common/header.wgsl" %}

{{ weights.constants() }}
{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "is what lies contiguously in storage") }}
struct Weights { // eight neighbours along k
{% for w in range(s.bits // 4) %}
    word{{ w }}: u32,
{% endfor %}
    scale: f32,
    zero: f32,
}

{{ halves.load_function(a) }}
{% if s.edge_k and not s.trans_a %}
{{ halves.before_end_function() }}
{% endif %}
{{ weights.parts() }}
// W[k..k+7, col], which lie at `index`; `factor` is the column's
fn load_b8(index: u32, factor: f32) -> Weights {
    let block = index / BLOCK;
    let at = index / PER_WORD;
    return Weights(b[at], {{ "b[at + 1u], " if s.bits == 8 }}scales[block] * factor, zero_of(block));
}

// What they stand for
fn halves_of(w: Weights) -> vec4<u32> {
    let first = w.scale * (integers4(w.word0) - w.zero);
    let last = w.scale * (integers4({{ "w.word1" if s.bits == 8 else "w.word0 >> 16u" }}) - w.zero);
    return vec4<u32>(
        pack2x16float(first.xy), pack2x16float(first.zw), pack2x16float(last.xy), pack2x16float(last.zw),
    );
}

{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) if s.vec_c else matrix.store_c(row=s.edge_m, col=s.edge_n) }}
{% if s.vec_c %}
// C[row, col..col+3] ← the scaled `value`
fn finish(base: u32, row: u32, col: u32, value: vec4f) {
    let factor = vec4f(factors[col], factors[col + 1u], factors[col + 2u], factors[col + 3u]);
    store_c4(base, row, col, value / factor);
}
{% else %}
// C[row, col] ← the scaled `value`
fn finish(base: u32, row: u32, col: u32, value: f32) {
    store_c(base, row, col, value / factors[col]);
}
{% endif %}

{{ halves.store_function("finish") }}
{# storage → registers: weights as they are stored #}
{% macro fetch(k0) %}
{{ fragments.fetch([a], k0) }}
{% for i in range(b.loads) %}
        b_next{{ i }} = load_b8(b_start{{ i }} + {{ k0 }}, b_factor{{ i }});
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(k0) %}
{% for i in range(b.loads) %}
        b_eight{{ i }} = halves_of(b_next{{ i }});
{% endfor %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // what lies beyond the end of k must come to nothing
{{ halves.zero_beyond_end(a, k0) }}
{%- for i in range(b.loads) %}
            b_eight{{ i }} = select(vec4<u32>(), b_eight{{ i }}, {{ k0 }} + b_k{{ i }} < params.k);
{% endfor %}
        }
{% endif %}
{{ fragments.put(operands) }}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
    let c_base = 0u;
{{ fragments.plan_moves(operands) }}
{% for i in range(b.loads) %}
    let b_factor{{ i }} = factors[b_col{{ i }}];
    var b_next{{ i }}: Weights;
{% endfor %}
{{ fragments.multiply_along_k(operands, fetch, put) }}
{{ halves.store_fragments(operands) }}
}
