// workgroup_2d: C = A·B, one invocation per element of C, workgroups of BM × BN invocations.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from workgroup_1d: a workgroup computes a BM × BN tile of C, so it reads BM rows of A and BN columns of B
// instead of one row of A and SIZE columns of B, and its invocations share their cache lines.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ matrix.load_a() }}
{{ matrix.load_b() }}
{{ matrix.store_c() }}
//# place
@compute @workgroup_size(BN, BM)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin("BM", "BN") }}
    let row = row0 + local.y;
    let col = col0 + local.x;
{% if s.edge_m or s.edge_n %}
    if (row >= params.m || col >= params.n) {
        return;
    }
{% endif %}
    //# end
{{ matrix.bases() }}
    //# inner
    var sum: {{ real }} = 0.0;
{% call matrix.k_loop() %}
        let a_reg = load_a(a_base, row, k);
        let b_reg = load_b(b_base, k, col);
        dbg(LOADED_A, row, col, k, a_reg);
        dbg(LOADED_B, row, col, k, b_reg);
        sum = fma(a_reg, b_reg, sum);
        dbg(ACC, row, col, k, sum);
{% endcall %}
    store_c(c_base, row, col, sum);
    //# end
}
