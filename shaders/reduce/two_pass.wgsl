// {{ kernel.name }}: y = {{ s.operation }} of each row of x, from the parts that the first pass left.
//
// Storage: partials[split][row]; y has the rows one after the other.
// Changed from {{ "columns" if kernel.name == "columns_two_pass" else "tree" }}: the first pass shares a row among
// SPLITS workgroups, so that few long rows keep the whole machine busy; here a workgroup brings together the parts of a
// row.
// Shapes: any. Workgroup memory: as in the stage that is named by `combine`.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions(vector=false) }}
{{ reduce.together(kernel.lanes) }}
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
