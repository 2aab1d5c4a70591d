// software: C = A·B in float64 by integer arithmetic, one element of C per invocation.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; a double is two words, the low word first.
// For engines without f64, and for any operands: each product and each sum is rounded to nearest even, as in IEEE 754.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/double.wgsl" as double with context %}
{% include "common/header.wgsl" %}

{{ double.arithmetic() }}
{{ double.dot() }}
{{ double.store() }}
@compute @workgroup_size(WX, WY)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin("WY", "WX") }}
    let row = row0 + local.y;
    let col = col0 + local.x;
    if (row >= params.m || col >= params.n) {
        return;
    }
{{ matrix.bases() }}
    store_c(c_base, row, col, dot_of(a_base, b_base, row, col));
}
