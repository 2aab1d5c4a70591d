{# Storing the sums of an invocation to C. #}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/tiles.wgsl" as tiles with context %}

{# A vec4 of sums → C #}
{% macro store_vec4(r, j) -%}
store_c4(c_base, {{ layout.first_row(r // 4) }} + {{ r % 4 }}u, {{ layout.first_column(j) }}, acc_{{ r }}_{{ j }});
{%- endmacro %}

{#
  If C is not bound by vec4, sums are staged in the tile of B, one row of every fragment at a time, so that neighbouring
  invocations store consecutive elements of C. Stores of single elements 16 bytes apart cost four times the traffic. The
  tile must have a line for each of the WY rows, and consist of arrays: elements of a vec4 are not written separately.
#}
{% set staged = not s.vec_c and not tiles.operands[1].vec4_tile and kernel.wy <= kernel.bk %}

{# Row `r` of each invocation's sums → the tile of B: one line of the tile for each ly. #}
{% macro stage_rows(r, slice="") %}
{% for j in range(kernel.tn // 4) %}
{% for c in range(4) %}
    {{ tiles.vec4_component("b_tile" ~ slice ~ "[ly]", layout.col_vec4(j), c) }} = acc_{{ r }}_{{ j }}.{{ "xyzw"[c] }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# The rows that stage_rows() wrote → C, by all invocations of the workgroup. #}
{% macro store_staged_rows(r, slice="") %}
{% set elements = kernel.wy * kernel.bn %}
{% for first in range(0, elements, kernel.invocations) %}
    {
        let at = local_index + {{ first }}u;
        let line = at / BN;
        let col = at % BN;
        let value = {{ tiles.tile_element("b_tile" ~ slice ~ "[line]", "col") }};
{% set store %}store_c(c_base, {{ layout.first_row(r // 4, "line") }} + {{ r % 4 }}u, col0 + col, value);{% endset %}
{% if first + kernel.invocations > elements %}
        if (line < WY) {
            {{ store }}
        }
{% else %}
        {{ store }}
{% endif %}
    }
{% endfor %}
{% endmacro %}

{# The sums → C, through the tile of B if `staged`. #}
{% macro store_sums(staged=false) %}
{% for r in range(kernel.tm) %}
{% if staged %}
{% set read = "the tile" if loop.first else "the rows" %}
    workgroupBarrier(); // everyone is done with {{ read }} before they are overwritten
{{ stage_rows(r) }}
    workgroupBarrier(); // the rows are complete before anyone reads them
{{ store_staged_rows(r) }}
{% else %}
{% for j in range(kernel.tn // 4) %}
    {{ store_vec4(r, j) }}
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}
