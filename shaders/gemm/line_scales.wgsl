// line_scales: for each row of A and column of B the power of two that brings its largest element to 2¹⁴ and above.
//
// Storage: A (m, k), B (k, n), bound as array<vec4> where the contiguous length is a multiple of 4; lines
// (batch, m + n): the scale, and the least magnitude that a scaled element of C must have for the bound to hold
// whatever became of the line's small elements (docs/precision.md):
//
//   -1e30                for a line of zeros, whose products are zero
//   0                    for one with a NaN, whose products are NaN
//   3e38                 for one with an infinity, of which no halves can be made: all of its products are in doubt
//   small / K · 2¹⁵      otherwise, where so many elements are not zero and below 2⁻¹ once they are scaled, or more:
//                        each counts for the inverse of its size, so that what is largest need not be known before
//
// LINES rows or columns per workgroup. It also clears the doubts.
// Shapes: any. Workgroup memory: {{ kernel.workgroup_bytes }} bytes.
{% include "common/header.wgsl" %}

const LINES: u32 = {{ kernel.lines }}u; // rows or columns of a workgroup

var<workgroup> largest: array<atomic<u32>, LINES>; // bits of |x|, of those that are finite
var<workgroup> special: array<atomic<u32>, LINES>; // 1 where there is an infinity, 2 where there is a NaN, 3 both
// Sums of 1/|x|, within a factor of 2, by each of the invocations that share a line
var<workgroup> small: array<array<f32, 128>, LINES>;

{% for x, along_k, vec in (("A", not s.trans_a, s.vec_a), ("B", s.trans_b, s.vec_b)) %}
const PARTS_{{ x }}: u32 = {{ 128 if vec and not along_k else 32 }}u; // invocations that share a line
{% endfor %}
const INFINITY: u32 = 0x7f800000u; // bits of |x|

// The power of two that brings it to 2¹⁴, as far as f32 has it
fn scale_of(bits: u32) -> f32 {
    return bitcast<f32>(min(268u - (bits >> 23u), 253u) << 23u);
}

{# All of k for what a lane has of LINES lines, four loads at a time: engines keep drivers from unrolling loops. #}
{% macro pass(o, w, what) %}
{% set type = "vec4<u32>" if w > 1 else "u32" %}
{% set groups = 1 if o.along_k else kernel.lines // w %}
{% set step = w * 32 if o.along_k else kernel.invocations // groups %}
{% if o.along_k %}
        var k = lane % 32u{% if w > 1 %} * {{ w }}u{% endif %};
{% else %}
        var k = lane / {{ groups }}u;
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
{% set lanes = "xyzw"[:w] %}
// LINES {{ "rows of A" if o.x == "a" else "columns of B" }} from `first` on, at `base`
fn scan_{{ o.x }}(base: u32, first: u32, lane: u32) {
{% if o.along_k %}
    let own = lane / 32u;
{% else %}
    let own = lane % {{ kernel.lines // w }}u{{ " * 4u" if o.vec }};
{% endif %}
    let line = first + own;
    if (line < params.{{ o.size }}) {
        var top = {{ type }}();
        var odd = {{ type }}();
        var inverse = {{ floats }}();
{% set what %}
            let finite = bits < {{ type }}(INFINITY);
            top = max(top, select({{ type }}(), bits, finite));
            odd |= select(select({{ type }}(2u), {{ type }}(1u), bits == {{ type }}(INFINITY)), {{ type }}(), finite);
{% set inverse %}{{ type }}(0x7f000000u) - min(bits, {{ type }}(0x7e800000u)){% endset %}
            let power = bitcast<{{ floats }}>(({{ inverse }}) & {{ type }}(INFINITY));
            inverse += select({{ floats }}(), power, bits > {{ type }}());
{% endset %}
{{ pass(o, w, what) }}
{% for c in lanes %}
{% set own = "own" if o.along_k or w == 1 else "own + " ~ loop.index0 ~ "u" %}
{% set sharer = "lane % 32u" if o.along_k else "lane / " ~ kernel.lines // w ~ "u" %}
        atomicMax(&largest[{{ own }}], top{{ "." ~ c if o.vec }});
        atomicOr(&special[{{ own }}], odd{{ "." ~ c if o.vec }});
        small[{{ own }}][{{ sharer }}] = inverse{{ "." ~ c if o.vec }};
{% endfor %}
    }
}

{% endfor %}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    // Mesa 22.3 does not clear what atomics work on.
    if (lane < LINES) {
        atomicStore(&largest[lane], 0u);
        atomicStore(&special[lane], 0u);
    }
    workgroupBarrier(); // they are zero before anyone adds to them
    let number = workgroup.x + workgroup.y * grid.x;
    let words = params.m * ((params.n + 31u) / 32u);
{% set size = kernel.invocations ~ "u" %}
    for (var i = number * {{ size }} + lane; i < words; i += grid.x * grid.y * {{ size }}) {
        doubts[workgroup.z * words + i] = 0u;
    }
    let rows = (params.m + LINES - 1u) / LINES; // workgroups for A; those after are for B
    let in_a = number < rows;
    let first = select(number - rows, number, in_a) * LINES;
    if (in_a) {
        scan_a(params.a_offset + workgroup.z * params.a_batch_stride, first, lane);
    } else {
        scan_b(params.b_offset + workgroup.z * params.b_batch_stride, first, lane);
    }
    workgroupBarrier(); // all is counted before it is looked at
    if (lane >= LINES || first + lane >= select(params.n, params.m, in_a)) {
        return;
    }
    let bits = atomicLoad(&largest[lane]);
    let found = atomicLoad(&special[lane]);
    var sum = 0.0;
    for (var i = 0u; i < select(PARTS_B, PARTS_A, in_a); i++) {
        sum += small[lane][i];
    }
    // Scaled, what is below 2⁻¹ has counted for 1 or more: at most for all of k.
    var least = min(sum / scale_of(bits) / f32(params.k), 1.0) * 0x1p15f;
    if (bits == 0u) {
        least = -1e30;
    }
    if (found == 1u) {
        least = 3e38;
    } else if (found > 1u) {
        least = 0.0;
    }
{% set place = "workgroup.z * (params.m + params.n) + select(params.m, 0u, in_a) + first + lane" %}
    lines[{{ place }}] = vec2f(scale_of(bits), least);
}
