// unpacked: C = a product of 8-bit integers, four consecutive elements of C per invocation, byte by byte.
//
// Storage: A (m, k), B (k, n), four bytes per u32, each with its own row stride; C (m, n), dense. Accumulation in i32.
// The first stage, and the definition of the result: Σ (A - zero_a)·(B - zero_b), then bias and requantisation.
// Workgroup memory: none.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{% include "common/header.wgsl" %}

{% for x, signed in (("a", s.signed_a), ("b", s.signed_b)) %}
fn byte_of_{{ x }}(i: u32) -> i32 {
    let shift = i % 4u * 8u;
{% if signed %}
    return bitcast<i32>({{ x }}[i / 4u] << (24u - shift)) >> 24u; // arithmetic shift, which extends the sign
{% else %}
    return i32(({{ x }}[i / 4u] >> shift) & 0xffu);
{% endif %}
}

{% endfor %}
{{ quantized.column_terms(sums=false) }}
{{ quantized.store_c4() }}
@compute @workgroup_size(WX, WY)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin("WY", "(4u * WX)") }}
    let row = row0 + local.y;
    let col = col0 + local.x * 4u;
{{ quantized.return_outside("col") }}
    let columns = columns_from(col);
    let zero_a = {{ quantized.zero_of_a() }};
    let zeros_b = {{ quantized.zeros_of_b() }};
    var sums = vec4i();
    //# inner
{% call matrix.k_loop() %}
{% set a_index = "k * params.lda + row" if s.trans_a else "row * params.lda + k" %}
        let a_reg = byte_of_a(params.a_offset + {{ a_index }}) - zero_a;
        let b_reg = vec4i(
{% for j in range(4) %}
{% set col = "col + " ~ j ~ "u" %}
{% set b_index = "(" ~ col ~ ") * params.ldb + k" if s.trans_b else "k * params.ldb + " ~ col %}
            byte_of_b(params.b_offset + {{ b_index }}),
{% endfor %}
        ) - zeros_b;
        dbg(LOADED_A, row, dbg_col(col, 4u), k, f32(a_reg));
        dbg_n(LOADED_B, row, col, k, vec4f(b_reg));
        sums += a_reg * b_reg;
        dbg_n(ACC, row, col, k, vec4f(sums));
{% endcall %}
    //# end
    store_c4(row, columns, sums);
}
