// per_row: y = {{ s.operation }} of each row of x, by one invocation per row.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// Changed from serial: each row has its own invocation. Neighbouring invocations read along j: neighbouring elements if
// the reduced axis is not the last, elements a row apart if it is.
// Workgroup memory: none.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "reduce/operations/" ~ s.operation ~ ".wgsl" as operation with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions(vector=false) }}
@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    //# inner
    let row = (workgroup.x + workgroup.y * grid.x) * SIZE + lane;
    if (row >= params.outer * params.inner) {
        return;
    }
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
    //# end
}
