// three_calls: attention by a product, a softmax and a product; this is the last dispatch, weights times v.
//
// Storage: the weights (entry, head, query, key) are dense, in f32; v and o have a stride per axis; sums in f32.
// An invocation computes 4 × 4 elements of o, from rows of the weights and of v. Keys that its queries do not see have
// no weights.
// Edges: loads beyond the last query repeat it. Workgroup memory: none.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

{{ attention.load4("v", s.edge_v) }}
{{ attention.store4() }}
{{ attention.range() }}
@compute @workgroup_size(WX, WY)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ attention.tile_of("(4u * WY)", "((params.value_width + 4u * WX - 1u) / (4u * WX))") }}
    let first_row = start + local.y;
    let column = (tile % count / down * WX + local.x) * 4u;
    let v_base = {{ attention.base("v") }};
    let o_base = {{ attention.base("o") }};
    var begin = params.keys;
    var end = 0u;
{% for i in range(4) %}
    let row{{ i }} = {{ "min(first_row + " ~ i ~ "u * WY, params.queries - 1u)" }};
    let line{{ i }} = (pair * params.queries + row{{ i }}) * params.keys;
    let seen{{ i }} = keys_of(entry, row{{ i }});
    begin = min(begin, seen{{ i }}.x);
    end = max(end, seen{{ i }}.y);
    var acc{{ i }} = vec4f();
{% endfor %}
    //# inner
    for (var key = begin; key < end; key++) {
        let value = load_v4(v_base, key, column);
{% for i in range(4) %}
{% set weight %}scores[line{{ i }} + key]{% endset %}
{% set seen %}key >= seen{{ i }}.x && key < seen{{ i }}.y{% endset %}
        let weight{{ i }} = {{ "select(0.0, " ~ weight ~ ", " ~ seen ~ ")" if s.left or s.right else weight }};
        acc{{ i }} = fma(vec4f(weight{{ i }}), value, acc{{ i }});
        dbg_n(ACC, pair * params.queries + row{{ i }}, column, key, acc{{ i }});
{% endfor %}
    }
    //# end
{% for i in range(4) %}
    if (first_row + {{ i }}u * WY < params.queries) {
        store_o4(o_base, row{{ i }}, column, acc{{ i }});
    }
{% endfor %}
}
