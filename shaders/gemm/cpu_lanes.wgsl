// cpu_lanes: C = A·B, made for CPUs that stand in for a GPU: TM × TN of C per invocation, A shared by subgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; bound as array<vec4> where the contiguous length
// is a multiple of 4 and runs along k in A, along n in B; accumulation in f32.
// Changed from tile_2d: an element of A is loaded once per subgroup, by the lane whose turn it is, and broadcast. A CPU
// loads from a buffer element by element, lane by lane, and checks each; FMAs and shuffles cover all lanes at once.
// Workgroup memory, the GPU's way to share, is the slowest way there: a barrier suspends every lane.
// Shapes: any (common/lanes.wgsl: edges). Workgroup memory: none. Needs subgroups of LANES lanes or more.
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
    let row = row0 + lane % TM; // the row of A that this lane fetches
    let col = col0 + lane * 4u;
{{ matrix.bases() }}
{{ lanes.accumulators() }}
    for (var k = 0u; k < params.k; k += 4u) {
{% macro a(row) %}load_a4(a_base, {{ row }}, k){% endmacro %}
{% macro b(kk, j) -%}
load_b4(b_base, k{% if kk %} + {{ kk }}u{% endif %}, col{% if j %} + {{ j }}u * 4u * LANES{% endif %})
{%- endmacro %}
{{ lanes.multiply(a, b) }}
    }
{{ lanes.store() }}
}
