// cpu_lanes: C = A·W for CPU adapters, W quantised weights; a TM × TN tile of C per lane.
//
// Storage: A (m, k) with its own row stride, f32 or f16; W (k, n) by columns, {{ s.per_word }} weights of {{ s.bits }}
// bits to a u32, with a scale and a zero point per block of {{ s.block }}; C (m, n), dense. Accumulation in f32.
// This is gemm/cpu_lanes, except that each lane unpacks the weights of its columns, a word of each at a time.
// Changed from tiles: no workgroup memory, which is slow on a CPU, since a barrier suspends every lane.
{#
  CPU time in ms at 128×1024×1024, 4 bits, of `vector`, which was chosen before, and of this stage: 455 and 198 on
  SwiftShader, 119 and 16 on lavapipe. In Chromium on SwiftShader, `vector` had 0.74 of ONNX Runtime Web's speed, and
  1.27 and 1.47 in the two runs in which this stage had 2.65 and 4.29.
#}
// Edges: for edges see common/lanes.wgsl. Workgroup memory: none. Needs subgroups of LANES lanes or more.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/lanes.wgsl" as lanes with context %}
{% import "common/weights.wgsl" as weights with context %}
{% include "common/header.wgsl" %}

{{ weights.constants() }}
{% set fours = range(kernel.tn // 4) %}
{{ matrix.load_a4(select_k=s.edge_k) }}
{{ weights.zero_function() }}
{{ matrix.store_c4(col=s.edge_n) }}
{# Components for the j-th four columns: what the caller writes for each column's first weight, `start_J_C`. #}
{% macro of_columns(type, j) -%}
{{ type }}({% for c in range(4) %}{{ caller("start_" ~ j ~ "_" ~ c) }}{{ ", " if c < 3 }}{% endfor %})
{%- endmacro %}
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
{{ matrix.tile_origin("TM", "(LANES * TN)") }}
    let row = row0 + lane % TM; // the row of A that this lane loads
    let col = col0 + lane * 4u;
    let a_base = params.a_offset;
    let c_base = 0u;
{% for j in fours %}
{% for c in range(4) %}
    let start_{{ j }}_{{ c }} = (col + {{ j }}u * 4u * LANES + {{ c }}u) * params.ldb;
{% endfor %}
{% endfor %}
{{ lanes.declare_sums() }}
    for (var k0 = 0u; k0 < params.k; k0 += BLOCK) {
{% for j in fours %}
        let scale_{{ j }} = {% call(at) of_columns("vec4f", j) %}scales[({{ at }} + k0) / BLOCK]{% endcall %};
        let zero_{{ j }} = {% call(at) of_columns("vec4f", j) %}zero_of(({{ at }} + k0) / BLOCK){% endcall %};
{% endfor %}
        for (var k_word = k0; k_word < min(k0 + BLOCK, params.k); k_word += PER_WORD) {
{% for j in fours %}
            let words_{{ j }} = {% call(at) of_columns("vec4u", j) %}b[({{ at }} + k_word) / PER_WORD]{% endcall %};
{% endfor %}
{% for four in range(s.per_word // 4) %}
            {
                let k = k_word + {{ 4 * four }}u;
{% macro a(row) %}load_a4(a_base, {{ row }}, k){% endmacro %}
{% macro b(kk, j) -%}
scale_{{ j }} * (vec4f((words_{{ j }} >> vec4u({{ 4 * four + kk }}u * BITS)) & vec4u((1u << BITS) - 1u)) - zero_{{ j }})
{%- endmacro %}
{{ lanes.multiply_step(a, b) }}
            }
{% endfor %}
        }
    }
{{ lanes.store_sums() }}
}
