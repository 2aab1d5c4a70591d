{# A workgroup per row, for the stages that differ in how its invocations combine their partial results. #}
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ reduce.load4(kernel.lanes) }}
{{ reduce.combined(kernel.lanes) }}
@compute @workgroup_size(LANES)
fn main(
{{ reduce.builtins() }}
) {
{{ reduce.row() }}
    let base = {{ reduce.base() }};
{{ reduce.walk(kernel.lanes) }}
    let all = {{ reduce.whole() }};
    if (lane == 0u) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
}
