// row_parts: the partial results of each row of x, for two_pass.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; bound as array<vec4> if k is contiguous and all lengths
// are multiples of 4. partials[split][row].
// Changed from {{ kernel.combine }}: SPLITS workgroups share a row; the second pass combines their partial results.
// Shapes: any; rows are padded with the identity. Workgroup memory: as there.
{% import "common/reduce.wgsl" as reduce with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ reduce.load4(kernel.lanes) }}
{{ reduce.combined(kernel.lanes) }}
@compute @workgroup_size(LANES)
fn main(
{{ reduce.builtins() }}
) {
{{ reduce.row() }}
{{ reduce.split() }}
    let base = {{ reduce.base() }};
{{ reduce.walk(kernel.lanes, "begin", "end") }}
    let all = {{ reduce.whole() }};
    if (lane == 0u) {
        partials[workgroup.z * params.outer * params.inner + row] = {{ reduce.pack("all") }};
    }
}
