// workgroup_1d: C = A·B, one invocation per element of C, workgroups of SIZE in a line.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from naive: workgroups are large enough to occupy every lane. Consecutive invocations compute consecutive
// elements of a row of C: they read the same element of A and consecutive elements of B.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ matrix.load_a() }}
{{ matrix.load_b() }}
{{ matrix.store_c() }}
//# place
@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = (workgroup.x + workgroup.y * grid.x) * SIZE + local_index;
    let row = index / params.n;
    let col = index % params.n;
    if (row >= params.m) {
        return;
    }
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
