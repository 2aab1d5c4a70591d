// pack_b: copies B to a texture, which CPU drivers read a vector register at a time.
//
// Storage: B (k, n) with its own row stride. Texel (x, y) is B[y, 4x..4x+3] in f32, zero below the last row, so that
// the product needs no guard along k. A new layer begins after every DEPTH rows, and for each matrix of the batch.
// First dispatch of cpu_texture. One texel per invocation, whose position needs no division, which is scalar on CPUs.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const DEPTH: u32 = {{ kernel.depth }}u; // rows of B per layer

{{ matrix.load_b4(k=true, col=true) }}
@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(@builtin(global_invocation_id) texel: vec3u) {
    //# copy
    let base = params.b_offset + texel.z * params.b_batch_stride;
    let layers = (params.k + DEPTH - 1u) / DEPTH; // per matrix
    let value = load_b4(base, texel.y, texel.x * 4u);
    textureStore(b_texture, vec2u(texel.x, texel.y % DEPTH), texel.z * layers + texel.y / DEPTH, value);
    //# end
}
