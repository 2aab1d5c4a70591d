// strips: y = {{ s.function }} over k of x[i, k, j], invocations along j.
//
// Storage: x[i, k, j] with a stride per axis; y[i, k, j] is dense.
// Changed from rows: for an axis other than the last. Neighbouring invocations read and write neighbouring elements; a
// workgroup reduces a strip of columns, then scales them.
{% if kernel.splits > 1 %}
// Few strips of long columns: column_parts leaves the partial results of SPLITS parts in partials[split][i][j]; every
// workgroup combines them and scales its part of the strip.
{% elif s.held %}
// One step covers a column, so its elements stay in registers.
{% endif %}
{#
  On an H200, strips of 128 columns instead of 64 made softmax of 318,505 × 641 slower, 1,024 µs instead of 863.
#}
// Edges: columns are padded with the identity. Workgroup memory: four partial results per
// invocation, or none.
{% import "common/reduce/workgroup.wgsl" as workgroup with context %}
{% import "common/columns.wgsl" as columns with context %}
{% import "common/store.wgsl" as out with context %}
{% include "common/header.wgsl" %}

{{ columns.functions() }}

@compute @workgroup_size({{ kernel.workgroup_size[:2] | join(", ") }})
fn main(
{{ columns.builtins() }}
) {
{{ columns.strip() }}
    let y_base = params.y_offset + i * params.length * params.inner;
{% if kernel.splits > 1 %}
{{ workgroup.split() }}
    // The partial results of these columns from the first dispatch
    let places = vec4u(i * params.inner) + min(vec4u(j) + vec4u(0u, 1u, 2u, 3u) * SPREAD, vec4u(params.inner - 1u));
    var own = none4();
    for (var part = local.y; part < SPLITS; part += {{ kernel.gathered * kernel.wy }}u) {
{% for t in range(kernel.gathered) %}
        let first{{ t }} = (part + {{ t * kernel.wy }}u) * params.outer * params.inner;
{% for c in "xyzw" %}
        let {{ c }}_part{{ t }} = partials[first{{ t }} + places.{{ c }}];
{% endfor %}
        let top{{ t }} = bitcast<vec4f>(vec4u(x_part{{ t }}.x, y_part{{ t }}.x, z_part{{ t }}.x, w_part{{ t }}.x));
        let sum{{ t }} = bitcast<vec4f>(vec4u(x_part{{ t }}.y, y_part{{ t }}.y, z_part{{ t }}.y, w_part{{ t }}.y));
{% endfor %}
        var top = own.top;
{% for t in range(kernel.gathered) %}
        top = max(top, top{{ t }});
{% endfor %}
        var sum = own.sum * power4(own.top - top);
{% for t in range(kernel.gathered) %}
        sum += sum{{ t }} * power4(top{{ t }} - top);
{% endfor %}
        own = Part4(top, sum);
    }
{% else %}
{{ columns.walk("0u", "params.length", s.held) }}
{% endif %}
{% if kernel.wy > 1 %}
{{ columns.combine() }}
    workgroupBarrier(); // the result is written before it is read
    let all = parts[0][local.x];
{% else %}
    let all = own;
{% endif %}
    // An infinite element makes the whole column NaN, as in NumPy
    let scale = bitcast<vec4f>(select(bitcast<vec4u>(1.0 / all.sum), vec4u(0x7fc00000u), all.sum > vec4f(MOST)));
{% if s.held %}
    let factors = exp(own.top - all.top) * scale; // of the powers, which are relative to own.top
{% else %}
{% set begin, end = ("begin", "end") if kernel.splits > 1 else ("0u", "params.length") %}
    for (var k0 = {{ begin }}; k0 < {{ end }}; k0 += {{ kernel.step }}u) {
        let k = k0 + local.y;
{% endif %}
{% for u in range(kernel.unroll) %}
        let k{{ u }} = k{% if u %} + {{ u * kernel.wy }}u{% endif %};
{% if s.held %}
        let value{{ u }} = powers{{ u }} * factors;
{% else %}
        let value{{ u }} = exp(load4(base, k{{ u }}, j, params.length) - all.top) * scale;
{% endif %}
{% endfor %}
{% for u in range(kernel.unroll) %}
{% for c in range(4) %}
        dbg(RESULT, {{ columns.row_of(c) }}, 0u, k{{ u }}, value{{ u }}[{{ c }}]);
{% endfor %}
{% if s.edge %}
        if (k{{ u }} < params.length) {
{% endif %}
{% if s.vec %}
{% if s.edge_j %}
        if (j < params.inner) {
{% endif %}
        y[(y_base + k{{ u }} * params.inner + j) / 4u] = {{ out.as_out4("value" ~ u) }};
{% if s.edge_j %}
        }
{% endif %}
{% else %}
{% for c in range(4) %}
        if (j + {{ c }}u * SPREAD < params.inner) {
{% set place %}y_base + k{{ u }} * params.inner + j + {{ c }}u * SPREAD{% endset %}
            {{ out.store(place, "value" ~ u ~ "[" ~ c ~ "]") }}
        }
{% endfor %}
{% endif %}
{% if s.edge %}
        }
{% endif %}
{% endfor %}
{% if not s.held %}
    }
{% endif %}
}
