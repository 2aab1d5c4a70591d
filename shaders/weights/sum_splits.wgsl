// sum_splits: C = the sum of SPLITS partial sums per element.
//
// Storage: partial (split, row, column) in f32, rows padded to whole vec4; C (m, n), dense, f32 or f16.
// Second dispatch of tiles. One vec4 of C per group of {{ kernel.adders }} invocations: see common/splits.wgsl.
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
{{ splits.add_splits() }}
    store_c4(0u, vector / row_length, vector % row_length * 4u, value);
}
