{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{# Where there is too little of A and B for every lane to move some of both, half of the subgroups move A, half B. #}
{% set movers_divided = kernel.apart(s) %}
{% set lane, lanes = ("sharer", kernel.invocations // 2) if movers_divided else ("lane", kernel.invocations) %}
{% set shares = 2 if movers_divided else 1 %}
{% set a_loads, b_loads = shares * kernel.a_loads, shares * kernel.b_loads %}
{#
  What byte_tiles.wgsl and fragments.wgsl want to know of the operands; `summed` counts the sums that a lane has of an
  operand where zero points need them. Of an operand whose storage runs across k (`across`) a lane moves units of 4
  chunks.
#}
{% set operands = [
  dict(bytes.operands[0], tile=kernel.bm, part=kernel.sm, fragment=kernel.fm, kind="Left", along_k=true, line="a_line",
       loads=a_loads, summed=a_loads // 4 if s.trans_a else a_loads, base="params.a_offset", vec=false,
       next="next" if movers_divided else "a_next"),
  dict(bytes.operands[1], tile=kernel.bn, part=kernel.sn, fragment=kernel.fn, kind="Right", along_k=true, line="b_line",
       loads=b_loads, summed=b_loads if s.trans_b else b_loads // 4, base="params.b_offset", vec=false,
       next="next" if movers_divided else "b_next"),
] %}
{# Where movers are divided, a lane needs registers for one of the operands only: those of A are declared for either. #}
{% set with_registers = [dict(operands[0], loads=[a_loads, b_loads] | max), dict(operands[1], loads=0)] %}
{% set chunks = kernel.bk // kernel.chunk %}
{% set c_wide = kernel.c_wide %}
// matrix_unit: C = a product of 8-bit integers by the GPU's matrix units, SM × SN of C per subgroup out of a BM × BN
// tile per workgroup.
//
// Storage: A (m, k), B (k, n), bytes, four to a u32, each with its own row length; C (m, n), dense.
// Sums in {{ kernel.matrix_shape.result }}.
// Changed from packed: a subgroup multiplies fragments of FM × FK and FK × FN bytes by one instruction, as
// gemm/matrix_unit does. Zero points count at the end, as in packed: a term for each row and column of C.
{% for x in (["A"] if s.flip_a else []) + (["B"] if s.flip_b else []) %}
// {{ x }} is u8: its bytes and zero points are both reduced by 128, to i8, which leaves every difference as it is.
{% endfor %}
// Lines of both tiles run along k, whichever way storage does: matrix units take four neighbours along k at once, and
// would have to gather them byte by byte. Where storage runs across k, a lane moves 16 × 4 bytes (16 of k, 4 rows of A
// or columns of B) and transposes them in registers.
// In each step along k, lanes fetch the next tiles into registers while subgroups multiply the fragments of those in
// workgroup memory. At the end, C goes from fragments to workgroup memory, and from there, by fours, to storage.
// Shapes: any; bytes beyond the end of k are zero. What lies beyond the other edges is read wherever the engine's
// bounds checks let it be, and nothing that comes of it is stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: (BM + BN)·(BK + 20) bytes; fragments of C go where the tiles were.
{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "runs along k") }}
{% if s.zero_a or s.zero_b %}
{{ quantized.dots() }}
{% endif %}
{{ bytes.loads(operands) }}
{{ quantized.store_tile4() }}
const C_WIDE: u32 = {{ c_wide }}u; // fragments of C that a subgroup stores side by side
const C_FOURS: u32 = C_WIDE * FN / 4u; // fours of columns in them
const C_LINE: u32 = C_FOURS + 1u; // from row to row of them, in vec4<u32>: neighbours lie in different banks

{# For an operand whose storage runs across k: which units of 16 × 4 bytes this lane moves, from where and to where. #}
{% macro plan_transposed_moves(o) %}
{% for i in range(o.summed) %}
{% set block, line, k = o.x ~ "_block" ~ i, o.x ~ "_line" ~ i, o.x ~ "_k" ~ i %}
    let {{ block }} = {{ lane }} + {{ i * lanes }}u;
    let {{ line }} = {{ block }} / {{ chunks }}u * 4u;
    let {{ k }} = {{ block }} % {{ chunks }}u * 16u;
    let {{ o.x }}_panel{{ i }} = {{ line }} / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ line }} % {{ o.part }}u * {{ o.x | upper }}_LINE + {{ k }} / 16u;
    let {{ o.x }}_start{{ i }} = {{ o.base }} + {{ k }} * params.ld{{ o.x }} + {{ o.axis }}0 + {{ line }};
{% endfor %}
{% endmacro %}

{# The caller's statements, for those lanes that move the operand: all, or those of half of the subgroups. #}
{% macro by_movers(o) %}
{% if movers_divided %}
        if (lane {{ "<" if o.x == "a" else ">=" }} {{ lanes }}u) { // half of the subgroups move {{ o.x | upper }}
{{ caller() }}
        }
{% else %}
{{ caller() }}
{%- endif %}
{% endmacro %}

{# storage → registers, as it is stored #}
{% macro fetch(k0) %}
{% for o in operands %}
{% call by_movers(o) %}
{% for i in range(o.loads) %}
{% if o.across %}
{% set k = "(" ~ k0 ~ " + " ~ i % 4 * 4 ~ "u)" if i % 4 else k0 %}
        {{ o.next }}{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i // 4 }} + {{ k }} * params.ld{{ o.x }});
{% else %}
        {{ o.next }}{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i }} + {{ k0 }});
{% endif %}
{% endfor %}
{% endcall %}
{% endfor %}
{% endmacro %}

{# Registers → workgroup memory, as it is multiplied, and what zero points need summed on the way. #}
{% macro put(k0) %}
{% for o in operands %}
{% call by_movers(o) %}
{% for i in range(o.loads) %}
{% set next, unit = o.next ~ i, i // 4 if o.across else i %}
{% set k %}{{ k0 }} + {{ o.x }}_k{{ unit }}{% if o.across and i % 4 %} + {{ i % 4 * 4 }}u{% endif %}{% endset %}
{% if bytes.changed(o) %}
        {{ next }} = {{ bytes.ready(o, next, k) }};
{% endif %}
{% if o.sums %}
        {{ o.x }}_sum{{ unit }} += {{ bytes.sum_of(o, next) }};
{% endif %}
{% endfor %}
{% if o.across %}
{% for i in range(o.summed) %}
{{ put_transposed(o, i) }}
{%- endfor %}
{% else %}
{{ fragments.put([o]) }}
{%- endif %}
{% endcall %}
{% endfor %}
{% endmacro %}

{# A unit of 16 × 4 bytes, already transposed four by four, to four lines of a panel. #}
{% macro put_transposed(o, i) %}
{% for j in range(4) %}
{% set place %}{{ o.x }}_put{{ i }}{% if j %} + {{ j }}u * {{ o.x | upper }}_LINE{% endif %}{% endset %}
        {{ o.x }}_tile[{{ o.x }}_panel{{ i }}][{{ place }}] = vec4u(
{%- for q in range(4) %}{{ o.next }}{{ 4 * i + q }}.{{ "xyzw"[j] }}{{ ", " if q < 3 }}{% endfor %});
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
{% if movers_divided %}
    let sharer = lane % {{ lanes }}u; // among those that move the same operand
{% endif %}
{{ fragments.plan_moves(operands | rejectattr("across") | list, lane, lanes) }}
{% for o in operands if o.across %}
{{ plan_transposed_moves(o) }}
{%- endfor %}
{{ bytes.no_sums(operands) }}
{{ fragments.multiply_along_k(with_registers if movers_divided else operands, fetch, put) }}
{% if s.zero_a or s.zero_b %}
{{ bytes.share_sums(operands) }}
{%- else %}
    workgroupBarrier(); // everyone is done with the tiles before C takes their place
{% endif %}
{% for sharers in kernel.c_sharers(c_wide) %}
    let {{ "ab"[loop.index0] }}_panel = subgroup / {{ sharers }}u;
    let {{ "ab"[loop.index0] }}_place = subgroup % {{ sharers }}u * FM * C_LINE;
{% endfor %}
    let row = subgroup_row * SM;
    let four = subgroup_lane % C_FOURS; // of the columns, which this lane stores of every LANES / C_FOURS-th row
    let col = subgroup_col * SN + four * 4u;
{% set rows = kernel.sm // kernel.fm %}
{% for q in range(0, kernel.sn // kernel.fn, c_wide) %}
    let columns{{ q }} = {{ quantized.columns_of_tile("col + " ~ q * kernel.fn ~ "u") }};
{% for r in range(rows) %}
{# Turn and turn about, so that one barrier is enough: while some lanes still read one panel, others fill the other. #}
{% set x = "ab"[(q // c_wide * rows + r) % 2] %}
{% set to, place = x ~ "_tile[" ~ x ~ "_panel]", x ~ "_place" %}
{% for j in range(c_wide) %}
{% set fragment = "acc_" ~ r ~ "_" ~ (q + j) %}
{{ fragments.store_fragment(fragment, to, place ~ " + " ~ j * kernel.fn // 4 ~ "u", "C_LINE") }}
{%- endfor %}
    workgroupBarrier(); // the fragments are complete before lanes read them; those before were read, elsewhere
    for (var i = subgroup_lane / C_FOURS; i < FM; i += LANES / C_FOURS) {
{% set value %}bitcast<vec4i>({{ to }}[{{ place }} + i * C_LINE + four]){% endset %}
        store_tile4(row0, row + {{ r * kernel.fm }}u + i, columns{{ q }}, {{ value }});
    }
{% endfor %}
{% endfor %}
}
