// row_sums: the largest score of each query, in powers of 2, and the sum of its weights, a query per invocation.
//
// Storage: q and k with a stride per axis; o (head, query, 2) in f32, with a stride per axis.
// A call whose keys do not fit a binding computes this and the result for each piece of them, and combines the results.
// Edges: columns beyond the last one are zeros. Workgroup memory: none.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w) }}
{{ attention.load4("k", s.edge_w) }}
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
    if (row >= params.queries) {
        return;
    }
    let q_base = {{ attention.base("q") }};
    let k_base = {{ attention.base("k") }};
    let mask_base = {{ attention.mask_base() }};
    var top = FLOOR;
    var sum = 0.0;
    let seen = keys_of(entry, row);
    for (var key = seen.x; key < seen.y; key++) {
        var product = vec4f();
        for (var column = 0u; column < params.width; column += 4u) {
            product = fma(load_q4(q_base, row, column), load_k4(k_base, key, column), product);
        }
        let score = scored(dot(product, vec4f(1.0)), mask_base, row, key);
        let larger = max(top, score);
        sum = fma(sum, exp2(top - larger), exp2(score - larger));
        top = larger;
    }
    let place = {{ attention.base("o") }} + row * params.o_strides.z;
    o[place] = top;
    o[place + params.o_strides.w] = sum;
}
