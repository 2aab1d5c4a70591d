{# The sum. #}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% set fields, types, at_once, yields = [], [elements.number()], false, elements.number() %}

{% macro functions(four, f, u, i) %}
fn none{{ four }}() -> {{ f }} {
    return {{ f }}();
}

fn merge{{ four }}(a: {{ f }}, b: {{ f }}) -> {{ f }} {
    return a + b;
}

{% endmacro %}

{% macro lift(four, x, place) -%}
{{ x }}
{%- endmacro %}

{% macro result() %}
    return part;
{% endmacro %}

{% macro in_subgroup() %}
    return subgroupAdd(own);
{% endmacro %}
