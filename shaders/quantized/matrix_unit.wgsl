{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{% set apart = kernel.apart(s) %}
{% set lane, lanes = ("sharer", kernel.invocations // 2) if apart else ("lane", kernel.invocations) %}
{% set a_loads, b_loads = kernel.a_loads * (2 if apart else 1), kernel.b_loads * (2 if apart else 1) %}
{% set operands = [
  dict(bytes.operands[0], tile=kernel.bm, part=kernel.sm, fragment=kernel.fm, kind="Left", along_k=true, line="a_line",
       loads=a_loads, summed=a_loads // 4 if s.trans_a else a_loads, base="params.a_offset", vec=false,
       next="next" if apart else "a_next"),
  dict(bytes.operands[1], tile=kernel.bn, part=kernel.sn, fragment=kernel.fn, kind="Right", along_k=true, line="b_line",
       loads=b_loads, summed=b_loads if s.trans_b else b_loads // 4, base="params.b_offset", vec=false,
       next="next" if apart else "b_next"),
] %}
{% set waiting = [dict(operands[0], loads=[a_loads, b_loads] | max), dict(operands[1], loads=0)] %}
{% set chunks = kernel.bk // kernel.chunk %}
{% set wide = kernel.c_wide %}
// matrix_unit: C = a product of 8-bit integers by the GPU's matrix units, SM × SN of C per subgroup out of a BM × BN tile
// per workgroup.
//
// Storage: A (m, k), B (k, n), bytes, four to a u32, each with its own row length; C (m, n), dense. Sums in {{ kernel.matrix_shape.result }}.
// Changed from packed: a subgroup multiplies fragments of FM × FK and FK × FN bytes by one instruction, as gemm/matrix_unit
// does. Zero points are brought in at the end, as in packed.
{% for x in (["A"] if s.flip_a else []) + (["B"] if s.flip_b else []) %}
// {{ x }} is u8: its bytes and zero points are moved by 128, to i8, which changes no difference.
{% endfor %}
// Lines of both tiles run along k, whichever way storage does: matrix units take four neighbours along k at once, and
// would have to gather them byte by byte. A lane then moves 16 × 4 bytes, transposed in registers.
// Shapes: any; bytes beyond the end of k are zero. What lies beyond the other edges is read wherever the engine's bounds
// checks let it be: nothing that comes of it is stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: (BM + BN)·(BK + 20) bytes; fragments of C go where the tiles were.
{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "runs along k") }}
{% if s.zero_a or s.zero_b %}
{{ quantized.dots() }}
{% endif %}
{{ bytes.loads(operands) }}
{{ quantized.store_tile4() }}
const C_WIDE: u32 = {{ wide }}u; // fragments of C that a subgroup stores side by side
const C_FOURS: u32 = C_WIDE * FN / 4u; // fours of columns in them
const C_LINE: u32 = C_FOURS + 1u; // from row to row of them, in vec4<u32>: neighbours lie in different banks

{# Which 16 × 4 bytes this lane moves, of an operand whose storage runs across k. #}
{% macro positions(o) %}
{% for i in range(o.summed) %}
    let {{ o.x }}_block{{ i }} = {{ lane }} + {{ i * lanes }}u;
    let {{ o.x }}_line{{ i }} = {{ o.x }}_block{{ i }} / {{ chunks }}u * 4u;
    let {{ o.x }}_k{{ i }} = {{ o.x }}_block{{ i }} % {{ chunks }}u * 16u;
    let {{ o.x }}_panel{{ i }} = {{ o.x }}_line{{ i }} / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ o.x }}_line{{ i }} % {{ o.part }}u * {{ o.x | upper }}_LINE + {{ o.x }}_k{{ i }} / 16u;
    let {{ o.x }}_start{{ i }} = {{ o.base }} + {{ o.x }}_k{{ i }} * params.ld{{ o.x }} + {{ o.axis }}0 + {{ o.x }}_line{{ i }};
{% endfor %}
{% endmacro %}

{# For those that move the operand: all, or half of the subgroups. #}
{% macro movers(o) %}
{% if apart %}
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
{% call movers(o) %}
{% for i in range(o.loads) %}
{% set k = k0 if not (o.across and i % 4) else "(%s + %du)" % (k0, i % 4 * 4) %}
        {{ o.next }}{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i // 4 if o.across else i }} + {{ k }}{{ " * params.ld%s" % o.x if o.across }});
{% endfor %}
{% endcall %}
{% endfor %}
{% endmacro %}

{# Registers → workgroup memory, as it is multiplied, and what zero points need summed on the way. #}
{% macro put(k0) %}
{% for o in operands %}
{% call movers(o) %}
{% for i in range(o.loads) %}
{% set next, unit = "%s%d" % (o.next, i), i // 4 if o.across else i %}
{% if bytes.changed(o) %}
        {{ next }} = {{ bytes.ready(o, next, "%s + %s_k%d%s" % (k0, o.x, unit, " + %du" % (i % 4 * 4) if o.across and i % 4 else "")) }};
{% endif %}
{% if o.sums %}
        {{ o.x }}_sum{{ unit }} += {{ bytes.sum_of(o, next) }};
{% endif %}
{% endfor %}
{% if o.across %}
{% for i in range(o.summed) %}
{% for j in range(4) %}
        {{ o.x }}_tile[{{ o.x }}_panel{{ i }}][{{ o.x }}_put{{ i }}{{ " + %du * %s_LINE" % (j, o.x | upper) if j }}] = vec4u({% for q in range(4) %}{{ o.next }}{{ 4 * i + q }}.{{ "xyzw"[j] }}{{ ", " if q < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
{% else %}
{{ fragments.put([o]) }}
{%- endif %}
{% endcall %}
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
{% if apart %}
    let sharer = lane % {{ lanes }}u; // among those that move the same operand
{% endif %}
{{ fragments.plan_moves(operands | rejectattr("across") | list, lane, lanes) }}
{% for o in operands if o.across %}
{{ positions(o) }}
{%- endfor %}
{{ bytes.no_sums(operands) }}
{{ fragments.multiply_along_k(waiting if apart else operands, fetch, put) }}
{% if s.zero_a or s.zero_b %}
{{ bytes.share_sums(operands) }}
{%- else %}
    workgroupBarrier(); // everyone is done with the tiles before C takes their place
{% endif %}
{% for sharers in kernel.c_sharers(wide) %}
    let {{ "ab"[loop.index0] }}_panel = subgroup / {{ sharers }}u;
    let {{ "ab"[loop.index0] }}_place = subgroup % {{ sharers }}u * FM * C_LINE;
{% endfor %}
    let row = subgroup_row * SM;
    let four = subgroup_lane % C_FOURS; // of the columns, which this lane stores of every LANES / C_FOURS-th row
    let col = subgroup_col * SN + four * 4u;
{% set rows = kernel.sm // kernel.fm %}
{% for q in range(0, kernel.sn // kernel.fn, wide) %}
    let columns{{ q }} = {{ quantized.columns_of_tile("col + %du" % (q * kernel.fn)) }};
{% for r in range(rows) %}
{% set x = "ab"[(q // wide * rows + r) % 2] %}
{% set to, place = "%s_tile[%s_panel]" % (x, x), x ~ "_place" %}
{% for j in range(wide) %}
{{ fragments.store_fragment("acc_%d_%d" % (r, q + j), to, "%s + %du" % (place, j * kernel.fn // 4), "C_LINE") }}
{%- endfor %}
    workgroupBarrier(); // the fragments are complete before lanes read them; those before were read, elsewhere
    for (var i = subgroup_lane / C_FOURS; i < FM; i += LANES / C_FOURS) {
        store_tile4(row0, row + {{ r * kernel.fm }}u + i, columns{{ q }}, bitcast<vec4i>({{ to }}[{{ place }} + i * C_LINE + four]));
    }
{% endfor %}
{% endfor %}
}
