{# The position of the smallest element, the first of equal ones. #}
{% set falls, positions = true, true %}
{% import "common/reduce/keys.wgsl" as keys with context %}
{% set fields, scalar, at_once = keys.fields, "u32", false %}
{% set functions, lift, result, in_subgroup = keys.functions, keys.lift, keys.result, keys.in_subgroup %}
