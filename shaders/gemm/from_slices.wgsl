// from_slices: C = the sums of slices, rounded to float64 once, then the epilogue.
//
// Storage: wide (batch, row, column) as slices.wgsl stores it; a_lines and b_lines as slice.wgsl stores them; A, B and
// C of doubles.
// Last dispatch of slices. A sum is used if it is exact, or if Σ|a||b| of the first slices is at least ENOUGH: with e
// and f the exponents of the powers of two of its row and its column, the omitted products are less than
// k·(KEPT + 1.1)·2^(e + f - 7·KEPT), which is then below the bound k·2⁻⁵²·(|A|·|B|) minus the rounding of the result.
// All other elements, including those with NaN and infinities, are computed again, term by term.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/double.wgsl" as double with context %}
{% include "common/header.wgsl" %}

const ENOUGH: u32 = {{ s.enough }}u;

{{ double.arithmetic() }}
{{ double.dot() }}
{{ double.store() }}
@compute @workgroup_size({{ kernel.workgroup_size[0] }}, {{ kernel.workgroup_size[1] }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin(kernel.grid.tile_m ~ "u", kernel.grid.tile_n ~ "u") }}
    let row = row0 + local.y;
    let col = col0 + local.x;
    if (row >= params.m || col >= params.n) {
        return;
    }
{{ matrix.bases() }}
    //# inner
    let a_line = a_lines[select(workgroup.z, 0u, params.a_batch_stride == 0u) * params.m + row];
    let b_line = b_lines[select(workgroup.z, 0u, params.b_batch_stride == 0u) * params.n + col];
    let sum = wide[(workgroup.z * params.m + row) * params.n + col];
    let exact = a_line.y == 0u || b_line.y == 0u || a_line.y + b_line.y <= {{ s.kept + 1 }}u;
    var value: vec2u;
    if (max(a_line.x, b_line.x) < 2047u && (exact || sum.w >= ENOUGH)) {
        let negative = sum.z >> 31u;
        let m = vec4u(sum.xyz, select(0u, 0xffffffffu, negative == 1u));
{% set magnitude = "select(m, negated(m), vec4<bool>(negative == 1u))" %}
{% set exponent %}i32(a_line.x + b_line.x) - 2044 - {{ 7 * (s.kept + 1) }}{% endset %}
        value = rounded(negative << 31u, {{ magnitude }}, {{ exponent }});
    } else {
        value = dot_of(a_base, b_base, row, col);
    }
    //# end
    store_c(c_base, row, col, value);
}
