{#
  Sums of the rows of A and of the columns of B, which zero points need, of 8-bit integers. `o` is an operand of
  byte_tiles.wgsl.
#}

{# An invocation sums the bytes that it loads of each row of A or column of B (a vec4 for four of these). #}
{% macro declare_line_sums(operands) %}
{% for o in operands if o.sums %}
{% for i in range(o.summed) %}
    var {{ o.x }}_sum{{ i }} = {{ "vec4i()" if o.across_k else "0" }};
{% endfor %}
{% endfor %}
{% for o in operands if o.sums %}
    for (var i = local_index; i < {{ o.tile }}; i += {{ kernel.invocations }}u) {
        // WGSL guarantees zeros, but lavapipe (Mesa 22.3.6) clears them for the first workgroup only.
        atomicStore(&{{ o.x }}_sums[i], 0);
    }
{% endfor %}
{% endmacro %}

{# The sum of the bytes of four words: one per word if these are of four rows or columns, otherwise one for all. #}
{% macro sum_of_bytes(o, words) -%}
{% if o.across_k -%}
dots(0x01010101u, {{ words }})
{%- else -%}
dot(dots(0x01010101u, {{ words }}), vec4i(1))
{%- endif %}
{%- endmacro %}

{# The invocations' sums of bytes → workgroup memory, added for each row of A or column of B. #}
{% macro add_line_sums(operands) %}
{% if s.zero_a or s.zero_b %}
{% for o in operands if o.sums %}
{% for i in range(o.summed) %}
{% set line = o.line ~ i %}
{% if o.across_k %}
{% for j in range(4) %}
    atomicAdd(&{{ o.x }}_sums[{{ line }} + {{ j }}u], {{ o.x }}_sum{{ i }}[{{ j }}]);
{% endfor %}
{% else %}
    atomicAdd(&{{ o.x }}_sums[{{ line }}], {{ o.x }}_sum{{ i }});
{% endif %}
{% endfor %}
{% endfor %}
    workgroupBarrier(); // the sums are complete before anyone reads them
{% endif %}
{% endmacro %}
