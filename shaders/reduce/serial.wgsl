// serial: y = {{ s.operation }} of each row of x, by one invocation for everything.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// The baseline: it uses a single lane of the GPU.
// Edges: rows are limited by the driver's time limit only. Workgroup memory: none.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "reduce/operations/" ~ s.operation ~ ".wgsl" as operation with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions(vector=false) }}
@compute @workgroup_size(1)
fn main() {
    //# inner
    for (var row = 0u; row < params.outer * params.inner; row++) {
        let base = {{ loads.base() }};
{{ loads.other_base() }}
{{ invocation.accumulators("") }}
        for (var k = 0u; k < params.length; k++) {
            acc0 = merge(acc0, {{ operation.lift("", loads.element(), "k") }});
{{ invocation.carry("") }}
        dbg(LOADED, row, 0u, k, f32({{ loads.element() }}));
        dbg(ACC, row, 0u, k, f32(result({{ invocation.all_levels("") }})));
        }
        {{ out.store("params.y_offset + row", "result(" ~ invocation.all_levels("") ~ ")") }}
    }
    //# end
}
