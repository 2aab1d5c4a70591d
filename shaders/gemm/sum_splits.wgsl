// sum_splits: C = the sum of SPLITS partial sums per element, then the epilogue.
//
{% set partial = "partial (batch, split, row, column) in " ~ real ~ ", rows padded to whole vec4" %}
// Storage: {{ partial }}; C (m, n) with its own row stride.
// Second dispatch of split_k and matrix_unit. One vec4 of C per group of {{ kernel.adders }} invocations: with many
// splits, each invocation of a group adds some of them, and their sums are added in workgroup memory, since a small C
// has too few elements to occupy a GPU.
// Workgroup memory: 16 bytes per invocation, none if a group is one invocation.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/splits.wgsl" as splits with context %}
{% include "common/header.wgsl" %}

{{ splits.adders() }}

{{ matrix.store_c4(col=s.vec_c == false) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    //# sum
{{ splits.add_splits() }}
    //# end
    let c_base = params.c_offset + workgroup.z * params.c_batch_stride;
    store_c4(c_base, vector / row_length, vector % row_length * 4u, value);
}
