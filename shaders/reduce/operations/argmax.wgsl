{# The position of the largest element, the first of equal ones. #}
{% set falls, positions = false, true %}
{% import "common/reduce/keys.wgsl" as keys with context %}
{% set fields, types, at_once, yields = keys.fields, keys.types, false, keys.yields %}
{% set functions, lift, result, in_subgroup = keys.functions, keys.lift, keys.result, keys.in_subgroup %}
