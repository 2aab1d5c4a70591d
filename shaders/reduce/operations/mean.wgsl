{# The mean: the sum, divided by the number of elements. #}
{% import "reduce/operations/sum.wgsl" as sum with context %}
{% set fields, scalar, at_once = sum.fields, sum.scalar, sum.at_once %}
{% set functions, lift, in_subgroup = sum.functions, sum.lift, sum.in_subgroup %}

{% macro result() %}
    return part / {{ real }}(params.length);
{% endmacro %}
