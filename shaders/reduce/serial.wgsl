// serial: y = {{ s.operation }} of each row of x, by one invocation for everything.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// The baseline: it uses a single lane of the GPU.
// Shapes: any, up to the driver's time limit. Workgroup memory: none.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions(vector=false) }}
@compute @workgroup_size(1)
fn main() {
    for (var row = 0u; row < params.outer * params.inner; row++) {
        let base = {{ reduce.base() }};
{{ reduce.accumulators("") }}
        for (var k = 0u; k < params.length; k++) {
            acc0 = merge(acc0, {{ reduce.lift("", reduce.element(), "k") }});
{{ reduce.carry("") }}
        dbg(LOADED, row, 0u, k, f32({{ reduce.element() }}));
        dbg(ACC, row, 0u, k, f32(result({{ reduce.all_levels("") }})));
        }
        {{ out.store("params.y_offset + row", "result(" ~ reduce.all_levels("") ~ ")") }}
    }
}
