// map: y[i] = {{ s.activation }}(x[i]), four elements per invocation.
//
// Storage: x and y dense; bound as array<vec4> where their length and first elements are multiples of 4.
// Shapes: any. Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{% include "epilogues/" ~ s.activation ~ ".wgsl" %}

@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = (workgroup.x + workgroup.y * grid.x) * SIZE * 4u;
{% if s.vec %}
    let i = first + lane * 4u;
    if (i < params.size) {
        let v = activate({{ matrix.as_vec4f("x[(params.x_offset + i) / 4u]") }});
        y[(params.y_offset + i) / 4u] = {{ out.as_out4("v") }};
    }
{% else %}
    for (var i = first + lane; i < min(first + SIZE * 4u, params.size); i += SIZE) {
        let v = activate(vec4f({{ matrix.element("x", "params.x_offset + i") }})).x;
        {{ out.store("params.y_offset + i", "v") }}
    }
{% endif %}
}
