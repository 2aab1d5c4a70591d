// tile_1d: C = A·B, four consecutive elements of a row of C per invocation.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from workgroup_2d: each element of A is loaded once and used four times: 5 loads for 4 FMAs instead of 8.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ matrix.load_a(row=s.edge_m) }}
{{ matrix.load_b(col=s.edge_n) }}
{{ matrix.store_c(row=s.edge_m, col=s.edge_n) }}
//# place
@compute @workgroup_size(WX, WY)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin("WY", "(4u * WX)") }}
    let row = row0 + local.y;
    let col = col0 + local.x * 4u;
    //# end
{{ matrix.bases() }}
    //# inner
    var acc = {{ vec4r }}();
{% call matrix.k_loop() %}
        let a_reg = load_a(a_base, row, k);
        let b_reg = {{ vec4r }}(
            load_b(b_base, k, col),
            load_b(b_base, k, col + 1u),
            load_b(b_base, k, col + 2u),
            load_b(b_base, k, col + 3u),
        );
        dbg(LOADED_A, row, dbg_col(col, 4u), k, a_reg);
        dbg_n(LOADED_B, row, col, k, b_reg);
        acc = fma({{ vec4r }}(a_reg), b_reg, acc);
        dbg_n(ACC, row, col, k, acc);
{% endcall %}
    //# end
{% for j in range(4) %}
    store_c(c_base, row, col + {{ j }}u, acc[{{ j }}]);
{% endfor %}
}
