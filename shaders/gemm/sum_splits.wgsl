// sum_splits: C = the sum of SPLITS partial sums per element, then the epilogue.
//
// Storage: partial (batch, split, row, column) in f32, rows padded to whole vec4; C (m, n) with its own row stride,
// bound as array<vec4> if that is a multiple of 4.
// Second dispatch of split_k. One vec4 of C per group of {{ kernel.adders }} invocations: with many splits, each
// invocation of a group adds some of them, and their sums are added in workgroup memory, since a small C has too few
// elements to occupy a GPU.
// Shapes: any. Workgroup memory: 16 bytes per invocation, none if a group is one invocation.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{% set adders = kernel.adders %}
const VECTORS = {{ kernel.invocations // adders }}u; // vec4 of C per workgroup
{% if adders > 1 %}
var<workgroup> sums: array<array<vec4f, VECTORS>, {{ adders }}u>; // [adder][vector]
{% endif %}

{{ matrix.store_c4(col=s.vec_c == false) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row_length = (params.n + 3u) / 4u; // in vec4
    let matrix_length = params.m * row_length;
    let vector = (workgroup.x + workgroup.y * grid.x) * VECTORS + local_index % VECTORS;
    let first = workgroup.z * SPLITS * matrix_length + vector;
{% if adders > 1 %}
    let adder = local_index / VECTORS;
    var value = partial[first + adder * matrix_length];
{% for split in range(adders, kernel.splits, adders) %}
{% if split + adders <= kernel.splits %}
    value += partial[first + (adder + {{ split }}u) * matrix_length];
{% else %}
    value += select(vec4f(), partial[first + (adder + {{ split }}u) * matrix_length], adder + {{ split }}u < SPLITS);
{% endif %}
{% endfor %}
    sums[adder][local_index % VECTORS] = value;
    workgroupBarrier(); // all sums are complete before they are added
    if (adder > 0u || vector >= matrix_length) {
        return;
    }
{% for other in range(1, adders) %}
    value += sums[{{ other }}][local_index];
{% endfor %}
{% else %}
    if (vector >= matrix_length) {
        return;
    }
    var value = partial[first];
{% for split in range(1, kernel.splits) %}
    value += partial[first + {{ split }}u * matrix_length];
{% endfor %}
{% endif %}
    let c_base = params.c_offset + workgroup.z * params.c_batch_stride;
    store_c4(c_base, vector / row_length, vector % row_length * 4u, value);
}
