// row_parts: the partial results of each row of x, for two_pass.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k. partials[split][row].
// Changed from {{ kernel.combine }}: SPLITS workgroups share a row; the second pass combines their partial results.
// Edges: rows are padded with the identity. Workgroup memory: as there.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ loads.load4(kernel.lanes) }}
{{ workgroup.combined(kernel.lanes) }}
@compute @workgroup_size(LANES)
fn main(
{{ workgroup.builtins() }}
) {
    //# part
{{ workgroup.row() }}
{{ workgroup.split() }}
    let base = {{ loads.base() }};
{{ loads.other_base() }}
{{ invocation.walk(kernel.lanes, "begin", "end") }}
    let all = {{ workgroup.whole() }};
    if (lane == 0u) {
        partials[workgroup.z * params.outer * params.inner + row] = {{ parts.pack("all") }};
    }
    //# end
}
