{# The product. #}
{% import "reduce/operations/sum.wgsl" as sum with context %}
{% set fields, scalar, at_once = sum.fields, sum.scalar, sum.at_once %}
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
