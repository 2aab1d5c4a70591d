// tile_2d: C = A·B, a TM × 4 tile of C per invocation.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from tile_1d: each element of B is used for TM rows, too: TM + 4 loads for 4·TM FMAs. The template writes out
// one variable per row, since drivers may keep an array that a loop indexes in memory.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ matrix.load_a(row=s.edge_m) }}
{{ matrix.load_b(col=s.edge_n) }}
{{ matrix.store_c(row=s.edge_m, col=s.edge_n) }}
@compute @workgroup_size(WX, WY)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin("(TM * WY)", "(4u * WX)") }}
    let row = row0 + local.y * TM;
    let col = col0 + local.x * 4u;
{{ matrix.bases() }}
    //# inner
{% for i in range(kernel.tm) %}
    var acc_{{ i }} = {{ vec4r }}();
{% endfor %}
{% call matrix.k_loop() %}
        let b_reg = {{ vec4r }}(
            load_b(b_base, k, col),
            load_b(b_base, k, col + 1u),
            load_b(b_base, k, col + 2u),
            load_b(b_base, k, col + 3u),
        );
        dbg_n(LOADED_B, dbg_row(row, TM), col, k, b_reg);
{% for i in range(kernel.tm) %}
        let a_reg{{ i }} = load_a(a_base, row + {{ i }}u, k);
        dbg(LOADED_A, row + {{ i }}u, dbg_col(col, 4u), k, a_reg{{ i }});
        acc_{{ i }} = fma({{ vec4r }}(a_reg{{ i }}), b_reg, acc_{{ i }});
        dbg_n(ACC, row + {{ i }}u, col, k, acc_{{ i }});
{% endfor %}
{% endcall %}
    //# end
{% for i in range(kernel.tm) %}
{% for j in range(4) %}
    store_c(c_base, row + {{ i }}u, col + {{ j }}u, acc_{{ i }}[{{ j }}]);
{% endfor %}
{% endfor %}
}
