// matrix_unit: C = A·B on the GPU's matrix units, SM × SN of C per subgroup in a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; float16 A and B, bound as array<vec4<u32>>,
// eight elements each, if the contiguous length is a multiple of 8, otherwise as array<u32>, two elements each; C in
// float32 or float16; accumulation in float32.
// Changed from pipelined: one instruction of a subgroup multiplies fragments of FM × FK and FK × FN. A shader cannot
// access the elements of a fragment: fragments of A and B are loaded from workgroup memory as a whole, and fragments of
// C are written to workgroup memory, where invocations read single elements to apply the epilogue and store C.
// In each step along k, loading the next tiles of A and B into registers overlaps multiplying the current tiles.
{% if not (s.vec_a and s.vec_b) %}
// If rows are not a multiple of 8 elements, a chunk of eight may start in the middle of a word: it is read as five
// words and shifted. 168 TFLOP/s at 4095×4097×4093 on an H200; 35 with loads of single elements, 182 with two vec4 per
// chunk, which is not possible in general: the last one may extend past the end of the buffer.
{% endif %}
{% if kernel.slices > 1 %}
// If C has few tiles, most of a GPU would be idle: SLICES groups of subgroups each compute a part of every step of k
// for the same tile, and add their sums in workgroup memory. On an H200: 161 TFLOP/s at 1024³, 133 without slices; 154
// at 128×4096×4096, 57 without.
{% endif %}
{% if kernel.splits > 1 %}
// SPLITS workgroups each compute a part of k, and store partial sums (batch, split, row, column), rows padded to whole
// vec4. The next dispatch (sum_splits) adds these and applies the epilogue. Every split needs at least a step of k.
// On an H200, 97×507×189653 takes 173 µs in 132 parts, and 1,539 with tiles of 32×32 and four slices; 64×5120×5120 nt
// takes 34 µs in three parts, and 76 without.
{% endif %}
// Shapes: any. Elements beyond the end of k are replaced by zero. Elements beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory, with 8 elements of padding per line of a panel: 2·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes if
// A is contiguous along k and B along n
{%- if dialect == "tint" and kernel.spelling == "current" %};
// C reuses A's panels.
{% else %},
// plus 4·FM·FN per subgroup.
{% endif %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/halves.wgsl" as halves with context %}
{% import "common/splits.wgsl" as splits with context %}
{% set operands = [
  {"x": "a", "axis": "row", "tile": kernel.bm, "subtile": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "a_base", "vec": s.vec_a},
  {"x": "b", "axis": "col", "tile": kernel.bn, "subtile": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": s.trans_b, "loads": kernel.b_loads, "base": "b_base", "vec": s.vec_b},
] %}

{% include "common/header.wgsl" %}

{# Whether a chunk may cross the end of k: only one that runs along k can. #}
{% set needs_before_end = s.edge_k and (not s.trans_a or s.trans_b) %}
{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "is contiguous in storage") }}
{%- if not fragments.vec4_panels %}
var<workgroup> c_tile: array<array<f32, FM * FN>, {{ kernel.subgroups }}>; // a fragment of C per subgroup
{% endif %}

{{ halves.load_function(operands[0]) }}
{{ halves.load_function(operands[1]) }}
{% if needs_before_end %}
{{ halves.before_end_function() }}
{% endif %}
{% if kernel.splits > 1 %}
{{ splits.store_partial() }}
{{ halves.store_function("store_c4", by_vec4=true, to="partial sums") }}
{% else %}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) if s.vec_c else matrix.store_c(row=s.edge_m, col=s.edge_n) }}
{{ halves.store_function() }}
{% endif %}
{# storage → registers #}
{% macro load_next(k0) %}
{{ fragments.load_next(operands, k0) }}
{% endmacro %}

{# registers → workgroup memory #}
{% macro write_tiles(k0) %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // elements beyond the end of k must be zero
{% for o in operands %}
{{ halves.zero_beyond_end(o, k0) }}
{%- endfor %}
        }
{% endif %}
{{ fragments.write_tiles(operands) }}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.assign_tile() }}
{% if kernel.splits > 1 %}
    let batch = workgroup.z / SPLITS;
    let split = workgroup.z % SPLITS;
{{ matrix.bases("batch", c=false) }}
    let c_base = {{ splits.partial_base() }}; // of this split's partial sums, in vec4
{{ splits.part_of_k("BK", "split") }}
{{ fragments.plan_loads(operands) }}
{{ fragments.multiply_along_k(operands, load_next, write_tiles, "k_first", "k_end") }}
{% else %}
{{ matrix.bases() }}
{{ fragments.plan_loads(operands) }}
{{ fragments.multiply_along_k(operands, load_next, write_tiles) }}
{% endif %}
{{ halves.store_fragments(operands) }}
}
