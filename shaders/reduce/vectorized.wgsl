// vectorized: y = {{ s.operation }} of each row of x, by one invocation per row, four elements at a time.
//
// Storage: x[i, k, j] with a stride per axis, reduced over k; a row is one (i, j); y holds the results in order.
// Changed from per_row: UNROLL vec4 are loaded before the first is used, and reduced component by component.
// Edges: rows are padded with the identity. Workgroup memory: none.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/invocation.wgsl" as invocation with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ loads.load4(1) }}
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
{{ invocation.walk(1) }}
    {{ out.store("params.y_offset + row", "result(own)") }}
    //# end
}
