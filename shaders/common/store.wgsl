{# Results into y, in the type that it is stored in. #}
{% import "common/stored.wgsl" as stored %}

{#
  y[place] ← an f32, or an i32 where that is y's type. What is packed shares a word, which other invocations may write,
  too.
#}
{% macro store(place, value) -%}
{% if s.out_dtype.packed -%}
{
    let place = {{ place }};
    {{ stored.put(s.out_dtype, "y", value, "(" ~ stored.shift(s.out_dtype) ~ ")") }}
}
{%- else -%}
{{ stored.store(s.out_dtype, "y", place, value) }}
{%- endif %}
{%- endmacro %}

{# Four neighbours, as y is bound where that is by fours. #}
{% macro as_out4(value) -%}
{{ stored.store4(s.out_dtype, value) }}
{%- endmacro %}
