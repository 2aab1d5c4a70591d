// strips: y = {{ s.function }} over k of x[i, k, j], invocations along j.
//
// Storage: x[i, k, j] with a stride per axis; y[i, k, j] is dense. Bound as array<vec4> if j is contiguous and all
// lengths are multiples of 4.
// Changed from rows: for an axis other than the last. Neighbouring invocations read and write neighbouring elements; a
// workgroup reduces a strip of columns, then scales them.
{% if kernel.splits > 1 %}
// Few strips of long columns: column_parts leaves the partial results of SPLITS parts in partials[split][i][j]; every
// workgroup combines them and scales its part of the strip.
{% elif s.held %}
// One step covers a column, so its elements stay in registers.
{% endif %}
// Shapes: any; columns are padded with the identity. Workgroup memory: four partial results per
// invocation, or none.
{% import "common/reduce.wgsl" as reduce with context %}
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
{{ reduce.split() }}
    // The partial results of these columns from the first dispatch
    let places = vec4u(i * params.inner) + min(vec4u(j) + vec4u(0u, 1u, 2u, 3u) * SPREAD, vec4u(params.inner - 1u));
    var own = none4();
    for (var part = local.y; part < SPLITS; part += WY) {
        let first = part * params.outer * params.inner;
{% for c in "xyzw" %}
        let {{ c }}_part = partials[first + places.{{ c }}];
{% endfor %}
        own = merge4(own, Part4(
            bitcast<vec4f>(vec4u(x_part.x, y_part.x, z_part.x, w_part.x)),
            bitcast<vec4f>(vec4u(x_part.y, y_part.y, z_part.y, w_part.y)),
        ));
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
{% if not s.held %}
{% set begin, end = ("begin", "end") if kernel.splits > 1 else ("0u", "params.length") %}
    for (var k0 = {{ begin }}; k0 < {{ end }}; k0 += {{ kernel.step }}u) {
        let k = k0 + local.y;
{% endif %}
{% for u in range(kernel.unroll) %}
        let k{{ u }} = k{% if u %} + {{ u * kernel.wy }}u{% endif %};
{% set x = "x" ~ u if s.held else "load4(base, k" ~ u ~ ", j, params.length)" %}
        let value{{ u }} = exp({{ x }} - all.top) * scale;
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
