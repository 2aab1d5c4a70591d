{# Loading the elements of a row. #}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% import "common/matrix.wgsl" as matrix with context %}

{# The index of the first element of a row. #}
{% macro base() -%}
{% if s.dense -%}
params.x_offset + row * params.outer_stride
{%- else -%}
params.x_offset + row / params.inner * params.outer_stride + row % params.inner * params.inner_stride
{%- endif %}
{%- endmacro %}

{# The index of the first element of a row of the second array, if there is one. #}
{% macro other_base(row="row") %}
{% if s.other and s.dense %}
    let other_base = params.other_offset + {{ row }} * params.other_outer_stride;
{% elif s.other %}
    let other_i = {{ row }} / params.inner;
    let other_j = {{ row }} % params.inner;
    let other_base = params.other_offset + other_i * params.other_outer_stride + other_j * params.other_inner_stride;
{% endif %}
{% endmacro %}

{# x[k] of a row, for the stages that load single elements. #}
{% macro element() -%}
{{ matrix.element("x", "base + k * params.stride") }}
{%- endmacro %}

{#
  Four elements of a row, `spread` apart if x is bound as single elements, so that neighbouring invocations read
  neighbouring elements. Beyond `end` the last element is loaded, and replaced by the identity; without a branch, the
  loads are in flight at once. Doubles are not replaced: the last element again changes neither a maximum nor the
  position of the first one. `inside4` is for elements that are known to be before the end.
#}
{% macro load4(spread) %}
{% if s.edge and s.vec %}
// Elements k, k + 1, … of a row{{ elements.beyond("its end") }}
fn load4(base: u32, k: u32, end: u32) -> {{ elements.number("4") }} {
{% set within = matrix.as_vec4f("x[(base + min(k, end - 4u)) / 4u]") %}
    return select({{ within }}, {{ elements.number("4") }}({{ elements.outside() }}), k >= end);
}

{% elif s.edge %}
// Elements k, k + {{ spread }}, … of a row{{ elements.beyond("its end") }}
fn load4(base: u32, k: u32, end: u32) -> {{ elements.number("4") }} {
    let at = vec4u(k) + vec4u(0u, 1u, 2u, 3u) * {{ spread }}u;
{% if elements.doubles %}
    return gather4(base, min(at, vec4u(end - 1u)));
{% else %}
    let v = gather4(base, min(at, vec4u(end - 1u)));
    return select(v, {{ elements.number("4") }}({{ elements.outside() }}), at >= vec4u(end));
{% endif %}
}

{% endif %}
{% if not s.vec %}
fn gather4(base: u32, at: vec4u) -> {{ elements.number("4") }} {
    let place = vec4u(base) + at{% if not s.dense %} * params.stride{% endif %};
    return {{ elements.by_fours() }}(
{% for c in "xyzw" %}
        {{ matrix.element("x", "place." ~ c) }},
{% endfor %}
    );
}

{% endif %}
// Elements k, k + {{ 1 if s.vec else spread }}, … of a row, all before its end
fn inside4(base: u32, k: u32) -> {{ elements.number("4") }} {
{% if s.vec %}
    return {{ matrix.as_vec4f("x[(base + k) / 4u]") }};
{% else %}
    return gather4(base, vec4u(k) + vec4u(0u, 1u, 2u, 3u) * {{ spread }}u);
{% endif %}
}

{% endmacro %}

{# The first element of an invocation in a step of its workgroup. #}
{% macro first(lanes) -%}
{{ "lane * 4u" if s.vec and lanes > 1 else "lane" if lanes > 1 else "0u" }}
{%- endmacro %}

{% macro element4(u, k, end, inside) -%}
{{ "inside4(base, " ~ k ~ ")" if inside or not s.edge else "load4(base, " ~ k ~ ", " ~ end ~ ")" }}
{%- endmacro %}

{# Whether vec4 number u is inside each row that a single step covers. #}
{% macro inside(u) -%}
{{ "inside" if s.full and u < kernel.unroll - 1 }}
{%- endmacro %}
