// fused: y[i] = {{ s.wgsl }}, for the elements of arrays that broadcast.
//
// Storage: four axes with any non-negative strides.
// Workgroup memory: none.
{% import "common/stored.wgsl" as stored with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{% for file in s.functions %}
{% include "elementwise/" ~ file ~ ".wgsl" %}

{% endfor %}
fn value({{ s.arguments }}) -> {{ s.kind }} {
{% for kind in s.numbers %}
    let s{{ loop.index0 }} = bitcast<{{ kind }}>(params.numbers[{{ loop.index0 }}]);
{% endfor %}
    return {{ s.wgsl }};
}
{% if not s.vec %}

fn place(at: vec4u, strides: vec4u, offset: u32) -> u32 {
    let steps = at * strides;
    return offset + steps.x + steps.y + steps.z + steps.w;
}
{% endif %}

@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let first = (workgroup.x + workgroup.y * grid.x) * SIZE * 4u;
{% if s.vec %}
    let i = first + local_index * 4u;
    if (i < params.size) {
{% for type in s.operands %}
{% set x = "x" ~ loop.index0 %}
{% if loop.index0 in s.single %}
{% set four = stored.load4(type, x ~ "[params." ~ x ~ "_offset / 4u]") %}
        let v{{ loop.index0 }} = vec4({{ four }}[params.{{ x }}_offset % 4u]);
{% else %}
        let v{{ loop.index0 }} = {{ stored.load4(type, x ~ "[(params." ~ x ~ "_offset + i) / 4u]") }};
{% endif %}
{% endfor %}
        let v = vec4({% for j in range(4) %}value({{ s.passed("[" ~ j ~ "u]") }}){{ ", " if j < 3 }}{% endfor %});
        y[(params.y_offset + i) / 4u] = {{ out.as_out4("v") }};
    }
{% else %}
    for (var i = first + local_index; i < min(first + SIZE * 4u, params.size); i += SIZE) {
        let plane = i / params.lengths.w;
        let block = plane / params.lengths.z;
        let at =
            vec4u(block / params.lengths.y, block % params.lengths.y, plane % params.lengths.z, i % params.lengths.w);
{% if s.taken %}
{% if s.put %}
        // x1 holds the indices along an axis of y at which elements are put.
{% else %}
        // x1 holds the indices of the elements of x0 to take along an axis.
{% endif %}
        let taken = {{ stored.load(s.operands[1], "x1", "place(at, params.x1_strides, params.x1_offset)") }};
        let moved = min(u32(max(taken, 0i)), params.taken_length - 1u) * params.taken_stride;
{% endif %}
{% for type in s.operands %}
{% set x, moved = "x" ~ loop.index0, " + moved" if s.taken and loop.first and not s.put else "" %}
        let p{{ loop.index0 }} = place(at, params.{{ x }}_strides, params.{{ x }}_offset){{ moved }};
        let v{{ loop.index0 }} = {{ stored.load(type, x, "p" ~ loop.index0) }};
{% endfor %}
        let v = value({{ s.passed("") }});
        {{ out.store("place(at, params.y_strides, params.y_offset)" ~ (" + moved" if s.put else ""), "v") }}
    }
{% endif %}
}
