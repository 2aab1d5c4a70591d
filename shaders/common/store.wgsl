{# Stores to the result y, converted to its element type. #}
{% import "common/stored.wgsl" as stored with context %}

{#
  y[place] ← an f32, or an i32 if that is y's type. Packed elements are written by atomics, since other invocations may
  write to the same word.
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

{# Four consecutive results as one element of y's binding, if y is bound by vec4. #}
{% macro as_out4(value) -%}
{{ stored.store4(s.out_dtype, value) }}
{%- endmacro %}
