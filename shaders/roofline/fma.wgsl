// fma: measures the rate of f32 multiply-adds, with {{ chains }} independent chains of vec4 per invocation and no loads
// in the loop.
//
// The operands are read from a buffer, so that the compiler cannot fold them, and every result is stored, so that it
// cannot remove any. Each iteration has {{ unroll }} steps, since engines add a guard to each loop.
@group(0) @binding(0) var<storage, read> source: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4f>;

@compute @workgroup_size({{ workgroup }})
fn main(@builtin(global_invocation_id) id: vec3u) {
    let factor = source[0];
    let addend = source[1];
{% for i in range(chains) %}
    var x{{ i }} = factor + vec4f(f32(id.x + {{ i }}u));
{% endfor %}
    for (var i = 0u; i < {{ iterations }}u; i++) {
{% for u in range(unroll) %}
{% for i in range(chains) %}
        x{{ i }} = fma(x{{ i }}, factor, addend);
{% endfor %}
{% endfor %}
    }
    result[id.x] = {% for i in range(chains) %}{{ " + " if i }}x{{ i }}{% endfor %};
}
