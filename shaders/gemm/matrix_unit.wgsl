// matrix_unit: C = A·B by the GPU's matrix units, SM × SN of C per subgroup out of a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; float16 A and B, bound as array<vec4<u32>>,
// eight elements each, where the contiguous length is a multiple of 8, otherwise as array<u32>, two each; C in float32
// or float16; accumulation in float32.
// Changed from pipelined: a subgroup multiplies fragments of FM × FK and FK × FN by one instruction. No shader can
// reach the elements of a fragment, so that each is loaded from workgroup memory as a whole, and what an epilogue, an
// edge or a conversion does to single elements of C is done on its way through workgroup memory, too.
// In each step along k, lanes fetch the next tiles of A and B into registers while subgroups multiply the fragments of
// those in workgroup memory; at the end, C goes from fragments to workgroup memory, and from there to storage.
{% if not (s.vec_a and s.vec_b) %}
// Rows that are no multiple of 8 elements start anywhere: eight neighbours are five words, moved by half a word where
// the first is an odd one. 168 TFLOP/s at 4095×4097×4093 on an H200; 35 by single elements, 182 by two vec4, whose last
// one a buffer may not hold whole.
{% endif %}
{% if kernel.slices > 1 %}
// Where a C of few tiles leaves most of a machine idle, SLICES groups of subgroups take a share of each step of k for
// the same tile, and add their sums up in workgroup memory. On an H200: 161 TFLOP/s at 1024³, 133 without; 154 at
// 128×4096×4096, 57 without.
{% endif %}
// Shapes: any. What lies beyond the end of k is zero. What lies beyond the other edges is read wherever the engine's
// bounds checks let it be: nothing that comes of it is stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 2·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes where A runs along k and B along n
{%- if dialect == "tint" and kernel.spelling == "current" %};
// C takes A's place.
{% else %},
// and 4·FM·FN for each subgroup.
{% endif %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/halves.wgsl" as halves with context %}
{% set operands = [
  {"x": "a", "axis": "row", "tile": kernel.bm, "part": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "a_base", "vec": s.vec_a},
  {"x": "b", "axis": "col", "tile": kernel.bn, "part": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": s.trans_b, "loads": kernel.b_loads, "base": "b_base", "vec": s.vec_b},
] %}

{% include "common/header.wgsl" %}

{% set edge_rows_along_k = s.edge_k and (not s.trans_a or s.trans_b) %}
{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "is what lies contiguously in storage") }}
{%- if not fragments.vec4_panels %}
var<workgroup> c_tile: array<array<f32, FM * FN>, {{ kernel.subgroups }}>; // a fragment of C per subgroup
{% endif %}

{{ halves.load_function(operands[0]) }}
{{ halves.load_function(operands[1]) }}
{% if edge_rows_along_k %}
{{ halves.before_end_function() }}
{% endif %}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) if s.vec_c else matrix.store_c(row=s.edge_m, col=s.edge_n) }}
{{ halves.store_function() }}
{# storage → registers #}
{% macro fetch(k0) %}
{{ fragments.fetch(operands, k0) }}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(k0) %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // what lies beyond the end of k must come to nothing
{% for o in operands %}
{{ halves.zero_beyond_end(o, k0) }}
{%- endfor %}
        }
{% endif %}
{{ fragments.put(operands) }}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
{{ fragments.plan_moves(operands) }}
{{ fragments.multiply_along_k(operands, fetch, put) }}
{{ halves.store_fragments(operands) }}
}
