// vector: C = A·W for few rows of A, W quantised weights; a TM × TN tile of C per workgroup.
//
// Storage: A (m, k) with its own row stride, f32 or f16; W (k, n) by columns, {{ s.per_word }} weights of {{ s.bits }}
// bits to a u32, with a scale and a zero point per block of {{ s.block }}; C (m, n), dense. Accumulation in f32.
// The first stage. With few rows, each weight is used only a few times, and reading W takes most of the time. LANES
// invocations share the inner dimension and read consecutive words, each of which is used for TM rows; at the end their
// sums are added by a tree reduction.
// Edges: A is read as zero beyond the end of k. Workgroup memory: LANES·TM·TN·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/weights.wgsl" as weights with context %}
{% include "common/header.wgsl" %}

{{ weights.constants() }}
{% set fours = range(kernel.tn // 4) %}

var<workgroup> sums: array<array<vec4f, LANES>, TM * TN / 4u>; // [row, col/4][local_index]

{{ matrix.load_a4(row=s.edge_m, k=s.edge_k) }}
{{ weights.unpack_functions() }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ matrix.tile_origin("TM", "TN") }}
{% for r in range(kernel.tm) %}
{% for c in range(kernel.tn) %}
    var acc_{{ r }}_{{ c }} = 0.0;
{% endfor %}
{% endfor %}
    for (var k0 = local_index * PER_WORD; k0 < params.k; k0 += UNROLL * LANES * PER_WORD) {
        //# words
{% for u in range(kernel.unroll) %}
        let k_{{ u }} = k0{% if u %} + {{ u }}u * LANES * PER_WORD{% endif %};
{% for c in range(kernel.tn) %}
{% set col, at = "col0 + " ~ c ~ "u", u ~ "_" ~ c %}
{% set col = "min(" ~ col ~ ", params.n - 1u)" if s.edge_n else "(" ~ col ~ ")" %}
        let i_{{ at }} = {{ col }} * params.ldb + k_{{ u }};
        let word_{{ at }} = b[i_{{ at }} / PER_WORD];
{% if u %}
        // A is zero beyond the end of k, but the scale there may be NaN.
        let scale_{{ at }} = select(0.0, scales[i_{{ at }} / BLOCK], k_{{ u }} < params.k);
{% else %}
        let scale_{{ at }} = scales[i_{{ at }} / BLOCK];
{% endif %}
        let zero_{{ at }} = zero_of(i_{{ at }} / BLOCK);
{% endfor %}
{% endfor %}
        //# end
{% for u in range(kernel.unroll) %}
{% for four in range(s.per_word // 4) %}
        //# inner
        {
{% for r in range(kernel.tm) %}
            let a_reg{{ r }} = load_a4(params.a_offset, row0 + {{ r }}u, k_{{ u }} + {{ 4 * four }}u);
            dbg_k(LOADED_A, row0 + {{ r }}u, dbg_col(col0, TN), k_{{ u }} + {{ 4 * four }}u, a_reg{{ r }});
{% endfor %}
{% for c in range(kernel.tn) %}
{% set at = u ~ "_" ~ c %}
{% set word %}word_{{ at }}{% if four %} >> {{ 4 * four * s.bits }}u{% endif %}{% endset %}
            let b_reg{{ c }} = scale_{{ at }} * (integers4({{ word }}) - zero_{{ at }});
            dbg_k(LOADED_B, dbg_row(row0, TM), col0 + {{ c }}u, k_{{ u }} + {{ 4 * four }}u, b_reg{{ c }});
{% for r in range(kernel.tm) %}
            acc_{{ r }}_{{ c }} += dot(a_reg{{ r }}, b_reg{{ c }});
            dbg(ACC, row0 + {{ r }}u, col0 + {{ c }}u, k_{{ u }} + {{ 4 * four + 3 }}u, acc_{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
        }
        //# end
{% endfor %}
{% endfor %}
    }
{% for r in range(kernel.tm) %}
{% for j in fours %}
    sums[{{ r * (kernel.tn // 4) + j }}][local_index] = vec4f(
{%- for c in range(4) %}acc_{{ r }}_{{ 4 * j + c }}{{ ", " if c < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier(); // the sums are complete before they are added
        if (local_index < half) {
            for (var i = 0u; i < TM * TN / 4u; i++) {
                sums[i][local_index] += sums[i][local_index + half];
            }
        }
    }
    workgroupBarrier(); // the halves are merged before anyone reads them
    if (local_index < TM * TN / 4u) {
        store_c4(0u, row0 + local_index / (TN / 4u), col0 + local_index % (TN / 4u) * 4u, sums[local_index][0]);
    }
}
