{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{% set a_units, b_units = (kernel.a_loads // 4 if s.trans_a else kernel.a_loads), (kernel.b_loads if s.trans_b else kernel.b_loads // 4) %}
{% set operands = [
  dict(bytes.operands[0], tile=kernel.bm, part=kernel.sm, fragment=kernel.fm, kind="Left", along_k=true, line="a_line",
       summed=a_units, base="params.a_offset", vec=false),
  dict(bytes.operands[1], tile=kernel.bn, part=kernel.sn, fragment=kernel.fn, kind="Right", along_k=true, line="b_line",
       summed=b_units, base="params.b_offset", vec=false),
] %}
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
// Workgroup memory: (BM + BN)·(BK + 20) bytes; fragments of C go where the tile of A was.
{% include "common/header.wgsl" %}

{{ fragments.types() }}
{{ fragments.panels(operands, "runs along k") }}
{% if s.zero_a or s.zero_b %}
{{ quantized.dots() }}
{% endif %}
{{ bytes.loads(operands) }}
{{ quantized.store_tile4() }}
const C_WIDE: u32 = {{ wide }}u; // fragments of C that a subgroup stores side by side
const C_LINE: u32 = C_WIDE * FN / 4u + 1u; // from row to row of them, in vec4<u32>: neighbours lie in different banks

// The fragments that this subgroup left in workgroup memory, row by row → C, from the tile's (row, col) on
fn store_fragments(row0: u32, col0: u32, row: u32, col: u32, panel: u32, place: u32, lane: u32) {
    for (var i = lane; i < FM * C_WIDE * FN / 4u; i += LANES) {
        let y = i / (C_WIDE * FN / 4u);
        let x = i % (C_WIDE * FN / 4u);
        store_tile4(row0, col0, row + y, col + 4u * x, bitcast<vec4i>(a_tile[panel][place + y * C_LINE + x]));
    }
}

{# Which 16 × 4 bytes this lane moves, of an operand whose storage runs across k. #}
{% macro positions(o) %}
{% for i in range(o.summed) %}
    let {{ o.x }}_block{{ i }} = lane + {{ i * kernel.invocations }}u;
    let {{ o.x }}_line{{ i }} = {{ o.x }}_block{{ i }} / {{ chunks }}u * 4u;
    let {{ o.x }}_k{{ i }} = {{ o.x }}_block{{ i }} % {{ chunks }}u * 16u;
    let {{ o.x }}_panel{{ i }} = {{ o.x }}_line{{ i }} / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ o.x }}_line{{ i }} % {{ o.part }}u * {{ o.x | upper }}_LINE + {{ o.x }}_k{{ i }} / 16u;
    let {{ o.x }}_start{{ i }} = {{ o.base }} + {{ o.x }}_k{{ i }} * params.ld{{ o.x }} + {{ o.at }}0 + {{ o.x }}_line{{ i }};
{% endfor %}
{% endmacro %}

{# storage → registers, as it is stored #}
{% macro fetch(k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set k = k0 if not (o.across and i % 4) else "(%s + %du)" % (k0, i % 4 * 4) %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i // 4 if o.across else i }} + {{ k }}{{ " * params.ld%s" % o.x if o.across }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# Registers → workgroup memory, as it is multiplied, and what zero points need summed on the way. #}
{% macro put(k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set next, unit = "%s_next%d" % (o.x, i), i // 4 if o.across else i %}
{% if bytes.changed(o) %}
        {{ next }} = {{ bytes.ready(o, next, "%s + %s_k%d%s" % (k0, o.x, unit, " + %du" % (i % 4 * 4) if o.across and i % 4 else "")) }};
{% endif %}
{% if o.sums %}
        {{ o.x }}_sum{{ unit }} += {{ bytes.sum_of(o, i) }};
{% endif %}
{% endfor %}
{% if o.across %}
{% for i in range(o.summed) %}
{% for j in range(4) %}
        {{ o.x }}_tile[{{ o.x }}_panel{{ i }}][{{ o.x }}_put{{ i }}{{ " + %du * %s_LINE" % (j, o.x | upper) if j }}] = vec4u({% for q in range(4) %}{{ o.x }}_next{{ 4 * i + q }}.{{ "xyzw"[j] }}{{ ", " if q < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
{% else %}
{{ fragments.put([o]) }}
{%- endif %}
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
{{ tiles.own_tile() }}
{{ fragments.positions(operands | rejectattr("across") | list) }}
{% for o in operands if o.across %}
{{ positions(o) }}
{%- endfor %}
{{ bytes.no_sums(operands) }}
{{ fragments.product(operands, fetch, put) }}
{% if s.zero_a or s.zero_b %}
{{ bytes.share_sums(operands) }}
{%- else %}
    workgroupBarrier(); // everyone is done with the tiles before C takes their place
{% endif %}
    let row = subgroup_row * SM;
    let col = subgroup_col * SN;
    let panel = subgroup / {{ kernel.c_sharers }}u;
    let place = subgroup % {{ kernel.c_sharers }}u * FM * C_LINE;
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(0, kernel.sn // kernel.fn, wide) %}
{% for j in range(wide) %}
{{ fragments.store("acc_%d_%d" % (r, q + j), "a_tile[panel]", "place + %du" % (j * kernel.fn // 4), "C_LINE") }}
{%- endfor %}
    workgroupBarrier(); // the fragments are complete before lanes read them
    store_fragments(row0, col0, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, panel, place, subgroup_lane);
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endfor %}
{% endfor %}
}
