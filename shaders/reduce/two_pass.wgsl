// {{ kernel.name }}: y = {{ s.operation }} of each row of x, from the partial results of the first pass.
//
// Storage: partials[split][row]; y holds the results of the rows in order.
// Changed from {{ "columns" if kernel.name == "columns_two_pass" else "tree" }}: in the first pass, SPLITS
// workgroups share a row, so that few long rows occupy the whole GPU; here a workgroup combines their partial results.
// Shapes: any. Workgroup memory: as for the stage that `combine` names.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions(vector=false) }}
{{ reduce.combined(kernel.lanes) }}
@compute @workgroup_size({{ kernel.lanes }})
fn main(
{{ reduce.builtins() }}
) {
{{ reduce.row() }}
    var own = none();
    for (var split = lane; split < SPLITS; split += {{ kernel.lanes }}u) {
        let pair = partials[split * params.outer * params.inner + row];
        own = merge(own, {{ reduce.unpack("pair") }});
    }
    let all = {{ reduce.whole() }};
    if (lane == 0u) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
}
