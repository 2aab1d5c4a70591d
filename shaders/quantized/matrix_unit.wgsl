{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/line_sums.wgsl" as lines with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{# If the tiles of A and B are too small for all invocations to load from both, half of the subgroups load A, half B. #}
{% set loads_divided = kernel.divides_loads(s) %}
{% set index, loaders = ("loader", kernel.invocations // 2) if loads_divided else ("local_index", kernel.invocations) %}
{% set times = kernel.invocations // loaders %}
{% set a_loads, b_loads = times * kernel.a_loads, times * kernel.b_loads %}
{#
  A and B as byte_tiles.wgsl and fragments.wgsl describe operands. If storage is contiguous across k (`across_k`), an
  invocation loads blocks of 4 chunks. If zero points need sums of bytes, it keeps `summed` of them: one per chunk, or a
  vec4 per block. `line` is the name of the variables that hold the (first) line of each of these in the tile.
#}
{% set operands = [
  dict(bytes.operands[0], tile=kernel.bm, subtile=kernel.sm, fragment=kernel.fm, kind="Left", along_k=true,
       line="a_line", loads=a_loads, summed=a_loads // 4 if s.trans_a else a_loads, base="params.a_offset", vec=false,
       next="next" if loads_divided else "a_next"),
  dict(bytes.operands[1], tile=kernel.bn, subtile=kernel.sn, fragment=kernel.fn, kind="Right", along_k=true,
       line="b_line", loads=b_loads, summed=b_loads if s.trans_b else b_loads // 4, base="params.b_offset", vec=false,
       next="next" if loads_divided else "b_next"),
] %}
{# If loads are divided, an invocation needs registers for one operand only: `next`, which A's entry here declares. #}
{% set with_registers = [dict(operands[0], loads=[a_loads, b_loads] | max), dict(operands[1], loads=0)] %}
{% set chunks = kernel.bk // kernel.chunk %}
{% set c_wide = kernel.c_wide %}
// matrix_unit: C = a product of 8-bit integers on the GPU's matrix units, SM × SN of C per subgroup in a BM × BN tile
// per workgroup.
//
// Storage: A (m, k), B (k, n), four bytes per u32, each with its own row stride; C (m, n), dense.
// Accumulation in {{ kernel.matrix_shape.result }}.
// Changed from packed: one instruction of a subgroup multiplies fragments of FM × FK and FK × FN bytes, as in
// gemm/matrix_unit. Zero points are applied at the end, as in packed: a term for each row and each column of C.
{% for x in (["A"] if s.flip_a else []) + (["B"] if s.flip_b else []) %}
// {{ x }} is u8: 128 is subtracted from its bytes and zero points, which makes them i8 and keeps their differences.
{% endfor %}
// Lines of both tiles run along k in any layout, since matrix units load four consecutive bytes along k at once. If
// storage is contiguous across k, an invocation loads 16 × 4 bytes (16 along k, 4 rows of A or columns of B) and
// transposes them in registers.
// In each step along k, loading the next tiles into registers overlaps multiplying the current tiles. At the end,
// fragments of C are written to workgroup memory, from which invocations read vec4 to store C.
{#
  What each optimisation is worth on an H200 with Dawn, in TOP/s at 4096³, int8, nn unless stated otherwise:
  - C staged in the memory of A's and B's tiles, with one barrier per row of fragments instead of two, values per column
    loaded once for all rows, and rounding in float32, with fixed point only next to ties: 417 → 448, nt 453 → 481, in
    one run; the rounding alone 435 → 448. Without storing C 480.
  - Subgroups of 64×32, twice as many: nt 481 → 505. If operands are not contiguous along k, a lane then has half a
    block of 16×4 bytes of each, so half of the subgroups load A and half B, which costs more than it gains: 448 → 411,
    uint8 428 → 297. For small tiles it pays: 119 → 137 at 1024³ with 128×64.
  - Fragments of u8 instead of uint8 converted to i8: 362 → 391. The sums for both zero points, computed with `dot4`
    while loading, cost 4 %.
  - Larger tiles and larger BK, in a run in which the default reached 424 and nt 453: 128×256 391 and 424, 256×128 nt
    425, BK 128 274 and 411; smaller: 64×128 302 and 381, 128×64 329. Raster order: within 3 %.
  - No effect: transposing bytes when they are loaded or when they are stored, 424 and 419.
#}
// Edges: bytes beyond the end of k are replaced by zero. Bytes beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: (BM + BN)·(BK + 20) bytes: a line has BK bytes, 16 of padding and a sum. Fragments of C overwrite
// the tiles.
{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "runs along k") }}
{% if s.zero_a or s.zero_b %}
{{ quantized.dot_functions() }}
{% endif %}
{{ bytes.load_functions(operands) }}
{{ quantized.store_tile4() }}
const C_WIDE: u32 = {{ c_wide }}u; // adjacent fragments of C that a subgroup stores at once
const C_FOURS: u32 = C_WIDE * FN / 4u; // vec4 in a row of these
const C_LINE: u32 = C_FOURS + 1u; // row stride of these, in vec4<u32>, padded against bank conflicts

{# The blocks of 16 × 4 bytes, 4 chunks, that this invocation loads of an operand that is contiguous across k. #}
{% macro plan_transposed_loads(o) %}
{% for i in range(o.summed) %}
{% set block, line, k = o.x ~ "_block" ~ i, o.x ~ "_line" ~ i, o.x ~ "_k" ~ i %}
    let {{ block }} = {{ index }} + {{ i * loaders }}u;
    let {{ line }} = {{ block }} / {{ chunks }}u * 4u;
    let {{ k }} = {{ block }} % {{ chunks }}u * 16u;
    let {{ o.x }}_panel{{ i }} = {{ line }} / {{ o.subtile }}u;
    let {{ o.x }}_index{{ i }} = {{ line }} % {{ o.subtile }}u * {{ o.x | upper }}_LINE + {{ k }} / 16u;
    let {{ o.x }}_start{{ i }} = {{ o.base }} + {{ k }} * params.ld{{ o.x }} + {{ o.axis }}0 + {{ line }};
{% endfor %}
{% endmacro %}

{# The caller's statements, for the invocations that load the operand: all, or those of half of the subgroups. #}
{% macro by_loaders(o) %}
{% if loads_divided %}
        if (local_index {{ "<" if o.x == "a" else ">=" }} {{ loaders }}u) { // loads of {{ o.x | upper }}
{{ caller() }}
        }
{% else %}
{{ caller() }}
{%- endif %}
{% endmacro %}

{# storage → registers; converted only in write_tiles(), so that nothing waits for the loads #}
{% macro load_next(k0) %}
{% for o in operands %}
{% call by_loaders(o) %}
{% for i in range(o.loads) %}
{% if o.across_k %}
{% set k = "(" ~ k0 ~ " + " ~ i % 4 * 4 ~ "u)" if i % 4 else k0 %}
        {{ o.next }}{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i // 4 }} + {{ k }} * params.ld{{ o.x }});
{% else %}
        {{ o.next }}{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i }} + {{ k0 }});
{% endif %}
{% endfor %}
{% endcall %}
{% endfor %}
{% endmacro %}

{# registers → workgroup memory: converted, and added to the sums that zero points need #}
{% macro write_tiles(k0) %}
{% for o in operands %}
{% call by_loaders(o) %}
{% for i in range(o.loads) %}
{% set next, block = o.next ~ i, i // 4 if o.across_k else i %}
{% set k %}{{ k0 }} + {{ o.x }}_k{{ block }}{% if o.across_k and i % 4 %} + {{ i % 4 * 4 }}u{% endif %}{% endset %}
{% if bytes.converted(o) %}
        {{ next }} = {{ bytes.convert(o, next, k) }};
{% endif %}
{% if o.sums %}
        {{ o.x }}_sum{{ block }} += {{ lines.sum_of_bytes(o, next) }};
{% endif %}
{% endfor %}
{% if o.across_k %}
{% for i in range(o.summed) %}
{{ write_transposed(o, i) }}
{%- endfor %}
{% else %}
{{ fragments.write_tiles([o]) }}
{%- endif %}
{% endcall %}
{% endfor %}
{% endmacro %}

{# A block to four lines of a panel. convert() has transposed its chunks: word `j` of chunk `q` is of line `j`. #}
{% macro write_transposed(o, i) %}
{% for j in range(4) %}
{% set place %}{{ o.x }}_index{{ i }}{% if j %} + {{ j }}u * {{ o.x | upper }}_LINE{% endif %}{% endset %}
        {{ o.x }}_tile[{{ o.x }}_panel{{ i }}][{{ place }}] = vec4u(
{%- for q in range(4) %}{{ o.next }}{{ 4 * i + q }}.{{ "xyzw"[j] }}{{ ", " if q < 3 }}{% endfor %});
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ layout.assign_tile() }}
{% if loads_divided %}
    let loader = local_index % {{ loaders }}u; // among those that load the same operand
{% endif %}
{{ fragments.plan_loads(operands | rejectattr("across_k") | list, index, loaders) }}
{% for o in operands if o.across_k %}
{{ plan_transposed_loads(o) }}
{%- endfor %}
{{ lines.declare_line_sums(operands) }}
{{ fragments.multiply_along_k(with_registers if loads_divided else operands, load_next, write_tiles) }}
{% if s.zero_a or s.zero_b %}
{{ lines.add_line_sums(operands) }}
{%- else %}
    workgroupBarrier(); // everyone is done with the tiles before C overwrites them
{% endif %}
    // Where this subgroup stores fragments of C: in a panel of A or B, which several subgroups share, from a place on
{% set sharers = kernel.c_sharers(c_wide) %}
{% for x in "ab" %}
    let {{ x }}_panel = subgroup / {{ sharers[loop.index0] }}u;
    let {{ x }}_place = subgroup % {{ sharers[loop.index0] }}u * FM * C_LINE;
{% endfor %}
    let row = subgroup_row * SM;
    let four = subgroup_lane % C_FOURS; // this lane stores the vec4 `four` of every (LANES / C_FOURS)-th row
    let col = subgroup_col * SN + four * 4u;
{% set rows = kernel.sm // kernel.fm %}
{% for q in range(0, kernel.sn // kernel.fn, c_wide) %}
    let columns{{ q }} = {{ quantized.columns_of_tile("col + " ~ q * kernel.fn ~ "u") }};
{% for r in range(rows) %}
{# Fragments alternate between panels of A and B, so that one barrier per fragment is enough. #}
{% set x = "ab"[(q // c_wide * rows + r) % 2] %}
{% set to, place = x ~ "_tile[" ~ x ~ "_panel]", x ~ "_place" %}
{% for j in range(c_wide) %}
{% set fragment = "acc_" ~ r ~ "_" ~ (q + j) %}
{{ fragments.store_fragment(fragment, to, place ~ " + " ~ j * kernel.fn // 4 ~ "u", "C_LINE") }}
{%- endfor %}
    workgroupBarrier(); // the fragments are complete before lanes read them; others read the other panel
    for (var i = subgroup_lane / C_FOURS; i < FM; i += LANES / C_FOURS) {
{% set value %}bitcast<vec4i>({{ to }}[{{ place }} + i * C_LINE + four]){% endset %}
        store_tile4(row0, row + {{ r * kernel.fm }}u + i, columns{{ q }}, {{ value }});
    }
{% endfor %}
{% endfor %}
}
