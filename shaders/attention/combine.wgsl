// combine: the results of parts of the keys to results: the last dispatch of decode.
//
// Storage: partial (head, query, split, column) in f32, dense, with the largest score and the sum of weights of each
// row in a vec4 after it; o with a stride per axis.
// A workgroup has a row of the result; ADDERS invocations combine some parts of a vec4 each.
// Workgroup memory: ADDERS·(4·VALUES + 8) bytes.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

const ADDERS: u32 = {{ kernel.adders }}u; // invocations for each vec4 of a result
const VECTORS: u32 = VALUES / 4u; // of a row of o

var<workgroup> results: array<array<vec4f, VECTORS>, ADDERS>;
var<workgroup> tops: array<vec2f, ADDERS>; // the largest score, and the sum

{{ attention.constants() }}
{{ attention.store4() }}
@compute @workgroup_size(VECTORS, ADDERS)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ attention.tile_of("1u") }}
    let line = (tile * SPLITS + local.y) * (VECTORS + 1u) + local.x;
{% set parts = range(kernel.splits // kernel.adders) %}
{% for n in parts %}
    let top{{ n }} = partial[line + {{ n }}u * ADDERS * (VECTORS + 1u) + VECTORS - local.x];
    let value{{ n }} = partial[line + {{ n }}u * ADDERS * (VECTORS + 1u)];
{% endfor %}
    let own = {% for n in parts %}max(top{{ n }}.x, {% endfor %}FLOOR{{ ")" * (parts | length) }};
    var own_sum = 0.0;
    var own_value = vec4f();
{% for n in parts %}
    own_sum = fma(top{{ n }}.y, exp2(top{{ n }}.x - own), own_sum);
    own_value = fma(value{{ n }}, vec4f(exp2(top{{ n }}.x - own)), own_value);
{% endfor %}
    results[local.y][local.x] = own_value;
    if (local.x == 0u) {
        tops[local.y] = vec2f(own, own_sum);
    }
    workgroupBarrier(); // the results of all adders are there
    if (local.y > 0u) {
        return;
    }
    var larger = own;
{% for n in range(1, kernel.adders) %}
    larger = max(larger, tops[{{ n }}].x);
{% endfor %}
    var sum = 0.0;
    var value = vec4f();
{% for n in range(kernel.adders) %}
    {
        let shrink = exp2(tops[{{ n }}].x - larger);
        sum = fma(tops[{{ n }}].y, shrink, sum);
        value = fma(results[{{ n }}][local.x], vec4f(shrink), value);
    }
{% endfor %}
    let o_base = {{ attention.base("o") }};
    store_o4(o_base, start, local.x * 4u, value * select(1.0 / sum, 0.0, sum == 0.0));
}
