// rows: y = {{ s.function }} of each row of x, by a workgroup per row.
//
// Storage: x[i, k, j] with a stride each; a row is one (i, j), k runs along it; y[i, k, j] is dense. Bound as array<vec4>
// where k is contiguous in both and all lengths are multiples of 4.
// A reduction, and a second time over the row with what came out. {{ "One step covers a row: its elements stay in registers." if s.held else "By then some of the row is in a cache." }}
// Shapes: any; beyond the end of a row stands what changes nothing. Workgroup memory: as the reduction's.
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% set lanes = kernel.lanes %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ reduce.functions() }}
{{ reduce.load4(lanes) }}
{% if s.function == "rms_norm" %}
fn square4(v: vec4f) -> vec4f {
    return v * v;
}

{% elif s.function == "layer_norm" %}
// Squared distances from the mean; 0 beyond the end
fn deviation4(v: vec4f, k: u32, mean: f32) -> vec4f {
    let d = v - mean;
{% if s.edge %}
    return select(d * d, vec4f(), vec4u(k){{ " + vec4u(0u, 1u, 2u, 3u) * %du" % lanes if not s.vec }} >= vec4u(params.length));
{% else %}
    return d * d;
{% endif %}
}

{% endif %}
// y[k] of a row, and its neighbours as load4 has them
fn store4(base: u32, k: u32, value: vec4f) {
    var v = value;
{% if s.vec %}
{% if s.edge %}
    if (k >= params.length) {
        return;
    }
{% endif %}
{% if s.weight %}
    v *= {{ matrix.as_vec4f("weight[k / 4u]") }};
{% endif %}
{% if s.bias %}
    v += {{ matrix.as_vec4f("bias[k / 4u]") }};
{% endif %}
    y[(base + k) / 4u] = {{ out.as_out4("v") }};
{% else %}
    var at = k;
{% for c in "xyzw" %}
    if (at < params.length) {
{% if s.weight %}
        v.{{ c }} *= {{ matrix.element("weight", "at") }};
{% endif %}
{% if s.bias %}
        v.{{ c }} += {{ matrix.element("bias", "at") }};
{% endif %}
        {{ out.store("base + at * params.inner", "v." ~ c) }}
    }
    at += {{ lanes }}u;
{% endfor %}
{% endif %}
}

{{ reduce.together(lanes) }}
@compute @workgroup_size(LANES)
fn main(
{{ reduce.builtins() }}
) {
{{ reduce.row() }}
    let base = {{ reduce.base() }};
    let y_base = params.y_offset + row / params.inner * params.length * params.inner + row % params.inner;
{% macro loaded(u, k, end="params.length") -%}
{{ "held%d" % u if s.held else reduce.element4(u, k, end) }}
{%- endmacro %}
{% macro squared(u, k, end) -%}
square4({{ loaded(u, k) }})
{%- endmacro %}
{% macro deviating(u, k, end) -%}
deviation4({{ loaded(u, k) }}, {{ k }}, mean)
{%- endmacro %}
{% macro part(load, tag="LOADED", acc="ACC") %}
    {
{{ reduce.walk(lanes, load=load, once=s.held, tag=tag, acc=acc) }}
        all = {{ reduce.whole() }};
    }
{% endmacro %}
{% macro next(u) -%}
k{{ " + %du" % (4 * lanes * u) if u }}
{%- endmacro %}
{% if s.held %}
    let k = {{ reduce.first(lanes) }};
{% for u in range(kernel.unroll) %}
    let held{{ u }} = {{ reduce.element4(u, next(u), "params.length") }};
{% endfor %}
{% endif %}
    var all: {{ reduce.part() }};
{% if s.function == "layer_norm" %}
{{ part(loaded) }}
    let mean = all / f32(params.length);
{% if kernel.shared_parts %}
    workgroupBarrier(); // everyone has read the mean before its place is used again
{% endif %}
{{ part(deviating, "SQUARED", "SQUARES") }}
    let scale = inverseSqrt(all / f32(params.length) + params.epsilon);
{% set value = "(%s - mean) * scale" %}
{% elif s.function == "rms_norm" %}
{{ part(squared, "SQUARED", "SQUARES") }}
    let scale = inverseSqrt(all / f32(params.length) + params.epsilon);
{% set value = "%s * scale" %}
{% else %}
{{ part(loaded) }}
    // An infinite element makes the whole row NaN, as its own quotient is
    let scale = bitcast<f32>(select(bitcast<u32>(1.0 / all.sum), 0x7fc00000u, all.sum > MOST));
{% set value = "exp(%s - all.top) * scale" %}
{% endif %}
{% if not s.held %}
    for (var k0 = 0u; k0 < params.length; k0 += {{ kernel.step }}u) {
        let k = k0{{ " + " ~ reduce.first(lanes) if lanes > 1 }};
{% endif %}
{% for u in range(kernel.unroll) %}
        dbg_far(RESULT, row, 0u, {{ next(u) }}, {{ 1 if s.vec else lanes }}u, {{ value % loaded(u, next(u)) }});
        store4(y_base, {{ next(u) }}, {{ value % loaded(u, next(u)) }});
{% endfor %}
{% if not s.held %}
    }
{% endif %}
}
