{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% import "common/slices.wgsl" as slices with context %}
{% set operands = [
  {"x": "a", "axis": "row", "length": "m", "tile": kernel.bm, "subtile": kernel.sm, "fragment": kernel.fm, "kind":
  "Left",
   "along_k": true, "loads": kernel.a_loads, "base": "0u", "vec": true},
  {"x": "b", "axis": "col", "length": "n", "tile": kernel.bn, "subtile": kernel.sn, "fragment": kernel.fn, "kind":
  "Right",
   "along_k": true, "loads": kernel.b_loads, "base": "0u", "vec": true},
] %}
{% set c_wide = kernel.c_wide %}
// slices_unit: C = A·B in float64 by exact products of 8-bit integers on the GPU's matrix units, SM × SN per subgroup.
//
// Storage: as in slices.
// Changed from slices: one instruction of a subgroup multiplies fragments of FM × FK and FK × FN bytes, as in
// quantized/matrix_unit; its sums are written to workgroup memory, from which lanes add them to storage.
// Needs subgroups of exactly LANES lanes.
// Workgroup memory: (BM + BN)·(BK + 16) bytes; fragments of sums overwrite the tiles.
{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels(operands, "runs along k") }}
{{ slices.sum_functions() }}
const C_WIDE: u32 = {{ c_wide }}u; // adjacent fragments of sums that a subgroup stores at once
const C_FOURS: u32 = C_WIDE * FN / 4u; // vec4 in a row of these
const C_LINE: u32 = C_FOURS + 1u; // row stride of these, in vec4<u32>, padded against bank conflicts

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ layout.assign_tile() }}
    let words = (params.k + BK - 1u) / BK * (BK / 4u); // of a line of a slice
{{ fragments.plan_loads(operands, starts=false) }}
{% for o in operands %}
    let {{ o.x }}_z = select(workgroup.z, 0u, params.{{ o.x }}_batch_stride == 0u);
{% for i in range(o.loads) %}
    // Lines beyond the last are loads of the last one; their sums are not stored.
{% set line %}min({{ o.x }}_{{ o.axis }}{{ i }}, params.{{ o.length }} - 1u){% endset %}
{% set line_of_batch %}{{ o.x }}_z * params.{{ o.length }} + {{ line }}{% endset %}
    let {{ o.x }}_start{{ i }} = ({{ line_of_batch }}) * KEPT * words + {{ o.x }}_k{{ i }} / 4u;
    var {{ o.x }}_next{{ i }}: vec4u;
{% endfor %}
{% endfor %}
{% macro load_next(k0) %}
{% for o in operands %}
{% set at = k0 if o.x == "a" else "first + " ~ k0 %}
{% for i in range(o.loads) %}
                {{ o.x }}_next{{ i }} = {{ o.x }}_slices[({{ o.x }}_start{{ i }} + {{ at }}) / 4u];
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro write_tiles() %}
                if (step == 0u) {
{% for o in operands %}
{% for i in range(o.loads) %}
                    {{ o.x }}_next{{ i }} = magnitudes({{ o.x }}_next{{ i }});
{% endfor %}
{% endfor %}
                }
{{ fragments.write_tiles(operands) }}
{% endmacro %}
{% for sharers in kernel.c_sharers(c_wide) %}
    let {{ "ab"[loop.index0] }}_panel = subgroup / {{ sharers }}u;
    let {{ "ab"[loop.index0] }}_place = subgroup % {{ sharers }}u * FM * C_LINE;
{% endfor %}
    let four = subgroup_lane % C_FOURS; // this lane adds the vec4 `four` of every (LANES / C_FOURS)-th row
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN + four * 4u;
{% set rows = kernel.sm // kernel.fm %}
{% call slices.for_each_chunk() %}
{{ fragments.declare_sums() }}
{{ load_next("chunk") }}
{{ write_tiles() }}
            workgroupBarrier(); // the first tiles are complete before anyone reads them
            for (var k0 = chunk + BK / 4u; k0 < end; k0 += BK / 4u) {
{{ load_next("k0") }}
{{ fragments.multiply_tiles(operands) }}
                workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ write_tiles() }}
                workgroupBarrier(); // the tiles are complete before anyone reads them
            }
{{ fragments.multiply_tiles(operands) }}
            workgroupBarrier(); // everyone is done with the tiles before sums overwrite them
{% for q in range(0, kernel.sn // kernel.fn, c_wide) %}
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
                let value = bitcast<vec4i>({{ to }}[{{ place }} + i * C_LINE + four]);
{% for c in range(4) %}
{% set row, col = "row + " ~ r * kernel.fm ~ "u + i", "col + " ~ (q * kernel.fn + c) ~ "u" %}
                keep(workgroup.z, {{ row }}, {{ col }}, value[{{ c }}], weight, fresh);
{% endfor %}
            }
{% endfor %}
{% endfor %}
            workgroupBarrier(); // the sums are read before the next tiles overwrite them
{% endcall %}
}
