{# Sums of products of slices, for `slices` and `slices_unit`, whose headers describe the method. #}
{% macro sum_functions() %}
const CHUNK: u32 = {{ kernel.most }}u; // words whose products i32 can add: 4 · CHUNK · 127² < 2³¹
const KEPT: u32 = {{ s.kept }}u; // slices per element

// The absolute values of four signed bytes, none of which is -128
fn magnitudes(x: vec4u) -> vec4u {
    let negative = (x >> vec4u(7u)) & vec4u(0x01010101u);
    return (x ^ (negative * 255u)) + negative;
}

// sum + x·2^shift, in 96 bits
fn added(sum: vec3u, x: i32, shift: u32) -> vec3u {
    let fill = u32(x >> 31u);
    var v = vec3u(u32(x), fill, fill);
    if (shift >= 32u) {
        v = vec3u(0u, v.xy);
    }
    let n = shift % 32u;
    if (n > 0u) {
        v = (v << vec3u(n)) | (vec3u(0u, v.xy) >> vec3u(32u - n));
    }
    var s = sum + v;
    let carry = select(vec2u(0u), vec2u(1u), s.xy < v.xy);
    s.y += carry.x;
    s.z += carry.y + select(0u, 1u, s.y < carry.x);
    return s;
}

// Adds a sum in i32 of products of the given weight to wide[z, row, col], which is 0 before if `fresh`.
fn keep(z: u32, row: u32, col: u32, value: i32, weight: u32, fresh: bool) {
    if (row >= params.m || col >= params.n) {
        return;
    }
    let place = (z * params.m + row) * params.n + col;
    var w = vec4u();
    if (!fresh) {
        w = wide[place];
    }
    if (weight == 0u) {
        w.w = min(w.w + u32(value), 0x40000000u);
    } else {
        w = vec4u(added(w.xyz, value, 7u * (KEPT + 1u - weight)), w.w);
    }
    wide[place] = w;
}
{% endmacro %}

{#
  The loop over weights, and over chunks of a weight's product whose sums i32 can hold: the caller's statements multiply
  words chunk..end of A by those from `first` on in B.
#}
{% macro for_each_chunk() %}
    //# pairs
    // Weight 0 is the product of the first slices' magnitudes; the others are s + t, from KEPT + 1 down to 2.
    for (var step = 0u; step <= KEPT; step++) {
        let weight = select(KEPT + 2u - step, 0u, step == 0u);
        let pairs = select(weight - 1u, 1u, step == 0u);
        let first = (KEPT - pairs) * words; // in B, whose slices are stored in reverse order
        for (var chunk = 0u; chunk < pairs * words; chunk += CHUNK) {
            let end = min(pairs * words, chunk + CHUNK);
            let fresh = step == 0u && chunk == 0u;
    //# end
{{ caller() }}
        }
    }
{% endmacro %}
