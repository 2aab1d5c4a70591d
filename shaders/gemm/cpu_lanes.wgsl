// cpu_lanes: C = A·B for CPU adapters; a TM × TN tile of C per lane, with A broadcast within a subgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from tile_2d: one lane loads each element of A and broadcasts it to its subgroup. CPU drivers load from
// buffers one element and one lane at a time, each with a bounds check, but run FMAs and shuffles for all lanes at
// once. Sharing through workgroup memory, as on a GPU, would be slower: a barrier suspends every lane.
{#
  Loads beyond the edges of A and B have no check; zero is selected beyond k. On SwiftShader 503×513×511 takes 206 ms of
  CPU time, and tile_2d 936. With a branch in each load instead, tiles of 8×32 compile for more than four minutes;
  without, tiles of 32×32 for 1.2 s.
#}
// Edges: for edges see common/lanes.wgsl. Workgroup memory: none. Needs subgroups of LANES lanes or more.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/lanes.wgsl" as lanes with context %}
{% include "common/header.wgsl" %}

{{ matrix.load_a4(select_k=s.edge_k) }}
{{ matrix.load_b4(select_k=s.edge_k) }}
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
{{ matrix.bases() }}
{{ lanes.declare_sums() }}
    //# inner
    for (var k = 0u; k < params.k; k += 4u) {
{% macro a(row) %}load_a4(a_base, {{ row }}, k){% endmacro %}
{% macro b(kk, j) -%}
load_b4(b_base, k{% if kk %} + {{ kk }}u{% endif %}, col{% if j %} + {{ j }}u * 4u * LANES{% endif %})
{%- endmacro %}
{{ lanes.multiply_step(a, b) }}
    }
    //# end
{{ lanes.store_sums() }}
}
