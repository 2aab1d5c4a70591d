// cpu_texture: C = A·B for CPU adapters, as cpu_lanes, with B in a texture.
//
// Storage: A (m, k), C (m, n), each with its own row stride. B in a texture: texel (x, y) is B[y, 4x..4x+3] in f32,
// written by the previous dispatch (pack_b), with DEPTH rows per layer; accumulation in f32.
// Changed from cpu_lanes: CPU drivers load a texel as a vector register and without a bounds check, whereas buffers are
// loaded one element and one lane at a time, each with a check. Every call copies B to the texture, and its time
// counts.
{#
  Copying B takes 8 to 12 ns per element on two cores, so that it pays off from about 100 rows on.
#}
// Edges: textures limit n and k: 4 columns per texel along a side. Workgroup memory: none. Needs subgroups
// of LANES lanes or more.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/lanes.wgsl" as lanes with context %}
{% include "common/header.wgsl" %}

const DEPTH: u32 = {{ kernel.depth }}u; // rows of B per layer

{{ matrix.load_a4(select_k=s.edge_k) }}
{{ matrix.store_c4(col=s.edge_n) }}
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
{{ matrix.tile_origin("TM", "(LANES * TN)") }}
    let row = row0 + lane % TM; // the row of A that this lane loads
    let col = col0 + lane * 4u;
    let first_layer = workgroup.z * ((params.k + DEPTH - 1u) / DEPTH);
{{ matrix.bases() }}
{{ lanes.declare_sums() }}
    //# inner
    for (var k = 0u; k < params.k; k += 4u) {
        let y = k % DEPTH;
        let layer = first_layer + k / DEPTH;
{% macro a(row) %}load_a4(a_base, {{ row }}, k){% endmacro %}
{% macro b(kk, j) -%}
{% set texel %}col / 4u{% if j %} + {{ j }}u * LANES{% endif %}, y{% if kk %} + {{ kk }}u{% endif %}{% endset %}
textureLoad(b_texture, vec2u({{ texel }}), layer)
{%- endmacro %}
{{ lanes.multiply_step(a, b) }}
    }
    //# end
{{ lanes.store_sums() }}
}
