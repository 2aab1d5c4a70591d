{# The largest element. #}
{% set falls, positions = false, false %}
{% import "common/reduce/keys.wgsl" as keys with context %}
{% set fields, types, at_once, yields = keys.fields, keys.types, false, keys.yields %}
{% set functions, lift, result, in_subgroup = keys.functions, keys.lift, keys.result, keys.in_subgroup %}
