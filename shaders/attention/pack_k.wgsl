// pack_k: copies k to a texture, which CPU drivers read a vector register at a time; first dispatch of cpu_lanes.
//
// Storage: k with a stride per axis. Texel (x, y) of a layer has column y of keys 4x to 4x + 3; a layer has DEPTH
// texels along x, and each head of k one or more layers.
// An invocation copies four columns of four keys. Edges: zeros beyond the last key and column. Workgroup memory: none.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

const DEPTH: u32 = {{ kernel.depth }}u; // texels along a side of a layer

{{ attention.load4("k", s.edge_w) }}
@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(@builtin(global_invocation_id) place: vec3u) {
    let entry = place.z / (params.heads / params.group);
    let head = place.z % (params.heads / params.group) * params.group; // the first head of q with this one of k
    let base = {{ attention.base("k") }};
    let layer = place.z * ((params.keys + 4u * DEPTH - 1u) / (4u * DEPTH)) + place.x / DEPTH;
    let column = place.y * 4u;
    if (column >= params.width) {
        return;
    }
{% for n in range(4) %}
    let row{{ n }} = load_k4(base, min(place.x * 4u + {{ n }}u, params.keys - 1u), column);
{% endfor %}
{% for c in "xyzw" %}
    textureStore(k_texture, vec2u(place.x % DEPTH, column + {{ loop.index0 }}u), layer,
        vec4f({% for n in range(4) %}row{{ n }}.{{ c }}{{ ", " if n < 3 }}{% endfor %}));
{% endfor %}
}
