// sum_splits: C from partial sums, SPLITS of them per element.
//
// Storage: partial (batch, split, row, column) in f32, rows of whole vec4; C (m, n) with its own row length, bound as
// array<vec4> where that is a multiple of 4. Four columns per group of invocations; where there are many parts, those
// of a group take turns, and their sums are added up in workgroup memory: a small C has too few elements to fill a
// machine.
// Shapes: any. Workgroup memory: 16 bytes per invocation, none where groups are of one.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{% set takers = kernel.takers %}
const PLACES = {{ kernel.invocations // takers }}u; // vec4 of C per workgroup
{% if takers > 1 %}
var<workgroup> sums: array<array<vec4f, PLACES>, {{ takers }}u>; // [taker][place]
{% endif %}

{{ matrix.store_c4(col=s.vec_c == false) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row_length = (params.n + 3u) / 4u; // in vec4
    let matrix_length = params.m * row_length;
    let place = (workgroup.x + workgroup.y * grid.x) * PLACES + lane % PLACES;
    let first = workgroup.z * SPLITS * matrix_length + place;
{% if takers > 1 %}
    let taker = lane / PLACES;
    var value = partial[first + taker * matrix_length];
{% for split in range(takers, kernel.splits, takers) %}
{% if split + takers <= kernel.splits %}
    value += partial[first + (taker + {{ split }}u) * matrix_length];
{% else %}
    value += select(vec4f(), partial[first + (taker + {{ split }}u) * matrix_length], taker + {{ split }}u < SPLITS);
{% endif %}
{% endfor %}
    sums[taker][lane % PLACES] = value;
    workgroupBarrier(); // all sums are there before they are added up
    if (taker > 0u || place >= matrix_length) {
        return;
    }
{% for other in range(1, takers) %}
    value += sums[{{ other }}][lane];
{% endfor %}
{% else %}
    if (place >= matrix_length) {
        return;
    }
    var value = partial[first];
{% for split in range(1, kernel.splits) %}
    value += partial[first + {{ split }}u * matrix_length];
{% endfor %}
{% endif %}
    let c_base = params.c_offset + workgroup.z * params.c_batch_stride;
    store_c4(c_base, place / row_length, place % row_length * 4u, value);
}
