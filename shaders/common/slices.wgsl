{# Sums of products of slices: what the stages that multiply them share. #}
{% macro sums() %}
const CHUNK: u32 = {{ kernel.most }}u; // words: 4 · CHUNK · 127² < 2³¹
const KEPT: u32 = {{ s.kept }}u;

// Bytes without their signs; none is -128.
fn magnitudes(x: vec4u) -> vec4u {
    let negative = (x >> vec4u(7u)) & vec4u(0x01010101u);
    return (x ^ (negative * 255u)) + negative;
}

// sum + x·2^shift, of 96 bits
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

{# The loop over weights, and over as much of a weight's product as i32 can add up: `first` is where it starts in B. #}
{% macro weights() %}
    // Weight 0 stands for the magnitudes of the first slices; then come s + t = KEPT + 1 down to 2.
    for (var step = 0u; step <= KEPT; step++) {
        let weight = select(KEPT + 2u - step, 0u, step == 0u);
        let pairs = select(weight - 1u, 1u, step == 0u);
        let first = (KEPT - pairs) * words; // of B: its slices lie in the other order, and so beside their partners
        for (var chunk = 0u; chunk < pairs * words; chunk += CHUNK) {
            let end = min(pairs * words, chunk + CHUNK);
            let fresh = step == 0u && chunk == 0u;
{{ caller() }}
        }
    }
{% endmacro %}
