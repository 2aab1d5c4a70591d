// {{ kernel.name }}: y = {{ s.operation }} of each row of x, from the partial results of the first pass.
//
// Storage: partials[split][row]; y holds the results of the rows in order.
// Changed from {{ "columns" if kernel.name == "columns_two_pass" else "tree" }}: in the first pass, SPLITS
// workgroups share a row, so that few long rows occupy the whole GPU; here a workgroup combines their partial results.
// Workgroup memory: as for the stage that `combine` names.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions(vector=false) }}
{{ workgroup.combined(kernel.lanes) }}
@compute @workgroup_size({{ kernel.lanes }})
fn main(
{{ workgroup.builtins() }}
) {
    //# inner
{{ workgroup.row() }}
    var own = none();
    for (var split = lane; split < SPLITS; split += {{ kernel.lanes }}u) {
        let pair = partials[split * params.outer * params.inner + row];
        own = merge(own, {{ parts.unpack("pair") }});
    }
    let all = {{ workgroup.whole() }};
    if (lane == 0u) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
    //# end
}
