// sum_splits: C = the sum of SPLITS partial sums per element, plus the bias, requantised or dequantised.
//
// Storage: partial (split, row, column) in i32, zero points applied, rows padded to whole vec4; C (m, n), dense.
// Second dispatch of packed. One vec4 of C per group of {{ kernel.adders }} invocations: see common/splits.wgsl.
// Workgroup memory: 16 bytes per invocation, none if a group is one invocation.
{% import "common/quantized.wgsl" as quantized with context %}
{% import "common/splits.wgsl" as splits with context %}
{% include "common/header.wgsl" %}

{{ splits.adders("vec4i") }}

{{ quantized.column_terms(sums=false) }}
{{ quantized.store_c4() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ splits.add_splits("vec4i()") }}
    store_c4(vector / row_length, columns_from(vector % row_length * 4u), value);
}
