// {{ kernel.name }}: C = A·B on the GPU's matrix units, SM × SN of C per subgroup in a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; {{ s.dtype.name }} A and B, bound by vectors of
// {{ kernel.chunk }} elements, or by u32; C in float32 or float16; accumulation in float32.
{% if s.dtype.wgsl != kernel.operands %}
// Elements are converted to {{ kernel.operands }}, the type of the fragments, when they are loaded.
{% endif %}
// Changed from pipelined: one instruction of a subgroup multiplies fragments of FM × FK and FK × FN. A shader cannot
// access the elements of a fragment: fragments of A and B are loaded from workgroup memory as a whole, and fragments of
// C are written to workgroup memory, where invocations read single elements to apply the epilogue and store C.
// In each step along k, loading the next tiles of A and B into registers overlaps multiplying the current tiles.
{% if s.dtype.itemsize == 2 and kernel.chunk == 8 and not (s.vec_a and s.vec_b) %}
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
{#
  Fragments of other vendors' GPUs are valid for Tint and computed by emulation only: nothing here was measured on them.
  What went wrong when ONNX Runtime took this road (pull requests of microsoft/onnxruntime), and what that means here:
  - Adapters that list 8×16×16 (Intel) offer subgroups of 16 to 32 lanes, and those of RDNA 3 a range, too: its kernels
    ran with another size than they were written for until the size was pinned (32306), or were never chosen, because
    the least and largest size had to be equal (32667). A kernel needs exactly LANES lanes, not an adapter.
  - Whole fragments were stored at the edges of C, beyond the end of the result (32527). Here each element is checked.
  - The first supported entry of a table was taken for the fastest (32700). Here rates are measured for each shape.
  - Drivers list combinations of types that they do not multiply (32667). Here fragments of floats must multiply once.
  - Sums in float16 overflow (29611). Here fragments with such sums are not used.

  What each optimisation is worth on an H200 with Dawn, in TFLOP/s; the figures of an item are from one run.

  At 4095×4097×4093, with rows whose length is not a multiple of 8 elements, beyond what is said above:
  - Two vec4 for eight elements, shifted by words and half words: nt 172 instead of 154, tn 189 instead of 182.
  - Coalesced stores of single elements of C: 174 → 182 (with the two vec4).
  - Boundary checks for k only, and only in the last step: 265 → 275 at 4104×4088×4120.

  For products that do not fill the machine:
  - Slices at 32×4096×4096: 36 → 55 (32×32, from two slices of BK 64 to four of 128; eight of 256 reached 69, but are
    not used, because the shader for other engines has no room for them next to C).
  - C stored from two adjacent fragments at once, in padded lines: 64 products of 466×466×128 95 → 56 µs, 40787×30×16 9
    → 6 µs.
  - 512×4096×4096 nt: of 57 tiles and numbers of parts of k, 128×128×64 with eight subgroups of 64×32 is the fastest, 65
    to 73 µs; two slices of 64×64 70, 2 to 4 parts of k 78 and more.
  - No effect: two, three or four tiles of prefetch in registers, at any of these sizes; panels spaced to avoid bank
    conflicts of stores.

  At 4096³ (prototypes without boundary checks, up to the item on C):
  - Tiles of vec4<u32> instead of float16, so that sixteen bytes are one store: 187 → 204. subgroupMatrixLoad accepts
    them only in Tint's current spelling; with the deprecated one, and everything below, 194.3.
  - One panel per row and column of subgroups (array<array<…>>), which makes the offset of a fragment a constant: 204 →
    284. At every load, Tint checks whether a fragment with a dynamic offset is within its array. Without these checks
    (disable_robustness), the flat array reaches 289 and panels 293.
  - Lanes spread over lines, so that eight adjacent stores have no bank conflict: 284 → 294.
  - C through workgroup memory, stored as vec4, instead of fragments stored directly: 294.7 → 306.4. With C in A's tile,
    which saves memory: nt 272 → 279 (fragments were stored directly before); nn 303 → 302, tn 323 → 325, tt 296 → 294.
    128×256 and 256×128 with 8 subgroups then reach 288 and 284.
  - The next tile in registers before the multiplication: 223 → 294.
  - Padding of a line by 8 float16: none 92, 16 170, 8 204 (before the panels).
  - Workgroup memory up to 23.5 KB, so that two workgroups share a multiprocessor; from 27 KB only one fits. This is why
    anything that needs more is slower: BK 64 221 (8 subgroups 259), a second buffer 200 (with a dynamic index 154;
    filled at once 160), 128×256 and 256×128 with 8 subgroups 277 and 261, BK 48 210.
  - BK 16: 184; two buffers 202, or 209 and 229 with more tiles in registers. Two of BK 32 in registers: 284.
  - Smaller subgroup tiles read more data per multiplication: 64×32 172 (8 subgroups), 64×64 workgroups of one subgroup
    179. Larger, 80×64: 274, because 26×32 tiles fill the machine unevenly.
  - Sixteen subgroups per workgroup, which leaves 128 registers per lane: 248 to 257 (256×128, 128×256; 64×32 and 32×64
    per subgroup).
  - A ring of two halves of a step, one stored while the other is multiplied: 266; 242 and 227 with 128×256 and 256×128;
    239 if lines of A are as short as a half; 239 with the stores before the multiplications.
  - The multiplications in a branch, always taken, which prevents the driver from moving the next tile's stores before
    them: 299 → 222, nt 278 → 209; 155 → 115 at 1024³. The driver overlaps loads, multiplications and stores of a
    subgroup better than their order in the shader does.
  - Separate subgroups for loading and multiplying: 162.
  - All fragments in registers, and the tile released, before the multiplications: 250; before their last half 271.
  - Fragments of 16×8: 288. Fragments loaded directly from storage: 105 (B only).
  - No effect: the order of loads and multiplications (four variants), which the driver chooses itself; raster order up
    to 16 tile rows (32: 286); start delays; an extra barrier or branch after the loads; `workgroup` initialisation;
    range analysis of indices. A different starting k for every workgroup: 271.
  - Float16 accumulation: 300, or 311 with 64×128 per subgroup. Not offered, because the error grows with K·2⁻¹¹.

  Where the time goes, by omitting steps: multiplications alone 572; with loads from workgroup memory 547; with barriers
  484; with stores to workgroup memory 396; with loads that hit the first-level cache 322; everything 294.
#}
// Edges: elements beyond the end of k are replaced by zero. Elements beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
{% set bytes, pad = 16 // kernel.chunk, kernel.chunk %}
{% set panels = "(BM·(BK + " ~ pad ~ "·SLICES) + BN·(BK + " ~ pad ~ "·BK/SN))" %}
// Workgroup memory, with {{ pad }} elements of padding per line of a panel: {{ bytes }}·{{ panels }}
// bytes if A is contiguous along k and B along n
{%- if dialect == "tint" and kernel.spelling == "current" %};
// C reuses A's panels.
{% else %},
// plus 4·FM·FN per subgroup.
{% endif %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
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

{{ halves.widened_function() }}
{{- halves.load_function(operands[0]) }}
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
{{ layout.assign_tile() }}
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
