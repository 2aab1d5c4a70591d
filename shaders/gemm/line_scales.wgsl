// line_scales: for each row of A and column of B, the power of two that scales its largest element to at least 2¹⁴.
//
// Storage: A (m, k), B (k, n); lines (batch, m + n): the scale, and the least magnitude of a scaled element of C for
// which the bound holds regardless of the error of the line's small elements (docs/precision.md):
//
//   -1e30                for a line of zeros, whose products are zero
//   0                    for a line with a NaN, whose products are NaN, or without small elements: nonzero ones below
//                        2⁻¹ after scaling
//   3e38                 for a line with an infinity, which cannot be split: all of its products are in doubt
//   small / K · 2¹⁵      otherwise; `small` is at least the number of small elements: the sum of 1/|x|, which does not
//                        need the largest element in advance
//
// Whole numbers below 2¹⁴ have no small elements. This matters because many of their sums are zero, which is less than
// any threshold: before this rule, 2048³ of numbers from -2 to 2 took 3.0 ms on an H200, and 0.21 with it.
//
// First dispatch of matrix_unit_high. A line is a row of A or a column of B; LINES of them per workgroup. It also
// clears the doubts.
{#
  On an H200: 32, 64 or 128 bytes of a row per workgroup, for lines across k, take 198, 178 and 167 µs at 8192³, 23, 22
  and 22 at 2048³. One pass over A and B, with each element weighted by the inverse of its magnitude, instead of a
  second one that counts small elements: 84 → 56 µs.
#}
// Workgroup memory: {{ kernel.workgroup_bytes }} bytes.
{% include "common/header.wgsl" %}

const LINES: u32 = {{ kernel.lines }}u; // rows or columns per workgroup

var<workgroup> largest: array<atomic<u32>, LINES>; // bits of the largest finite |x|
var<workgroup> largest_inverse: array<atomic<u32>, LINES>; // bits of the largest 1/|x|, within a factor of 2
var<workgroup> special: array<atomic<u32>, LINES>; // 1 if there is an infinity, 2 if there is a NaN, 3 if both
// Sums of 1/|x|, within a factor of 2, one for each invocation that shares a line
var<workgroup> small: array<array<f32, 128>, LINES>;

{% for x, along_k, vec in (("A", not s.trans_a, s.vec_a), ("B", s.trans_b, s.vec_b)) %}
const PARTS_{{ x }}: u32 = {{ 128 if vec and not along_k else 32 }}u; // invocations that share a line
{% endfor %}
const INFINITY: u32 = 0x7f800000u; // bits of |x|

// The power of two that scales |x| to at least 2¹⁴, within f32's range
fn scale_of(bits: u32) -> f32 {
    return bitcast<f32>(min(268u - (bits >> 23u), 253u) << 23u);
}

{#
  `what` for each k of an invocation's lines, w of them at once, four loads per iteration, since engines keep drivers
  from unrolling loops.
#}
{% macro pass(o, w, what) %}
{% set type = "vec4<u32>" if w > 1 else "u32" %}
{% set groups = 1 if o.along_k else kernel.lines // w %}
{% set step = w * 32 if o.along_k else kernel.invocations // groups %}
{% if o.along_k %}
        var k = local_index % 32u{% if w > 1 %} * {{ w }}u{% endif %};
{% else %}
        var k = local_index / {{ groups }}u;
{% endif %}
{% for count in (4, 1) %}
        for (; k {% if count > 1 %}+ {{ 3 * step }}u {% endif %}< params.k; k += {{ count * step }}u) {
{% set outer, inner = ("line", "k") if o.along_k else ("k", "line") %}
            let at = base + {{ outer }} * params.ld{{ o.x }} + {{ inner }};
{% for i in range(count) %}
{% set place %}at + {{ i * step }}u{% if not o.along_k %} * params.ld{{ o.x }}{% endif %}{% endset %}
            let x{{ i }} = {{ o.x }}[{{ "(" ~ place ~ ") / 4u" if w > 1 else place }}];
{% endfor %}
{% for i in range(count) %}
            {
            let bits = bitcast<{{ type }}>(x{{ i }}) & {{ "vec4<u32>(0x7fffffffu)" if w > 1 else "0x7fffffffu" }};
{{ what }}
            }
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{% for o in [
  {"x": "a", "size": "m", "along_k": not s.trans_a, "vec": s.vec_a},
  {"x": "b", "size": "n", "along_k": s.trans_b, "vec": s.vec_b},
] %}
{% set w = 4 if o.vec else 1 %}
{% set type, floats = ("vec4<u32>", "vec4f") if o.vec else ("u32", "f32") %}
{% set components = "xyzw"[:w] %}
// Scans LINES {{ "rows of A" if o.x == "a" else "columns of B" }} from `first` on; the matrix starts at `base`.
fn scan_{{ o.x }}(base: u32, first: u32, local_index: u32) {
{% if o.along_k %}
    let local_line = local_index / 32u;
{% else %}
    let local_line = local_index % {{ kernel.lines // w }}u{{ " * 4u" if o.vec }};
{% endif %}
    let line = first + local_line;
    if (line < params.{{ o.size }}) {
        var top = {{ type }}();
        var odd = {{ type }}();
        var inverse = {{ floats }}();
        var top_inverse = {{ floats }}();
{% set what %}
            let finite = bits < {{ type }}(INFINITY);
            top = max(top, select({{ type }}(), bits, finite));
            odd |= select(select({{ type }}(2u), {{ type }}(1u), bits == {{ type }}(INFINITY)), {{ type }}(), finite);
{% set inverse %}{{ type }}(0x7f000000u) - min(bits, {{ type }}(0x7e800000u)){% endset %}
            let power = bitcast<{{ floats }}>(({{ inverse }}) & {{ type }}(INFINITY));
            let counted = select({{ floats }}(), power, bits > {{ type }}());
            inverse += counted;
            top_inverse = max(top_inverse, counted);
{% endset %}
{{ pass(o, w, what) }}
{% for c in components %}
{% set local_line = "local_line" if o.along_k or w == 1 else "local_line + " ~ loop.index0 ~ "u" %}
{% set sharer = "local_index % 32u" if o.along_k else "local_index / " ~ kernel.lines // w ~ "u" %}
        atomicMax(&largest[{{ local_line }}], top{{ "." ~ c if o.vec }});
        atomicMax(&largest_inverse[{{ local_line }}], bitcast<u32>(top_inverse{{ "." ~ c if o.vec }}));
        atomicOr(&special[{{ local_line }}], odd{{ "." ~ c if o.vec }});
        small[{{ local_line }}][{{ sharer }}] = inverse{{ "." ~ c if o.vec }};
{% endfor %}
    }
}

{% endfor %}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    // Mesa 22.3 does not clear atomics.
    if (local_index < LINES) {
        atomicStore(&largest[local_index], 0u);
        atomicStore(&largest_inverse[local_index], 0u);
        atomicStore(&special[local_index], 0u);
    }
    workgroupBarrier(); // they are zero before anyone updates them
    let number = workgroup.x + workgroup.y * grid.x;
    let words = params.m * ((params.n + 31u) / 32u);
{% set size = kernel.invocations ~ "u" %}
    for (var i = number * {{ size }} + local_index; i < words; i += grid.x * grid.y * {{ size }}) {
        doubts[workgroup.z * words + i] = 0u;
    }
    let rows = (params.m + LINES - 1u) / LINES; // workgroups for A; the following ones are for B
    let in_a = number < rows;
    let first = select(number - rows, number, in_a) * LINES;
    if (in_a) {
        scan_a(params.a_offset + workgroup.z * params.a_batch_stride, first, local_index);
    } else {
        scan_b(params.b_offset + workgroup.z * params.b_batch_stride, first, local_index);
    }
    workgroupBarrier(); // all lines are scanned before anyone reads the results
    if (local_index >= LINES || first + local_index >= select(params.n, params.m, in_a)) {
        return;
    }
    let bits = atomicLoad(&largest[local_index]);
    let found = atomicLoad(&special[local_index]);
    var sum = 0.0;
    for (var i = 0u; i < select(PARTS_B, PARTS_A, in_a); i++) {
        sum += small[local_index][i];
    }
    // Each small element contributes 1 or more to the scaled sum, which need not exceed k.
    let scale = scale_of(bits);
    var least = min(sum / scale / f32(params.k), 1.0) * 0x1p15f;
    if (bitcast<f32>(atomicLoad(&largest_inverse[local_index])) / scale < 1.0) {
        least = 0.0;
    }
    if (bits == 0u) {
        least = -1e30;
    }
    if (found == 1u) {
        least = 3e38;
    } else if (found > 1u) {
        least = 0.0;
    }
{% set place = "workgroup.z * (params.m + params.n) + select(params.m, 0u, in_a) + first + local_index" %}
    lines[{{ place }}] = vec2f(scale, least);
}
