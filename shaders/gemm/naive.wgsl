// naive: C = A·B, one invocation per element of C.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// The first stage, which the others are compared with. A workgroup of one invocation leaves all other lanes of the
// hardware's vector unit idle, and each loaded value is used only once.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

//# loads
{{ matrix.load_a() }}
{{ matrix.load_b() }}
//# end
{{ matrix.store_c() }}
//# place
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) grid: vec3u) {
    let index = workgroup.x + workgroup.y * grid.x;
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
