// scores: the scores of all queries and keys, the first dispatch of three_calls.
//
// Storage: q and k with a stride per axis; the scores (entry, head, query, key) are dense, in f32.
// An invocation computes 4 × 4 scores, from rows of q and of k.
// Edges: loads beyond the last query or key repeat it. Workgroup memory: none.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w) }}
{{ attention.load4("k", s.edge_w) }}
{{ attention.range() }}
{{ attention.score() }}
@compute @workgroup_size(WX, WY)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ attention.tile_of("(4u * WY)", "((params.keys + 4u * WX - 1u) / (4u * WX))") }}
    let first_row = start + local.y;
    let first_key = tile % count / down * 4u * WX + local.x;
    let q_base = {{ attention.base("q") }};
    let k_base = {{ attention.base("k") }};
    let mask_base = {{ attention.mask_base() }};
{% for i in range(4) %}
    let row{{ i }} = {{ "min(first_row + " ~ i ~ "u * WY, params.queries - 1u)" }};
    let key{{ i }} = {{ "min(first_key + " ~ i ~ "u * WX, params.keys - 1u)" }};
{% for j in range(4) %}
    var acc{{ i }}{{ j }} = vec4f();
{% endfor %}
{% endfor %}
    //# inner
    for (var column = 0u; column < params.width; column += 4u) {
{% for i in range(4) %}
        let q{{ i }} = load_q4(q_base, row{{ i }}, column);
        let k{{ i }} = load_k4(k_base, key{{ i }}, column);
{% endfor %}
{% for i in range(4) %}
{% for j in range(4) %}
        acc{{ i }}{{ j }} = fma(q{{ i }}, k{{ j }}, acc{{ i }}{{ j }});
{% endfor %}
{% endfor %}
    }
    //# end
{% for i in range(4) %}
    if (first_row + {{ i }}u * WY < params.queries) {
        let seen = keys_of(entry, row{{ i }});
        let line = (pair * params.queries + row{{ i }}) * params.keys;
{% for j in range(4) %}
        if (first_key + {{ j }}u * WX < params.keys) {
            let score = scored(dot(acc{{ i }}{{ j }}, vec4f(1.0)), mask_base, row{{ i }}, key{{ j }});
            let seen_score = select(HIDDEN, score, key{{ j }} >= seen.x && key{{ j }} < seen.y);
            dbg(SCORE, pair * params.queries + row{{ i }}, dbg_col(0u, params.value_width), key{{ j }}, seen_score);
            scores[line + key{{ j }}] = seen_score;
        }
{% endfor %}
    }
{% endfor %}
}
