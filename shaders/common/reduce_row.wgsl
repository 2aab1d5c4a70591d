{# A workgroup per row, for the stages that differ in how its invocations combine their partial results. #}
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ loads.load4(kernel.lanes) }}
{{ workgroup.combined(kernel.lanes) }}
@compute @workgroup_size(LANES)
fn main(
{{ workgroup.builtins() }}
) {
    //# inner
{{ workgroup.row() }}
    let base = {{ loads.base() }};
{{ loads.other_base() }}
{{ invocation.walk(kernel.lanes) }}
    let all = {{ workgroup.whole() }};
    if (lane == 0u) {
        {{ out.store("params.y_offset + row", "result(all)") }}
    }
    //# end
}
