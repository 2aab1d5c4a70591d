{% set what = "partial results of" if kernel.writes == "partials" else "y = " ~ s.operation ~ " over" %}
// {{ kernel.name }}: {{ what }} k of x[i, k, j], invocations along j.
//
// Storage: x[i, k, j] with a stride per axis;
// {{ "partials[split][i][j]" if kernel.writes == "partials" else "y[i, j] is dense" }}.
// Changed from tree: an invocation reduces four j and every WY-th k, so that neighbouring invocations read neighbouring
// elements although the reduced axis is not the last. If WY is 1, there are no partial results to combine.
{#
  Few columns: narrow strips of many rows, 369 columns of 488 elements 7.1 µs → 4.1 in one dispatch, instead of two
  (H200).
#}
// Edges: columns are padded with the identity. Workgroup memory: four partial results per
// invocation, or none.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/columns.wgsl" as columns with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ columns.functions() }}

@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(
{{ columns.builtins() }}
) {
    //# inner
{{ columns.strip() }}
{{ workgroup.split() }}
{{ columns.walk("begin", "end") }}
    //# end
{% if kernel.wy > 1 %}
{{ columns.combine() }}
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
        partials[workgroup.z * params.outer * params.inner + row] = {{ parts.pack("part") }};
{% else %}
        {{ out.store("params.y_offset + row", "result(part)") }}
{% endif %}
    }
{% endfor %}
}
