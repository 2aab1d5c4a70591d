{% set lines = "rows of A" if kernel.side == "a" else "columns of B" %}
{% set first_stored = "first" if kernel.side == "a" else "last" %}
// slice_{{ kernel.side }}: the {{ lines }}, each cut into {{ s.kept }} slices of 7 bits.
//
// Storage: {{ kernel.side }} of doubles, two words each; slices (batch, line, slice, k), four bytes per u32, the
// {{ first_stored }} slice first, k padded with zeros to a multiple of STEP words; lines (batch, line): the largest
// exponent, as doubles store it, and the number of the last nonzero slice, {{ kernel.inexact }} if bits remain.
// First dispatch of slices. A line is a row of A or a column of B. Each element is divided by a power of two above the
// line's largest element; its digits of 7 bits, truncated towards zero, have the element's sign.
// Workgroup memory: 4 words per invocation.
{% include "common/header.wgsl" %}

{% set x = kernel.side %}
{% set length = "params.m" if x == "a" else "params.n" %}
{% set along_k = (not s.trans_a) if x == "a" else s.trans_b %}
const LINES: u32 = {{ kernel.at_once }}u; // per workgroup
const SHARERS: u32 = LINES; // invocations per line
const BEYOND: u32 = (1u << {{ 56 - 7 * s.kept }}u) - 1u; // the bits of a fraction's low word that no slice holds

// The largest high word; later the bitwise or of an invocation's fractions: high digits, low digits, remaining bits
var<workgroup> found: array<array<vec4u, SHARERS>, LINES>;

// |x| divided by the line's power of two: 28 high bits, 28 low bits, and any remaining bits
fn fraction(x: vec2u, field: u32) -> vec3u {
    let own = (x.y >> 20u) & 0x7ffu;
    let m = vec2u(x.x, (x.y & 0xfffffu) | select(0u, 0x100000u, own > 0u));
    let n = field - max(own, 1u);
    var high = (m.y << 7u) | (m.x >> 25u);
    var low = (m.x << 3u) & 0xfffffffu;
    if (n >= 56u) {
        return vec3u(0u, 0u, high | low);
    }
    var lost = 0u;
    if (n >= 28u) {
        lost = low;
        low = high;
        high = 0u;
    }
    let r = n % 28u;
    lost |= low & ((1u << r) - 1u);
    low = (low >> r) | ((high << (28u - r)) & 0xfffffffu);
    return vec3u(high >> r, low, lost);
}

{# The 7 bits of slice number `slice` of a fraction, or of a bitwise or of fractions. #}
{% macro digit(f, slice) %}(({{ f }}.{{ "xy"[slice // 4] }} >> {{ 21 - slice % 4 * 7 }}u) & 127u){% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{% if along_k %}
    let local_line = local_index / SHARERS;
    let sharer = local_index % SHARERS;
{% else %}
    let local_line = local_index % LINES;
    let sharer = local_index / LINES;
{% endif %}
    let line = (workgroup.x + workgroup.y * grid.x) * LINES + local_line;
    let words = (params.k + 4u * STEP - 1u) / (4u * STEP) * STEP;
{% set line_start = "line * params.ld" ~ x if along_k else "line" %}
    let base = params.{{ x }}_offset + workgroup.z * params.{{ x }}_batch_stride + {{ line_start }};
    let inside = line < {{ length }}; // lines beyond the last have no elements
    let reach = select(0u, params.k, inside);
    var highest = 0u;
    for (var k = sharer; k < reach; k += SHARERS) {
        highest = max(highest, {{ x }}[base + k{{ "" if along_k else " * params.ld" ~ x }}].y & 0x7fffffffu);
    }
    found[local_line][sharer].x = highest;
    workgroupBarrier(); // every invocation's largest is complete before anyone reads it
    for (var i = 0u; i < SHARERS; i++) {
        highest = max(highest, found[local_line][i].x);
    }
    let field = max(highest >> 20u, 1u);
    var digits = vec3u();
    for (var word = sharer; word < select(0u, words, inside); word += SHARERS) {
        var packed = array<u32, {{ s.kept }}>(); // explicit zeros: naga would keep the values of the previous iteration
        for (var i = 0u; i < 4u; i++) {
            let k = word * 4u + i;
            if (k < params.k) {
                let x = {{ x }}[base + k{{ "" if along_k else " * params.ld" ~ x }}];
                let f = fraction(x, field);
                digits |= f;
                let negative = x.y >> 31u == 1u;
{% for slice in range(s.kept) %}
{% set magnitude = digit("f", slice) %}
                packed[{{ slice }}] |= (select({{ magnitude }}, 0u - {{ magnitude }}, negative) & 255u) << (8u * i);
{% endfor %}
            }
        }
        let place = (workgroup.z * {{ length }} + line) * {{ s.kept }}u * words + word;
{% for slice in range(s.kept) %}
        {{ x }}_slices[place + {{ slice if x == "a" else s.kept - 1 - slice }}u * words] = packed[{{ slice }}];
{% endfor %}
    }
    workgroupBarrier(); // everyone has read the largest before it is overwritten
    found[local_line][sharer] = vec4u(highest, digits);
    workgroupBarrier(); // every invocation's digits are complete before they are combined
    if (sharer == 0u && inside) {
        for (var i = 0u; i < SHARERS; i++) {
            digits |= found[local_line][i].yzw;
        }
        var last = 0u;
{% for slice in range(s.kept) %}
        last = select(last, {{ slice + 1 }}u, {{ digit("digits", slice) }} != 0u);
{% endfor %}
{% set bits_left = "(digits.z | (digits.y & BEYOND)) != 0u" %}
{% set last = "select(last, " ~ kernel.inexact ~ "u, " ~ bits_left ~ ")" %}
        {{ x }}_lines[workgroup.z * {{ length }} + line] = vec2u(field, {{ last }});
    }
}
