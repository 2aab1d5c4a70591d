{# The largest element. #}
{% set falls, positions = false, false %}
{% import "common/reduce/keys.wgsl" as keys with context %}
{% set fields, scalar, at_once = keys.fields, "u32", false %}
{% set functions, lift, result, in_subgroup = keys.functions, keys.lift, keys.result, keys.in_subgroup %}
