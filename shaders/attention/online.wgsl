// online: attention with a running maximum and sum, a query per invocation.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from three_calls: no scores in memory. An invocation holds its row of q, and reads keys one by one. If a
// score is larger than all before, the sum of weights and the sum of weighted rows of v are multiplied by the weight
// that the old maximum now has.
// Edges: rows are padded with zeros. Workgroup memory: none. Needs rows of up to COLUMNS and VALUES columns.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w) }}
{{ attention.load4("k", s.edge_w) }}
{{ attention.load4("v", s.edge_v) }}
{{ attention.store4() }}
{{ attention.range() }}
{{ attention.score() }}
@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ attention.tile_of("SIZE") }}
    let row = start + local_index;
{% if s.edge_q %}
    if (row >= params.queries) {
        return;
    }
{% endif %}
    let q_base = {{ attention.base("q") }};
    let k_base = {{ attention.base("k") }};
    let v_base = {{ attention.base("v") }};
    let o_base = {{ attention.base("o") }};
    let mask_base = {{ attention.mask_base() }};
{% set columns, values = range(kernel.columns // 4), range(kernel.values // 4) %}
{% set watched = "pair * params.queries + row, dbg_col(0u, VALUES), key" %}
{% for c in columns %}
    let q{{ c }} = load_q4(q_base, row, {{ 4 * c }}u);
{% endfor %}
{% for c in values %}
    var acc{{ c }} = vec4f();
{% endfor %}
    var top = FLOOR;
    var sum = 0.0;
    let seen = keys_of(entry, row);
    //# inner
    for (var key = seen.x; key < seen.y; key++) {
        var product = vec4f();
{% for c in columns %}
        product = fma(q{{ c }}, load_k4(k_base, key, {{ 4 * c }}u), product);
{% endfor %}
        let score = scored(dot(product, vec4f(1.0)), mask_base, row, key);
        dbg(SCORE, {{ watched }}, score);
        let larger = max(top, score);
        let shrink = exp2(top - larger);
        let weight = exp2(score - larger);
        top = larger;
        dbg(TOP, {{ watched }}, top);
        dbg(WEIGHT, {{ watched }}, weight);
        sum = fma(sum, shrink, weight);
        dbg(SUM, {{ watched }}, sum);
{% for c in values %}
        acc{{ c }} = fma(acc{{ c }}, vec4f(shrink), weight * load_v4(v_base, key, {{ 4 * c }}u));
        dbg_n(ACC, pair * params.queries + row, {{ 4 * c }}u, key, acc{{ c }});
{% endfor %}
    }
    //# end
    let scale = select(1.0 / sum, 0.0, sum == 0.0);
{% for c in values %}
    store_o4(o_base, row, {{ 4 * c }}u, acc{{ c }} * scale);
{% endfor %}
}
