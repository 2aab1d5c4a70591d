{# The product. #}
{% import "reduce/operations/sum.wgsl" as sum with context %}
{% set fields, types, at_once, yields = sum.fields, sum.types, sum.at_once, sum.yields %}
{% set lift, result = sum.lift, sum.result %}

{% macro functions(four, f, u, i) %}
fn none{{ four }}() -> {{ f }} {
    return {{ f }}(1);
}

fn merge{{ four }}(a: {{ f }}, b: {{ f }}) -> {{ f }} {
    return a * b;
}

{% endmacro %}

{% macro in_subgroup() %}
    return subgroupMul(own);
{% endmacro %}
