{% set found = {
  "softmax": "the largest element, and Σ exp(x - largest)",
  "layer_norm": "the part's mean, and the squared distances from it",
  "rms_norm": "the sum of squares",
} %}
// row_parts: the statistics that {{ s.function }} needs of each row of x, by SPLITS workgroups per row.
//
// Storage: x[i, k, j] with a stride per axis; a row is one (i, j), k runs along it.
// partials[split][row]: {{ found[s.function] }}.
// Edges: rows are padded with the identity. Workgroup memory: as the reduction's.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/normalise.wgsl" as normalise with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ loads.load4(kernel.lanes) }}
{{ normalise.functions(kernel.lanes) }}
{{ workgroup.combined(kernel.lanes) }}
@compute @workgroup_size(LANES)
fn main(
{{ workgroup.builtins() }}
) {
{{ workgroup.row() }}
{{ workgroup.split() }}
    let base = {{ loads.base() }};
{{ normalise.statistics(kernel.lanes, "begin", "end", "max(end, begin + 1u) - begin") }}
    if (lane == 0u) {
{% set mean_and_squares = "vec2u(bitcast<u32>(mean), bitcast<u32>(all))" %}
{% set part = mean_and_squares if s.function == "layer_norm" else parts.pack("all") %}
        partials[workgroup.z * params.outer * params.inner + row] = {{ part }};
    }
}
