// {{ kernel.name }}: {{ "the parts of" if kernel.writes == "partials" else "y = " ~ s.operation ~ " over" }} k of x[i, k, j], lanes along j.
//
// Storage: x[i, k, j] with a stride each; bound as array<vec4> where j is contiguous and all lengths are multiples of 4;
// {{ "partials[split][i][j]" if kernel.writes == "partials" else "y[i, j] is dense" }}.
// Changed from tree: an invocation owns four neighbouring j and every WY-th k, so that neighbouring lanes read neighbours in
// memory although the reduced axis is not the last. Where WY is 1 nothing is left to bring together.
// Shapes: any; beyond the end of a column stands what changes nothing. Workgroup memory: four parts per invocation, or none.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

const SPREAD: u32 = {{ "1u" if s.vec else "WX" }}; // distance between the four j of an invocation

{{ reduce.functions() }}
// x[k, j], x[k, j + SPREAD] …{% if s.edge %}; params.outside beyond the end of a column{% endif %}

fn load4(base: u32, k: u32, j: u32, end: u32) -> vec4f {
{% set row = "min(k, end - 1u)" if s.edge else "k" %}
{% if s.vec %}
{% set place = "min(j, params.inner - 4u)" if s.edge_j else "j" %}
    let v = {{ matrix.as_vec4f("x[(base + %s * params.stride + %s) / 4u]" % (row, place)) }};
{% else %}
    let columns = vec4u(j) + vec4u(0u, 1u, 2u, 3u) * SPREAD;
    let place = vec4u(base + {{ row }} * params.stride) + {{ "min(columns, vec4u(params.inner - 1u))" if s.edge_j else "columns" }} * params.inner_stride;
    let v = vec4f(
{% for c in "xyzw" %}
        {{ matrix.element("x", "place.%s" % c) }},
{% endfor %}
    );
{% endif %}
    return {{ "select(v, vec4f(params.outside), k >= end)" if s.edge else "v" }};
}

{% if kernel.wy > 1 %}
var<workgroup> parts: array<array<{{ reduce.part("4") }}, WX>, WY>;

{% endif %}
@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
    let strip = workgroup.x + workgroup.y * grid.x;
    let strips = (params.inner + WX * 4u - 1u) / (WX * 4u);
    let i = strip / strips;
    if (i >= params.outer) {
        return;
    }
    let j = strip % strips * WX * 4u + local.x{{ " * 4u" if s.vec }};
    let base = params.x_offset + i * params.outer_stride;
{{ reduce.split() }}
{{ reduce.accumulators("4") }}
    for (var k0 = begin; k0 < end; k0 += {{ kernel.step }}u) {
        let k = k0 + local.y;
{% for u in range(kernel.unroll) %}
        let x{{ u }} = load4(base, k{{ " + %du" % (u * kernel.wy) if u }}, j, end);
{% endfor %}
{% macro at(u) %}vec4u(k{{ " + %du" % (u * kernel.wy) if u }}){% endmacro %}
{{ reduce.take(kernel.unroll, at) }}
{{ reduce.carry("4") }}
    }
    let own = {{ reduce.all_levels("4") }};
{% if kernel.wy > 1 %}
    parts[local.y][local.x] = own;
{% set half = namespace(size=kernel.wy // 2) %}
{% for _ in range(12) if half.size %}
    workgroupBarrier(); // {{ "all parts are there" if loop.first else "the halves are merged" }} before anyone reads them
    if (local.y < {{ half.size }}u) {
        parts[local.y][local.x] = merge4(parts[local.y][local.x], parts[local.y + {{ half.size }}u][local.x]);
    }
{% set half.size = half.size // 2 %}
{% endfor %}
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
