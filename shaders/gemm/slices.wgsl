// slices: C = A·B in float64 by exact products of 8-bit integers (Ozaki's scheme), TM × TN elements per invocation.
//
// Storage: slices (batch, slice, line, k) as slice.wgsl leaves them; wide (batch, row, column): the sum in units of 2⁻⁶³
// times the powers of two of its row and its column, three words in two's complement, and Σ|a||b| of the first slices
// in units of 2⁻¹⁴, from which the next dispatch (from_slices) tells whether the sum is good enough.
// What slices s and t weigh depends on s + t alone: pairs of equal weight are added up in i32, CHUNK words of k at a time
// so that it cannot overflow, and then go to the sum in storage. Pairs beyond the weight of the last slice are left out.
// Shapes: any; tiles that hang over an edge are filled with zeros. Workgroup memory: (BM + BN)·BK·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{% set loads = {"a": kernel.bm * kernel.bk // kernel.invocations, "b": kernel.bn * kernel.bk // kernel.invocations} %}
const CHUNK: u32 = {{ kernel.chunk }}u; // words: {{ kernel.slices }} pairs · 4 · CHUNK · 127² < 2³¹
const WX = BN / TN;
const WY = BM / TM;
const KEPT: u32 = {{ kernel.slices }}u;

{% for x, size in (("a", "BM"), ("b", "BN")) %}
var<workgroup> {{ x }}_tile: array<array<array<u32, 4>, {{ size }} / 4u>, BK>; // [word][line/4][line%4]
{% endfor %}

{% for x, length in (("a", "m"), ("b", "n")) %}
fn load_{{ x }}(base: u32, line: u32, word: u32, words: u32) -> u32 {
    if (line >= params.{{ length }} || word >= words) {
        return 0u;
    }
    return {{ x }}_slices[base + line * words + word];
}

{% endfor %}
// Four bytes without their signs; none is -128.
fn magnitudes(x: u32) -> u32 {
    let negative = (x >> 7u) & 0x01010101u;
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

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ matrix.tile_origin("BM", "BN") }}
    let lx = lane % WX;
    let ly = lane / WX;
    let words = (params.k + 3u) / 4u;
    let a_z = select(workgroup.z, 0u, params.a_batch_stride == 0u);
    let b_z = select(workgroup.z, 0u, params.b_batch_stride == 0u);
    // Weight 0 stands for the magnitudes of the first slices; then come s + t = KEPT + 1 down to 2.
    for (var step = 0u; step <= KEPT; step++) {
        let weight = select(KEPT + 2u - step, 0u, step == 0u);
        let pairs = select(weight - 1u, 1u, step == 0u);
        for (var chunk = 0u; chunk < words; chunk += CHUNK) {
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            var acc_{{ r }}_{{ j }} = vec4i();
{% endfor %}
{% endfor %}
            for (var pair = 0u; pair < pairs; pair++) {
                let a_base = (a_z * KEPT + pair) * params.m * words;
                let b_base = (b_z * KEPT + pairs - 1u - pair) * params.n * words;
                for (var k0 = chunk; k0 < min(words, chunk + CHUNK); k0 += BK) {
{% for x, origin in (("a", "row0"), ("b", "col0")) %}
{% for i in range(loads[x]) %}
                    {
                        let at = lane + {{ i * kernel.invocations }}u;
                        let line = at / BK;
                        var word = load_{{ x }}({{ x }}_base, {{ origin }} + line, k0 + at % BK, words);
                        if (step == 0u) {
                            word = magnitudes(word);
                        }
                        {{ x }}_tile[at % BK][line / 4u][line % 4u] = word;
                    }
{% endfor %}
{% endfor %}
                    workgroupBarrier(); // the tiles are complete before anyone reads them
{% for kk in range(kernel.bk) %}
                    {
{% for i in range(kernel.tm // 4) %}
                        let a{{ i }} = a_tile[{{ kk }}][ly + {{ i }}u * WY];
{% endfor %}
{% for j in range(kernel.tn // 4) %}
                        let b{{ j }} = b_tile[{{ kk }}][lx + {{ j }}u * WX];
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
                        acc_{{ r }}_{{ j }} += vec4i({% for c in range(4) %}dot4I8Packed(a{{ r // 4 }}[{{ r % 4 }}], b{{ j }}[{{ c }}]){{ ", " if c < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
                    }
{% endfor %}
                    workgroupBarrier(); // everyone is done with the tiles before they are overwritten
                }
            }
            let fresh = step == 0u && chunk == 0u;
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
{% for c in range(4) %}
            keep(workgroup.z, row0 + (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u, col0 + (lx + {{ j }}u * WX) * 4u + {{ c }}u, acc_{{ r }}_{{ j }}[{{ c }}], weight, fresh);
{% endfor %}
{% endfor %}
{% endfor %}
        }
    }
}
