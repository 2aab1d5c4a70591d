// rows: y = {{ s.function }} of each row of x, by {{ "a workgroup" if kernel.splits == 1 else "SPLITS workgroups" }}
// per row.
//
// Storage: x[i, k, j] with a stride per axis; a row is one (i, j), k runs along it; y[i, k, j] is dense.
{% if kernel.splits > 1 %}
// Few long rows: row_parts leaves the statistics of each part of a row in partials[split][row]; every workgroup
// combines them and scales its part of the row.
{% else %}
// A reduction, and a second pass over the row to scale it.
{% if s.held %}
// One step covers a row, so its elements stay in registers.
{% else %}
// The second pass may read from a cache.
{% endif %}
{% endif %}
{#
  Elements in registers also save softmax the second of two exponentials per element. Bounds are checked in the last
  step of a row only; all other loads and stores need neither a clamp nor a select.
#}
// Edges: rows are padded with the identity. Workgroup memory: as the reduction's.
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% set lanes = kernel.lanes %}
{% import "common/normalise.wgsl" as normalise with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ parts.functions() }}
{{ loads.load4(lanes) }}
{{ normalise.functions(lanes) }}
{% for name in (["store4", "store_inside"] if s.edge else ["store_inside"]) %}
{% set guarded = name == "store4" %}
// Store y[k] of a row, and the elements that load4 loads with it{{ "; none beyond its end" if guarded }}
fn {{ name }}(base: u32, k: u32, value: {{ vec4r }}) {
    var v = value;
{% if s.vec %}
{% if guarded %}
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
{% if guarded %}
    if (at < params.length) {
{% endif %}
{% if s.weight %}
        v.{{ c }} *= {{ matrix.element("weight", "at") }};
{% endif %}
{% if s.bias %}
        v.{{ c }} += {{ matrix.element("bias", "at") }};
{% endif %}
        {{ out.store("base + at" if s.dense else "base + at * params.inner", "v." ~ c) }}
{% if guarded %}
    }
{% endif %}
    at += {{ lanes }}u;
{% endfor %}
{% endif %}
}

{% endfor %}
{{ workgroup.combined(lanes) }}
{# all ← the reduction of `term` over the parts of the row. #}
{% macro sum_of_parts(term) %}
    {
        var own = none();
        for (var i = lane; i < SPLITS; i += LANES) {
            let pair = partials[i * params.outer * params.inner + row];
            own = merge(own, {{ term }});
        }
        all = {{ workgroup.whole() }};
    }
{% endmacro %}
{# The results of `normalise.statistics()`, from the partial results. #}
{% macro gathered() %}
    var all: {{ parts.part() }};
{% if s.function == "layer_norm" %}
{{ sum_of_parts("bitcast<f32>(pair.x) * count(i, chunk)") }}
    let mean = all / {{ real }}(params.length);
{{ normalise.again() }}
{% set distance = "(bitcast<f32>(pair.x) - mean)" %}
{{ sum_of_parts("bitcast<f32>(pair.y) + " ~ distance ~ " * " ~ distance ~ " * count(i, chunk)") }}
{% else %}
{{ sum_of_parts(parts.unpack("pair")) }}
{% endif %}
{% endmacro %}
{% if kernel.splits > 1 and s.function == "layer_norm" %}
// The elements of part number i
fn count(i: u32, chunk: u32) -> {{ real }} {
    return {{ real }}(min(chunk, params.length - min(i * chunk, params.length)));
}

{% endif %}
@compute @workgroup_size(LANES)
fn main(
{{ workgroup.builtins() }}
) {
{{ workgroup.row() }}
    //# inner
    let base = {{ loads.base() }};
{% if s.dense %}
    let y_base = params.y_offset + row * params.length;
{% else %}
    let y_base = params.y_offset + row / params.inner * params.length * params.inner + row % params.inner;
{% endif %}
{% macro next(u) -%}
k{% if u %} + {{ 4 * lanes * u }}u{% endif %}

{%- endmacro %}
{% if s.held %}
    let k = {{ loads.first(lanes) }};
{% for u in range(kernel.unroll) %}
    let held{{ u }} = {{ loads.element4(u, next(u), "params.length", loads.inside(u)) }};
{% endfor %}
{% endif %}
{% if kernel.splits > 1 %}
{{ workgroup.split() }}
{{ gathered() }}
{% else %}
{{ normalise.statistics(lanes) }}
{% endif %}
{{ normalise.scale() }}
{# The results of a step, all inside the row if `whole`. #}
{% macro store(whole) %}
{% for u in range(kernel.unroll) %}
{% set inside = whole or not s.edge or s.held and loads.inside(u) %}
        let value{{ u }} = {{ normalise.value(u, next(u), inside) }};
{% endfor %}
{% for u in range(kernel.unroll) %}
{% set inside = whole or not s.edge or s.held and loads.inside(u) %}
        dbg_far(RESULT, row, 0u, {{ next(u) }}, {{ 1 if s.vec else lanes }}u, value{{ u }});
        {{ "store_inside" if inside else "store4" }}(y_base, {{ next(u) }}, value{{ u }});
{% endfor %}
{% endmacro %}
{% if s.held %}
{{ store(false) }}
{% else %}
{% set begin, end = ("begin", "end") if kernel.splits > 1 else ("0u", "params.length") %}
    for (var k0 = {{ begin }}; k0 < {{ end }}; k0 += {{ kernel.step }}u) {
        let k = k0{{ " + " ~ loads.first(lanes) if lanes > 1 }};
{% if s.edge %}
        if (k0 + {{ kernel.step }}u <= {{ end }}) {
{{ store(true) }}
        } else {
{{ store(false) }}
        }
{% else %}
{{ store(true) }}
{% endif %}
    }
{% endif %}
    //# end
}
