// matrix_unit: C = A·W for many rows of A on the GPU's matrix units, W quantised weights.
//
// Storage: A (m, k) with its own row stride, float16; W (k, n) by columns, {{ s.per_word }} weights of {{ s.bits }}
// bits to a u32, with a scale and a zero point per block of {{ s.block }}; factors (n), a power of two for each column;
// C (m, n), dense, float16. Accumulation in f32.
// Changed from gemm/matrix_unit: B holds weights, which are unpacked, scaled and rounded to float16, eight at a time,
// when they are written from registers to workgroup memory. Each column is also multiplied by its factor, so that it
// fits float16's range; C is divided by the factors at the end.
// Edges: elements beyond the end of k are replaced by zero. Elements beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 2·(BM·(BK + 8·SLICES) + BN·(BK + 8·SLICES)) bytes if A is contiguous along k; C reuses A's panels.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/halves.wgsl" as halves with context %}
{% import "common/weights.wgsl" as weights with context %}
{% set operands = [
  {"x": "a", "axis": "row", "tile": kernel.bm, "subtile": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "params.a_offset", "vec": s.vec_a},
  {"x": "b", "axis": "col", "tile": kernel.bn, "subtile": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": true, "loads": kernel.b_loads, "base": "0u", "vec": false, "next": "b_eight"},
] %}
{% set a, b = operands %}

{% include "common/header.wgsl" %}

{{ weights.constants() }}
{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "is contiguous in storage") }}
struct Weights { // eight consecutive weights along k
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
{{ weights.unpack_functions() }}
// W[k..k+7, col], stored from weight `index` on; `factor` is the column's
fn load_b8(index: u32, factor: f32) -> Weights {
    let block = index / BLOCK;
    let at = index / PER_WORD;
    return Weights(b[at], {{ "b[at + 1u], " if s.bits == 8 }}scales[block] * factor, zero_of(block));
}

// The weights' values, as float16
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
{# storage → registers: A, and weights that are still packed #}
{% macro load_next(k0) %}
{{ fragments.load_next([a], k0) }}
{% for i in range(b.loads) %}
        b_next{{ i }} = load_b8(b_start{{ i }} + {{ k0 }}, b_factor{{ i }});
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro write_tiles(k0) %}
{% for i in range(b.loads) %}
        b_eight{{ i }} = halves_of(b_next{{ i }});
{% endfor %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // elements beyond the end of k must be zero
{{ halves.zero_beyond_end(a, k0) }}
{%- for i in range(b.loads) %}
            b_eight{{ i }} = select(vec4<u32>(), b_eight{{ i }}, {{ k0 }} + b_k{{ i }} < params.k);
{% endfor %}
        }
{% endif %}
{{ fragments.write_tiles(operands) }}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ layout.assign_tile() }}
    let c_base = 0u;
{{ fragments.plan_loads(operands) }}
{% for i in range(b.loads) %}
    let b_factor{{ i }} = factors[b_col{{ i }}];
    var b_next{{ i }}: Weights;
{% endfor %}
{{ fragments.multiply_along_k(operands, load_next, write_tiles) }}
{{ halves.store_fragments(operands) }}
}
