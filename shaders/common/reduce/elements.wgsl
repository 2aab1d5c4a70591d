{#
  The elements that a reduction reads: f32; i32, whose sums and products wrap around; f64, for products, logsumexp and
  normalisations; or doubles, for maxima, minima and positions: vec2u of the low and the high word (keys.wgsl).
#}
{% set integers = s.dtype.wgsl == "i32" %}
{% set doubles = s.dtype.wgsl == "f64" and not s.native %}
{% set native = s.dtype.wgsl == "f64" and s.native %}

{# The type of an element, and of four. #}
{% macro number(four="") -%}
{% set types = ("i32", "vec4i") if integers else ("vec2u", "Doubles") if doubles else (real, vec4r) %}
{{ types[1 if four else 0] }}
{%- endmacro %}

{# The constructor of number("4") from four elements. #}
{% macro by_fours() -%}
{{ "doubles" if doubles else number("4") }}
{%- endmacro %}

{# The identity of the operation, used beyond the end. #}
{% macro outside() -%}
{{ s.outside if integers else "params.outside" }}
{%- endmacro %}

{# A comment: what load4() returns beyond an end. #}
{% macro beyond(end) -%}
{% if s.edge %}; {{ "the last element" if doubles else outside() }} beyond {{ end }}{% endif %}
{%- endmacro %}

{% macro declarations() %}
{% if doubles %}
struct Doubles {
    low: vec4u,
    high: vec4u,
}

fn doubles(a: vec2u, b: vec2u, c: vec2u, d: vec2u) -> Doubles {
    return Doubles(vec4u(a.x, b.x, c.x, d.x), vec4u(a.y, b.y, c.y, d.y));
}

{% endif %}
{% endmacro %}
