// softmax: scores to weights, in place: the second dispatch of three_calls.
//
// Storage: the scores (entry, head, query, key) are dense, in f32.
// A workgroup has a row: it finds the largest score, then the sum of weights, and writes them divided by it.
// Edges: none. Workgroup memory: LANES·4 bytes, for more than one lane.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

{{ attention.constants() }}
{{ attention.range() }}
{% if kernel.lanes > 1 %}
var<workgroup> parts: array<f32, LANES>;

{% endif %}
{# all ← own of all invocations, combined. #}
{% macro combined(own, expression) %}
{% if kernel.lanes > 1 %}
    parts[lane] = {{ own }};
{% set half = namespace(size=kernel.lanes // 2) %}
{% for _ in range(12) if half.size %}
{% set done = "the parts are there" if loop.first else "the halves of " ~ own ~ " are merged" %}
    workgroupBarrier(); // {{ done }} before anyone reads them
    if (lane < {{ half.size }}u) {
        let a = parts[lane];
        let b = parts[lane + {{ half.size }}u];
        parts[lane] = {{ expression }};
    }
{% set half.size = half.size // 2 %}
{% endfor %}
    workgroupBarrier(); // the result is there
    let all_{{ own }} = parts[0];
{% else %}
    let all_{{ own }} = {{ own }};
{% endif %}
{% endmacro %}
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ attention.tile_of("1u") }}
    let line = (pair * params.queries + start) * params.keys;
    let seen = keys_of(entry, start);
    var top = FLOOR;
    for (var key = seen.x + lane; key < seen.y; key += LANES) {
        top = max(top, scores[line + key]);
    }
{{ combined("top", "max(a, b)") }}
{% if kernel.lanes > 1 %}
    workgroupBarrier(); // everyone has it before the memory is reused
{% endif %}
    var sum = 0.0;
    for (var key = seen.x + lane; key < seen.y; key += LANES) {
        sum += exp2(scores[line + key] - all_top);
    }
{{ combined("sum", "a + b") }}
    let scale = select(1.0 / all_sum, 0.0, all_sum == 0.0);
{% set watched = "pair * params.queries + start, dbg_col(0u, params.value_width)" %}
    dbg(TOP, {{ watched }}, params.keys - 1u, all_top);
    dbg(SUM, {{ watched }}, params.keys - 1u, all_sum);
    for (var key = seen.x + lane; key < seen.y; key += LANES) {
        let weight = exp2(scores[line + key] - all_top);
        dbg(WEIGHT, {{ watched }}, key, weight);
        scores[line + key] = weight * scale;
    }
}
