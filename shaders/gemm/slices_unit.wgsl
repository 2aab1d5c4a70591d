{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/slices.wgsl" as slices with context %}
{% set operands = [
  {"x": "a", "axis": "row", "length": "m", "tile": kernel.bm, "part": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": true, "loads": kernel.a_loads, "base": "0u", "vec": true},
  {"x": "b", "axis": "col", "length": "n", "tile": kernel.bn, "part": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": true, "loads": kernel.b_loads, "base": "0u", "vec": true},
] %}
{% set c_wide = kernel.c_wide %}
// slices_unit: C = A·B in float64 by exact products of 8-bit integers on the GPU's matrix units, SM × SN per subgroup.
//
// Storage: as of slices. Changed from there: a subgroup multiplies fragments of FM × FK and FK × FN bytes by one
// instruction, as quantized/matrix_unit does, and its sums pass through workgroup memory on their way to storage.
// Shapes: any. Needs subgroups of exactly LANES lanes.
// Workgroup memory: (BM + BN)·(BK + 16) bytes; fragments of sums go where the tiles were.
{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "runs along k") }}
{{ slices.sums() }}
const C_WIDE: u32 = {{ c_wide }}u; // fragments of sums that a subgroup stores side by side
const C_FOURS: u32 = C_WIDE * FN / 4u; // fours of columns in them
const C_LINE: u32 = C_FOURS + 1u; // from row to row of them, in vec4<u32>: neighbours lie in different banks

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
    let words = (params.k + BK - 1u) / BK * (BK / 4u); // of a line of a slice
{{ fragments.plan_moves(operands, starts=false) }}
{% for o in operands %}
    let {{ o.x }}_z = select(workgroup.z, 0u, params.{{ o.x }}_batch_stride == 0u);
{% for i in range(o.loads) %}
    // Lines beyond the last read it: nothing that comes of them is stored.
{% set line %}min({{ o.x }}_{{ o.axis }}{{ i }}, params.{{ o.length }} - 1u){% endset %}
{% set line_of_batch %}{{ o.x }}_z * params.{{ o.length }} + {{ line }}{% endset %}
    let {{ o.x }}_from{{ i }} = ({{ line_of_batch }}) * KEPT * words + {{ o.x }}_k{{ i }} / 4u;
    var {{ o.x }}_next{{ i }}: vec4u;
{% endfor %}
{% endfor %}
{% macro fetch(k0) %}
{% for o in operands %}
{% set at = k0 if o.x == "a" else "first + " ~ k0 %}
{% for i in range(o.loads) %}
                {{ o.x }}_next{{ i }} = {{ o.x }}_slices[({{ o.x }}_from{{ i }} + {{ at }}) / 4u];
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro put() %}
                if (step == 0u) {
{% for o in operands %}
{% for i in range(o.loads) %}
                    {{ o.x }}_next{{ i }} = magnitudes({{ o.x }}_next{{ i }});
{% endfor %}
{% endfor %}
                }
{{ fragments.put(operands) }}
{% endmacro %}
{% for sharers in kernel.c_sharers(c_wide) %}
    let {{ "ab"[loop.index0] }}_panel = subgroup / {{ sharers }}u;
    let {{ "ab"[loop.index0] }}_place = subgroup % {{ sharers }}u * FM * C_LINE;
{% endfor %}
    let four = subgroup_lane % C_FOURS; // of the columns, which this lane adds of every LANES / C_FOURS-th row
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN + four * 4u;
{% set rows = kernel.sm // kernel.fm %}
{% call slices.weights() %}
{{ fragments.declare_sums() }}
{{ fetch("chunk") }}
{{ put() }}
            workgroupBarrier(); // the first tiles are complete before anyone reads them
            for (var k0 = chunk + BK / 4u; k0 < end; k0 += BK / 4u) {
{{ fetch("k0") }}
{{ fragments.multiply(operands) }}
                workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ put() }}
                workgroupBarrier(); // the tiles are complete before anyone reads them
            }
{{ fragments.multiply(operands) }}
            workgroupBarrier(); // everyone is done with the tiles before sums take their place
{% for q in range(0, kernel.sn // kernel.fn, c_wide) %}
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
                let value = bitcast<vec4i>({{ to }}[{{ place }} + i * C_LINE + four]);
{% for c in range(4) %}
{% set row, col = "row + " ~ r * kernel.fm ~ "u + i", "col + " ~ (q * kernel.fn + c) ~ "u" %}
                keep(workgroup.z, {{ row }}, {{ col }}, value[{{ c }}], weight, fresh);
{% endfor %}
            }
{% endfor %}
{% endfor %}
            workgroupBarrier(); // the sums were read before the next tiles take their place
{% endcall %}
}
