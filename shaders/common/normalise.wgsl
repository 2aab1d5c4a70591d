{# Shared by the normalisations along rows: the statistics of a row, and the scaling of its elements. #}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/matrix.wgsl" as matrix with context %}

{# Functions of four elements of a row, `spread` apart if they are not contiguous. #}
{% macro functions(spread) %}
{% if s.function != "softmax" %}
fn square4(v: {{ vec4r }}) -> {{ vec4r }} {
    return v * v;
}

{% endif %}
{% if s.function == "layer_norm" and s.edge %}
// Squared distances from the mean; 0 beyond the end
fn deviation4(v: {{ vec4r }}, k: u32, mean: {{ real }}) -> {{ vec4r }} {
{% set places %}vec4u(k){% if not s.vec %} + vec4u(0u, 1u, 2u, 3u) * {{ spread }}u{% endif %}{% endset %}
    return select(square4(v - mean), {{ vec4r }}(), {{ places }} >= vec4u(params.length));
}

{% endif %}
{% endmacro %}

{% macro loaded(u, k, end, inside) -%}
{{ "held" ~ u if s.held else loads.element4(u, k, end, inside) }}
{%- endmacro %}

{% macro squared(u, k, end, inside) -%}
square4({{ loaded(u, k, end, inside) }})
{%- endmacro %}

{% macro deviating(u, k, end, inside) -%}
{% if s.edge and not inside -%}
deviation4({{ loaded(u, k, end, inside) }}, {{ k }}, mean)
{%- else -%}
square4({{ loaded(u, k, end, inside) }} - mean)
{%- endif %}
{%- endmacro %}

{# all ← the reduction of x[begin..end] of a row by `lanes` invocations; `whole` combines their partial results. #}
{% macro found(lanes, load, begin, end, whole, tag="LOADED", acc="ACC") %}
{{ invocation.walk(lanes, begin, end, load, s.held, tag, acc) }}
    all = {{ whole }};
{% endmacro %}

{#
  The statistics of x[begin..end]: for layer norm the mean and, from a second pass, `all`, the sum of squared distances
  from it; for RMS norm `all` is the sum of squares, for softmax a Part.
#}
{% macro statistics(lanes, begin="0u", end="params.length", count="params.length", whole=workgroup.whole()) %}
    var all: {{ parts.part() }};
{% if s.function == "layer_norm" %}
    {
{{ found(lanes, loaded, begin, end, whole) }}
    }
    let mean = all / {{ real }}({{ count }});
{{ again() }}
{{ found(lanes, deviating, begin, end, whole, "SQUARED", "SQUARES") }}
{% elif s.function == "rms_norm" %}
{{ found(lanes, squared, begin, end, whole, "SQUARED", "SQUARES") }}
{% else %}
{{ found(lanes, loaded, begin, end, whole) }}
{% endif %}
{% endmacro %}

{% macro again() %}
{% if kernel.shared_parts %}
    workgroupBarrier(); // the mean is read before its memory is reused
{% endif %}
{% endmacro %}

{# The factor of a row's elements. #}
{% macro scale() %}
{% if s.function == "softmax" %}
    // An infinite element makes the whole row NaN, as in NumPy
{% if elements.native %}
    let scale = select(1.0 / all.sum, sqrt(params.outside), all.sum > MOST); // √-∞ is NaN
{% else %}
    let scale = bitcast<{{ real }}>(select(bitcast<u32>(1.0 / all.sum), 0x7fc00000u, all.sum > MOST));
{% endif %}
{% if s.held and kernel.name == "rows" %}
    let factors = {{ exponential() }}(four.top - all.top) * scale; // of the powers, which are relative to four.top
{% endif %}
{% else %}
{% set square = "all / " ~ real ~ "(params.length) + params.epsilon" %}
    let scale = {{ "1.0 / sqrt(" if elements.native else "inverseSqrt(" }}{{ square }});
{% endif %}
{% endmacro %}

{% macro exponential() -%}
{{ "power4" if elements.native else "exp" }}
{%- endmacro %}

{# The results of vec4 number u of the step that begins at k. #}
{% macro value(u, k, inside="") -%}
{% set x = loaded(u, k, "params.length", inside) %}
{% if s.function == "softmax" -%}
{% if s.held %}powers{{ u }} * factors{% else %}{{ exponential() }}({{ x }} - all.top) * scale{% endif %}
{%- else -%}
{{ "(" ~ x ~ " - mean)" if s.function == "layer_norm" else x }} * scale
{%- endif %}
{%- endmacro %}
