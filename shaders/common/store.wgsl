{# Results into y, in the type that it is stored in. #}

{# y[place] ← an f32, or an i32 where that is y's type. Two bfloat16 share a word, which other invocations may write, too. #}
{% macro store(place, value) -%}
{% if s.out_dtype == "bf16" -%}
{
    let place = {{ place }};
    atomicAnd(&y[place / 2u], 0xffff0000u >> (place % 2u * 16u));
    atomicOr(&y[place / 2u], bf16_bits({{ value }}) << (place % 2u * 16u));
}
{%- else -%}
y[{{ place }}] = {{ "f16(%s)" % value if s.out_dtype == "f16" else value }};
{%- endif %}
{%- endmacro %}

{# Four neighbours, as y is bound where that is by fours. #}
{% macro as_out4(value) -%}
{{ {"f32": "%s", "f16": "vec4<f16>(%s)", "bf16": "bf16_words(%s)"}[s.out_dtype] % value }}
{%- endmacro %}
