// columns: C = A·B, TM rows of one column of C per invocation.
//
// Changed from naive: a workgroup is one row of WIDTH invocations, which read consecutive elements of B; each loaded
// element of B is used for TM rows.
// Shapes: any. Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ matrix.load_a(row=s.edge_m) }}
{{ matrix.load_b() }}
{{ matrix.store_c(row=s.edge_m) }}
@compute @workgroup_size(WIDTH)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ matrix.tile_origin("TM", "WIDTH") }}
    let col = col0 + local_index;
    if (col >= params.n) {
        return;
    }
{{ matrix.bases() }}
    var sum: array<{{ real }}, TM>;
{% call matrix.k_loop() %}
        let b_reg = load_b(b_base, k, col);
        dbg(LOADED_B, dbg_row(row0, TM), col, k, b_reg);
        for (var i = 0u; i < TM; i++) {
            let a_reg = load_a(a_base, row0 + i, k);
            dbg(LOADED_A, row0 + i, col, k, a_reg);
            sum[i] = fma(a_reg, b_reg, sum[i]);
            dbg(ACC, row0 + i, col, k, sum[i]);
        }
{% endcall %}
    for (var i = 0u; i < TM; i++) {
        store_c(c_base, row0 + i, col, sum[i]);
    }
}
