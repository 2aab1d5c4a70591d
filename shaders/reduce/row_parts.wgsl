// row_parts: the parts of each row of x, for two_pass.
//
// Storage: x[i, k, j] with a stride each, reduced over k; bound as array<vec4> where k is contiguous and all lengths
// are multiples of 4. partials[split][row].
// Changed from {{ kernel.combine }}: SPLITS workgroups share a row; what each has of it is left for the second pass.
// Shapes: any; beyond the end of a row stands what changes nothing. Workgroup memory: as there.
{% import "common/reduce.wgsl" as reduce with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ reduce.load4(kernel.lanes) }}
{{ reduce.together(kernel.lanes) }}
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
