// pack_v: copies v to a texture, which CPU drivers read a vector register at a time; second dispatch of cpu_lanes.
//
// Storage: v with a stride per axis. Texel (x, y) of a layer has columns 4x to 4x + 3 of key y; a layer has DEPTH
// texels along y, and each head of v one or more layers.
// An invocation copies four columns of four keys. Edges: zeros beyond the last column, and beyond the last key of a
// sequence, since weights of 0 are multiplied by them. Workgroup memory: none.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

const DEPTH: u32 = {{ kernel.depth }}u; // texels along a side of a layer

{{ attention.load4("v", s.edge_v) }}
@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(@builtin(global_invocation_id) place: vec3u) {
    let entry = place.z / (params.heads / params.group);
    let head = place.z % (params.heads / params.group) * params.group; // the first head of q with this one of v
    let base = {{ attention.base("v") }};
    let layer = place.z * ((params.keys + DEPTH - 1u) / DEPTH) + place.x * 4u / DEPTH;
    let column = place.y * 4u;
    if (column >= params.value_width) {
        return;
    }
{% if s.lengths %}
    let length = lengths[params.lengths_offset + entry] - i32(params.first_key);
    let keys = u32(clamp(length, 0, i32(params.keys)));
{% else %}
    let keys = params.keys;
{% endif %}
{% for n in range(4) %}
    let key{{ n }} = place.x * 4u + {{ n }}u;
    let row{{ n }} = select(vec4f(), load_v4(base, min(key{{ n }}, params.keys - 1u), column), key{{ n }} < keys);
    textureStore(v_texture, vec2u(place.y, key{{ n }} % DEPTH), layer, row{{ n }});
{% endfor %}
}
