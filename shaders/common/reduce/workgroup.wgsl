{# A row per workgroup, or a part of one: its place, and the functions that combine what its invocations reduced. #}
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "reduce/operations/" ~ s.operation ~ ".wgsl" as operation with context %}

{# Functions and workgroup memory that combine the partial results of a workgroup. #}
{% macro combined(lanes) %}
{% if kernel.combine == "tree" and lanes > 1 %}
//# combine
var<workgroup> parts: array<{{ parts.part() }}, {{ lanes }}>;

// The result of the whole workgroup, in every invocation
fn combined(own: {{ parts.part() }}, lane: u32) -> {{ parts.part() }} {
    parts[lane] = own;
{% set half = namespace(size=lanes // 2) %}
{% for _ in range(12) if half.size %}
{% set done = "all parts are there" if loop.first else "the halves are merged" %}
    workgroupBarrier(); // {{ done }} before anyone reads them
    if (lane < {{ half.size }}u) {
        parts[lane] = merge(parts[lane], parts[lane + {{ half.size }}u]);
    }
{% set half.size = half.size // 2 %}
{% endfor %}
    workgroupBarrier(); // the result is written before it is read
    return parts[0];
}
//# end
{% elif kernel.combine == "tree" %}
fn combined(own: {{ parts.part() }}, lane: u32) -> {{ parts.part() }} {
    return own;
}
{% else %}
//# registers
// The result of a subgroup, in each of its lanes
fn combined_in_subgroup(own: {{ parts.part() }}) -> {{ parts.part() }} {
{{ operation.in_subgroup() }}
}
//# end

{% if kernel.combine == "subgroup" %}
var<workgroup> parts: array<{{ parts.part() }}, {{ kernel.shared_parts }}>;

//# combine
// The result of the whole workgroup, in every invocation; subgroups have `size` lanes
fn combined(own: {{ parts.part() }}, lane: u32, size: u32) -> {{ parts.part() }} {
    let subgroup_part = combined_in_subgroup(own);
    if (lane % size == 0u) {
        parts[lane / size] = subgroup_part;
    }
    workgroupBarrier(); // the parts of all subgroups are written before they are read
    var others = none();
    for (var i = lane % size; i < ({{ lanes }}u + size - 1u) / size; i += size) {
        others = merge(others, parts[i]);
    }
    return combined_in_subgroup(others);
}
//# end
{% endif %}
{% endif %}
{% endmacro %}

{# The call of these functions in main(). #}
{% macro whole() -%}
{% set calls = {
  "tree": "combined(own, lane)", "subgroup": "combined(own, lane, size)", "alone": "combined_in_subgroup(own)",
} %}
{{ calls[kernel.combine] }}
{%- endmacro %}

{% macro builtins() %}
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
{% if kernel.combine == "subgroup" %}
    @builtin(subgroup_size) size: u32,
{% endif %}
{%- endmacro %}

{# The row of a workgroup; surplus workgroups of a folded grid return at once. #}
{% macro row() %}
    let row = workgroup.x + workgroup.y * grid.x;
    if (row >= params.outer * params.inner) {
        return;
    }
{% endmacro %}

{#
  Begin and end of the part of the reduced axis that belongs to workgroup.z: a multiple of the step, except for the
  last.
#}
{% macro split() %}
    let chunk = (params.length - 1u) / {{ kernel.step * kernel.splits }}u * {{ kernel.step }}u + {{ kernel.step }}u;
    let begin = workgroup.z * chunk;
    let end = min(begin + chunk, params.length);
{% endmacro %}
