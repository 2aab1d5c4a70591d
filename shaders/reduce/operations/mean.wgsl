{# The mean: the sum, divided by the number of elements. #}
{% import "reduce/operations/sum.wgsl" as sum with context %}
{% set fields, types, at_once, yields = sum.fields, sum.types, sum.at_once, sum.yields %}
{% set functions, lift, in_subgroup = sum.functions, sum.lift, sum.in_subgroup %}

{% macro result() %}
    return part / {{ real }}(params.length);
{% endmacro %}
