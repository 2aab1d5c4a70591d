{% set what = "the parts of" if kernel.writes == "partials" else "y = " ~ s.operation ~ " over" %}
// {{ kernel.name }}: {{ what }} k of x[i, k, j], lanes along j.
//
// Storage: x[i, k, j] with a stride each; bound as array<vec4> where j is contiguous and all lengths are multiples of
// 4; {{ "partials[split][i][j]" if kernel.writes == "partials" else "y[i, j] is dense" }}.
// Changed from tree: an invocation owns four neighbouring j and every WY-th k, so that neighbouring lanes read
// neighbours in memory although the reduced axis is not the last. Where WY is 1 nothing is left to bring together.
// Shapes: any; beyond the end of a column stands what changes nothing. Workgroup memory: four parts per invocation, or
// none.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/columns.wgsl" as columns with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ columns.functions() }}

@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(
{{ columns.builtins() }}
) {
{{ columns.strip() }}
{{ reduce.split() }}
{{ columns.walk("begin", "end") }}
{% if kernel.wy > 1 %}
{{ columns.meet() }}
    if (local.y > 0u) {
        return;
    }
    let all = parts[0][local.x];
{% else %}
    let all = own;
{% endif %}
{% for c in range(4) %}
    if (j + {{ c }}u * SPREAD < params.inner) {
        let part = component(all, {{ c }}u);
        let row = i * params.inner + j + {{ c }}u * SPREAD;
{% if kernel.writes == "partials" %}
        partials[workgroup.z * params.outer * params.inner + row] = {{ reduce.pack("part") }};
{% else %}
        {{ out.store("params.y_offset + row", "result(part)") }}
{% endif %}
    }
{% endfor %}
}
