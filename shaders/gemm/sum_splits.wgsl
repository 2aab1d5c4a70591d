// sum_splits: C from partial sums, SPLITS of them per element.
//
// Storage: partial (batch, split, row, column) in f32, rows of whole vec4; C (m, n) with its own row length, bound as
// array<vec4> where that is a multiple of 4. Four columns per invocation; the grid strides over the rows.
// Shapes: any. Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ matrix.store_c4(col=s.vec_c == false) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(@builtin(global_invocation_id) place: vec3u, @builtin(num_workgroups) grid: vec3u) {
    let row_length = (params.n + 3u) / 4u; // in vec4
    if (place.x >= row_length) {
        return;
    }
    let c_base = params.c_offset + place.z * params.c_batch_stride;
    for (var row = place.y; row < params.m; row += grid.y) {
        let first = (place.z * SPLITS * params.m + row) * row_length + place.x;
        var value = partial[first];
{% for split in range(1, kernel.splits) %}
        value += partial[first + {{ split }}u * params.m * row_length];
{% endfor %}
        store_c4(c_base, row, place.x * 4u, value);
    }
}
