// fragments: measures the rate at which matrix units multiply {{ shape }},
// with {{ side * side }} independent sums per subgroup and no loads in the loop.
//
// The operands come from a buffer, so that the compiler cannot fold them, and every sum is stored, so that it cannot
// remove any. A workgroup is one subgroup, whose size is asked for where the engine can be.
{% set m, n, k = shape.m, shape.n, shape.k %}
{% set tint = dialect == "tint" %}
{% if shape.operands == "f16" %}
enable f16;
{% endif %}
{% if tint %}
enable subgroups;
enable chromium_experimental_subgroup_matrix;
{% if pinned %}
enable subgroup_size_control;
{% endif %}

// Offsets are uniform within a subgroup, which Tint cannot prove.
diagnostic(off, chromium.subgroup_matrix_uniformity);

alias Left = subgroup_matrix_left<{{ shape.operands }}, {{ k }}, {{ m }}>; // columns, rows
alias Right = subgroup_matrix_right<{{ shape.operands }}, {{ n }}, {{ k }}>;
alias Result = subgroup_matrix_result<{{ shape.result }}, {{ n }}, {{ m }}>;
{% else %}
enable wgpu_cooperative_matrix;

alias Left = coop_mat{{ m }}x{{ k }}<{{ shape.operands }}, A>;
alias Right = coop_mat{{ k }}x{{ n }}<{{ shape.operands }}, B>;
alias Result = coop_mat{{ m }}x{{ n }}<{{ shape.result }}, C>;
{% endif %}

{# Tint loads from words, a line along k being k / per_entry of them; naga from elements. #}
{% set per_entry = {"f32": 4, "f16": 8}.get(shape.operands, 16) if tint else 1 %}
{% set entry = "vec4<u32>" if tint else shape.operands %}
{% set word = {
  "f32": "bitcast<u32>(x)",
  "f16": "pack2x16float(vec2f(x))",
}.get(shape.operands, "u32(2.0 * x) * 0x01010101u") %}
{% set entries = ([m, n] | max) * k // per_entry %}
@group(0) @binding(0) var<storage, read> source: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4f>;

// Of A by rows and of B by columns: {{ side }} fragments, which the compiler cannot know to be equal
var<workgroup> operands: array<{{ entry }}, {{ side * entries }}>;
var<workgroup> sums: array<{{ shape.result }}, {{ side * side * m * n }}>;

@compute @workgroup_size({{ lanes }}){% if pinned %} @subgroup_size({{ lanes }}){% endif %}

fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) local_index: u32) {
    for (var i = local_index; i < {{ side * entries }}u; i += {{ lanes }}u) {
        let x = source[0][i / {{ entries }}u];
        operands[i] = {{ "vec4<u32>(" ~ word ~ ")" if tint else shape.operands ~ "(x)" }};
    }
    workgroupBarrier(); // the operands are complete before anyone reads them
{% for i in range(side) %}
{% if tint %}
    let a{{ i }} = subgroupMatrixLoad<Left, row_major>(&operands, {{ i * entries }}u, {{ k // per_entry }}u);
    let b{{ i }} = subgroupMatrixLoad<Right, col_major>(&operands, {{ i * entries }}u, {{ k // per_entry }}u);
{% else %}
    let a{{ i }} = coopLoadT<Left>(&operands[{{ i * entries }}], {{ k }}u);
    let b{{ i }} = coopLoad<Right>(&operands[{{ i * entries }}], {{ k }}u);
{% endif %}
{% endfor %}
{% for i in range(side * side) %}
    var sum{{ i }} = Result();
{% endfor %}
    for (var i = 0u; i < {{ iterations }}u; i++) {
{% for u in range(unroll) %}
{% for i in range(side * side) %}
{% set multiply_add = "subgroupMatrixMultiplyAccumulate" if tint else "coopMultiplyAdd" %}
        sum{{ i }} = {{ multiply_add }}(a{{ i // side }}, b{{ i % side }}, sum{{ i }});
{% endfor %}
{% endfor %}
    }
{% for i in range(side * side) %}
{% if tint %}
    subgroupMatrixStore<row_major>(&sums, {{ i * m * n }}u, sum{{ i }}, {{ n }}u);
{% else %}
    coopStoreT(sum{{ i }}, &sums[{{ i * m * n }}], {{ n }}u);
{% endif %}
{% endfor %}
    workgroupBarrier(); // the sums are complete before anyone reads them
    var total = 0.0;
    for (var i = local_index; i < {{ side * side * m * n }}u; i += {{ lanes }}u) {
        total += f32(sums[i]);
    }
    result[id.x] = vec4f(total);
}
