// fma: this device's rate of f32 multiply-adds: {{ chains }} independent chains of vec4 per invocation, nothing from
// memory.
//
// The operands come from a buffer, so that no compiler can know them, and every result is used, so that none can be
// left out. {{ unroll }} steps are written out per iteration: engines guard loops.
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
