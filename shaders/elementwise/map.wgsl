// map: y[i] = {{ s.activation }}(x[i]), UNROLL vec4 per invocation.
//
// Storage: x and y dense.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{% include "epilogues/" ~ s.activation ~ ".wgsl" %}

@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    //# inner
    let first = (workgroup.x + workgroup.y * grid.x) * SIZE * UNROLL * 4u;
{% if s.vec %}
{% for u in range(kernel.unroll) %}
    let i{{ u }} = first + {{ (4 * kernel.size * u) ~ "u + " if u }}local_index * 4u;
    let x{{ u }} = {{ matrix.as_vec4f("x[(params.x_offset + min(i" ~ u ~ ", params.size - 4u)) / 4u]") }};
{% endfor %}
{% for u in range(kernel.unroll) %}
    if (i{{ u }} < params.size) {
        let v = activate(x{{ u }});
        dbg_m(LOADED, i{{ u }}, 0u, 0u, x{{ u }});
        dbg_m(RESULT, i{{ u }}, 0u, 0u, v);
        y[(params.y_offset + i{{ u }}) / 4u] = {{ out.as_out4("v") }};
    }
{% endfor %}
{% else %}
    for (var i = first + local_index; i < min(first + SIZE * UNROLL * 4u, params.size); i += SIZE) {
        let v = activate(vec4f({{ matrix.element("x", "params.x_offset + i") }})).x;
        dbg(LOADED, i, 0u, 0u, {{ matrix.element("x", "params.x_offset + i") }});
        dbg(RESULT, i, 0u, 0u, v);
        {{ out.store("params.y_offset + i", "v") }}
    }
{% endif %}
    //# end
}
