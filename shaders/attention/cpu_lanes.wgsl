// cpu_lanes: attention for CPU adapters, TM queries per workgroup, which is one subgroup.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from online: each loaded element of k and v is used for TM queries. For q·k, a lane holds TK keys of a step,
// and lanes broadcast q; for weights·v, it holds TN columns, and lanes broadcast the weights, which they hand over
// through workgroup memory. CPU drivers load from buffers one element and one lane at a time, but run FMAs and shuffles
// for all lanes at once.
// Places of rows are computed before the loops over their columns: SwiftShader's compiler moves nothing out of loops.
// Steps of keys that no query of the tile sees are skipped.
// Edges: loads beyond the last query or key repeat it. Workgroup memory: TM·TK·LANES·4 bytes. Needs subgroups of LANES
// lanes or more.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}
{% set packed = kernel.load == "texture" %}

const STEP: u32 = LANES * TK; // keys of a step
{% if packed %}
const DEPTH: u32 = {{ kernel.depth }}u; // texels along a side of a layer
{% endif %}
const SPREAD: u32 = LANES * 4u; // keys, or columns, from a vec4 of a lane to its next

var<workgroup> weights: array<array<vec4f, STEP / 4u>, TM>; // or scores

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w, true) }}
{% if not packed %}
{{ attention.load4("k", s.edge_w, true) }}
{{ attention.load4("v", s.edge_v, true) }}
{% endif %}
{{ attention.store4() }}
{{ attention.range() }}
{{ attention.score4() }}
{% set watched = "pair * params.queries + row, dbg_col(0u, params.value_width)" %}
{% set rows, fours, quads = range(kernel.tm), range(kernel.tn // 4), range(kernel.tk // 4) %}
{# sums += A[0..TM, 0..3] · B[0..3, lane]: `a` writes the load of a lane's row of A, `b` that of a row of B. #}
{% macro multiply(sum, count, a, b) %}
{% for i in range(kernel.a_loads) %}
        let a_reg{{ i }} = {{ a(i) }};
{% endfor %}
{% for j in count %}
{{ b(j) }}
{% endfor %}
{% for r in rows %}
{% if kernel.tm == 1 %}
        let a_row0 = a_reg0; // all lanes load the only row
{% else %}
        let a_row{{ r }} = subgroupBroadcast(a_reg{{ r // kernel.lanes }}, {{ r % kernel.lanes }}u);
{% endif %}
{% for j in count %}
{% for kk in range(4) %}
{% set name = sum ~ "_" ~ r ~ "_" ~ j %}
        {{ name }} = fma(vec4f(a_row{{ r }}.{{ "xyzw"[kk] }}), b_reg{{ kk }}_{{ j }}, {{ name }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
{{ attention.tile_of("TM") }}
    let q_base = {{ attention.base("q") }};
{% for i in range(kernel.a_loads) %}
{% set row %}start + lane % TM{% if i %} + {{ i }}u * LANES{% endif %}{% endset %}
{% set inside %}{{ "min" if s.edge_q }}({{ row }}{{ ", params.queries - 1u" if s.edge_q }}){% endset %}
    let q_row{{ i }} = q_base + {{ inside }} * params.q_strides.z;
{% endfor %}
{% if packed %}
    let layer = entry * (params.heads / params.group) + head / params.group;
{% else %}
    let k_base = {{ attention.base("k") }};
    let v_base = {{ attention.base("v") }};
{% endif %}
    let o_base = {{ attention.base("o") }};
    let mask_base = {{ attention.mask_base() }};
    let column = lane * 4u; // of v and o
{% for r in rows %}
    var top_{{ r }} = FLOOR;
    var sum_{{ r }} = 0.0;
{% for j in fours %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
    // Later queries see later keys
    let first = keys_of(entry, start);
    let last = keys_of(entry, min(start + TM, params.queries) - 1u);
    //# inner
    for (var k0 = first.x / STEP * STEP; k0 < last.y; k0 += STEP) {
{% for r in rows %}
{% for j in quads %}
        var score_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% if packed %}
        let k_x = k0 / 4u % DEPTH + lane;
        let k_layer = layer * ((params.keys + 4u * DEPTH - 1u) / (4u * DEPTH)) + k0 / 4u / DEPTH;
{% else %}
{% for j in quads %}
{% for n in range(4) %}
{% set key %}k0 + column + {{ n }}u{{ " + " ~ j ~ "u * SPREAD" if j }}{% endset %}
        let k_row{{ n }}_{{ j }} = k_base + min({{ key }}, last.y - 1u) * params.k_strides.z;
{% endfor %}
{% endfor %}
{% endif %}
        for (var c = 0u; c < params.width; c += 4u) {
{% macro q(i) -%}
load_q4(q_row{{ i }}, c)
{%- endmacro %}
{% macro k(j) %}
{% if packed %}
{% for kk in range(4) %}
{% set place %}k_x{{ " + " ~ j ~ "u * LANES" if j }}, c{{ " + " ~ kk ~ "u" if kk }}{% endset %}
            let b_reg{{ kk }}_{{ j }} = textureLoad(k_texture, vec2u({{ place }}), k_layer);
{% endfor %}
{% else %}
{% for n in range(4) %}
            let k_reg{{ n }}_{{ j }} = load_k4(k_row{{ n }}_{{ j }}, c);
{% endfor %}
{% for kk in range(4) %}
{% set c = "xyzw"[kk] %}
{% set four %}{% for n in range(4) %}k_reg{{ n }}_{{ j }}.{{ c }}{{ ", " if n < 3 }}{% endfor %}{% endset %}
            let b_reg{{ kk }}_{{ j }} = vec4f({{ four }});
{% endfor %}
{% endif %}
{% endmacro %}
{{ multiply("score", quads, q, k) }}
        }
{% for r in rows %}
        {
            let row = {{ "min(start + " ~ r ~ "u, params.queries - 1u)" if s.edge_q else "start + " ~ r ~ "u" }};
{% if s.left or s.right %}
            let seen = keys_of(entry, row);
{% endif %}
{% for j in quads %}
            let at{{ j }} = lane{{ " + " ~ j ~ "u * LANES" if j }};
            let key{{ j }} = k0 + at{{ j }} * 4u;
            var score{{ j }} = scored4(score_{{ r }}_{{ j }}, mask_base, row, key{{ j }}, params.keys - 1u);
{% if s.ranged or s.edge_k %}
            let keys{{ j }} = vec4u(key{{ j }}) + vec4u(0u, 1u, 2u, 3u);
{% set within %}(keys{{ j }} >= vec4u(seen.x)) & (keys{{ j }} < vec4u(seen.y)){% endset %}
{% set seen = within if s.left or s.right else "keys" ~ j ~ " < vec4u(last.y)" %}
            score{{ j }} = select(vec4f(HIDDEN), score{{ j }}, {{ seen }});
{% endif %}
            dbg_k(SCORE, {{ watched }}, key{{ j }}, score{{ j }});
            let pair{{ j }} = max(score{{ j }}.xy, score{{ j }}.zw);
{% endfor %}
            var own = pair0;
{% for j in quads if j %}
            own = max(own, pair{{ j }});
{% endfor %}
            let larger = max(top_{{ r }}, subgroupMax(max(own.x, own.y)));
            let shrink = exp2(top_{{ r }} - larger);
            top_{{ r }} = larger;
            dbg(TOP, {{ watched }}, k0 + STEP - 1u, larger);
            var sum = vec4f();
{% for j in quads %}
            let weight{{ j }} = exp2(score{{ j }} - larger);
            dbg_k(WEIGHT, {{ watched }}, key{{ j }}, weight{{ j }});
            weights[{{ r }}][at{{ j }}] = weight{{ j }};
            sum += weight{{ j }};
{% endfor %}
            sum_{{ r }} = fma(sum_{{ r }}, shrink, dot(sum, vec4f(1.0)));
            dbg(SUM, {{ watched }}, key{{ kernel.tk // 4 - 1 }} + 3u, sum_{{ r }});
{% for j in fours %}
            acc_{{ r }}_{{ j }} *= shrink;
{% endfor %}
        }
{% endfor %}
        workgroupBarrier(); // the subgroup has all weights before it reads them
        let end = min(STEP, last.y - k0);
        for (var at = 0u; at < end; at += 4u) {
{% macro p(i) -%}
weights[lane % TM{% if i %} + {{ i }}u * LANES{% endif %}][at / 4u]
{%- endmacro %}
{% macro v(j) %}
{% for kk in range(4) %}
{% if packed %}
{% set place %}lane{{ " + " ~ j ~ "u * LANES" if j }}, v_y{{ " + " ~ kk ~ "u" if kk }}{% endset %}
            let b_reg{{ kk }}_{{ j }} = textureLoad(v_texture, vec2u({{ place }}), v_layer);
{% else %}
            let b_reg{{ kk }}_{{ j }} = load_v4(v_row{{ kk }}, column{{ " + " ~ j ~ "u * SPREAD" if j }});
{% endif %}
{% endfor %}
{% endmacro %}
{% if packed %}
            let v_y = (k0 + at) % DEPTH;
            let v_layer = layer * ((params.keys + DEPTH - 1u) / DEPTH) + (k0 + at) / DEPTH;
{% else %}
{% for kk in range(4) %}
            let v_row{{ kk }} = v_base + min(k0 + at + {{ kk }}u, last.y - 1u) * params.v_strides.z;
{% endfor %}
{% endif %}
{{ multiply("acc", fours, p, v) }}
        }
{% for r in rows %}
{% for j in fours %}
{% set row %}{{ "min(start + " ~ r ~ "u, params.queries - 1u)" if s.edge_q else "start + " ~ r ~ "u" }}{% endset %}
{% set col = "column" ~ (" + " ~ j ~ "u * SPREAD" if j else "") %}
        dbg_n(ACC, pair * params.queries + {{ row }}, {{ col }}, k0 + STEP - 1u, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
        workgroupBarrier(); // the subgroup is done with the weights before it overwrites them
    }
    //# end
{% for r in rows %}
    {
{% if s.edge_q %}
        if (start + {{ r }}u >= params.queries) {
            return;
        }
{% endif %}
        let total = subgroupAdd(sum_{{ r }});
        let scale = select(1.0 / total, 0.0, total == 0.0);
{% for j in fours %}
        store_o4(o_base, start + {{ r }}u, column{{ " + " ~ j ~ "u * SPREAD" if j }}, acc_{{ r }}_{{ j }} * scale);
{% endfor %}
    }
{% endfor %}
}
