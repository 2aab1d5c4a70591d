{# Strips of columns: WX invocations along the kept axis j, with four columns each, and WY along k. #}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "common/matrix.wgsl" as matrix with context %}

{% macro functions() %}
const SPREAD: u32 = {{ "1u" if s.vec else "WX" }}; // distance between the four j of an invocation

{{ parts.functions() }}
// x[k, j], x[k, j + SPREAD] …{{ elements.beyond("the end of a column") }}
fn load4(base: u32, k: u32, j: u32, end: u32) -> {{ elements.number("4") }} {
{% set row = "min(k, end - 1u)" if s.edge else "k" %}
{% if s.vec %}
{% set place = "min(j, params.inner - 4u)" if s.edge_j else "j" %}
    let v = {{ matrix.as_vec4f("x[(base + " ~ row ~ " * params.stride + " ~ place ~ ") / 4u]") }};
{% else %}
    let columns = vec4u(j) + vec4u(0u, 1u, 2u, 3u) * SPREAD;
{% set within = "min(columns, vec4u(params.inner - 1u))" if s.edge_j else "columns" %}
    let place = vec4u(base + {{ row }} * params.stride) + {{ within }} * params.inner_stride;
    let v = {{ elements.by_fours() }}(
{% for c in "xyzw" %}
        {{ matrix.element("x", "place." ~ c) }},
{% endfor %}
    );
{% endif %}
{% if s.edge and not elements.doubles %}
    return select(v, {{ elements.number("4") }}({{ elements.outside() }}), k >= end);
{% else %}
    return v;
{% endif %}
}

{% if kernel.wy > 1 %}
var<workgroup> parts: array<array<{{ parts.part("4") }}, WX>, WY>;

{% endif %}
{% endmacro %}

{% macro builtins() %}
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
{%- endmacro %}

{# The strip of a workgroup, and the first j of an invocation; surplus workgroups of a folded grid return at once. #}
{% macro strip() %}
    let strip = workgroup.x + workgroup.y * grid.x;
    let strips = (params.inner + WX * 4u - 1u) / (WX * 4u);
    let i = strip / strips;
    if (i >= params.outer) {
        return;
    }
    let j = strip % strips * WX * 4u + local.x{{ " * 4u" if s.vec }};
    let base = params.x_offset + i * params.outer_stride;
{% if s.other %}
    let other_j = min(vec4u(j) + vec4u(0u, 1u, 2u, 3u) * SPREAD, vec4u(params.inner - 1u));
    let other_base = params.other_offset + i * params.other_outer_stride + other_j * params.other_inner_stride;
{% endif %}
{% endmacro %}

{# The number of the result at the c-th j of an invocation for debug shaders, 0xffffffff beyond the last j. #}
{% macro row_of(c) -%}
select(0xffffffffu, i * params.inner + j + {{ c }}u * SPREAD, j + {{ c }}u * SPREAD < params.inner)
{%- endmacro %}

{# Reduce an invocation's elements of x[begin..end]; with `once`, a single step, x0, x1 … stay in scope. #}
{% macro walk(begin, end, once=false) %}
{{ invocation.accumulators("4") }}
{% if once %}
    let k = local.y;
{% else %}
    for (var k0 = {{ begin }}; k0 < {{ end }}; k0 += {{ kernel.step }}u) {
        let k = k0 + local.y;
{% endif %}
{% for u in range(kernel.unroll) %}
        let x{{ u }} = load4(base, k{{ " + " ~ (u * kernel.wy) ~ "u" if u }}, j, {{ end }});
{% endfor %}
{% macro place(u) %}vec4u(k{{ " + " ~ (u * kernel.wy) ~ "u" if u }}){% endmacro %}
{{ invocation.take(kernel.unroll, place) }}
{{ invocation.carry("4") }}
{% for c in range(4) %}
{% for u in range(kernel.unroll) %}
        dbg(LOADED, {{ row_of(c) }}, 0u, k + {{ u * kernel.wy }}u, f32(x{{ u }}[{{ c }}]));
{% endfor %}
{% set sum %}{{ real }}(result(component({{ invocation.all_levels("4") }}, {{ c }}u))){% endset %}
        dbg(ACC, {{ row_of(c) }}, 0u, k + {{ (kernel.unroll - 1) * kernel.wy }}u, {{ sum }});
{% endfor %}
{% if not once %}
    }
{% endif %}
    let own = {{ invocation.all_levels("4") }};
{% endmacro %}

{# Combine the partial results of a column: the first invocation reads the result at parts[0][local.x]. #}
{% macro combine() %}
    parts[local.y][local.x] = own;
{% set half = namespace(size=kernel.wy // 2) %}
{% for _ in range(12) if half.size %}
{% set done = "all parts are there" if loop.first else "the halves are merged" %}
    workgroupBarrier(); // {{ done }} before anyone reads them
    if (local.y < {{ half.size }}u) {
        parts[local.y][local.x] = merge4(parts[local.y][local.x], parts[local.y + {{ half.size }}u][local.x]);
    }
{% set half.size = half.size // 2 %}
{% endfor %}
{% endmacro %}
