// subgroup: C = A·B, TM × TN elements of C per lane; the lanes of a subgroup exchange elements of A and B by shuffles.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from blocked: no workgroup memory and no barriers. A workgroup is one subgroup of LY × LX lanes; each loads
// its share of the tiles of A and B into registers, and the other lanes read it by shuffles.
// It is slower than blocked on GPUs with fast workgroup memory: on an H200 with 32 lanes as 4 × 8, 28.2 against 40.3
// TFLOP/s at 4096³ and 15.6 against 26.5 at 1024³ (through wgpu). At 4096³, 2 × 16 lanes reach 25.5, 8 × 4 lanes 24.9,
// 4 × 16 elements per lane 23.1, 4 × 8 elements per lane 21.2.
// Edges: partial tiles read zeros. Workgroup memory: none. Needs subgroups of LANES lanes or more.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% include "common/header.wgsl" %}

const LX = LANES / LY; // columns of lanes
const BM = LY * TM; // rows of C per workgroup
const BN = LX * TN; // columns of C per workgroup

{{ matrix.load_a4(row=s.edge_m, k=s.edge_k) }}
{{ matrix.load_b4(k=s.edge_k, col=s.edge_n) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{#
  A lane computes rows ly + i·LY and vec4 columns lx + j·LX of the tile. For given i and j, all lanes then shuffle from
  the same register, which the template knows; only the source lane varies.
#}
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
{{ layout.assign_tile() }}
{{ matrix.bases() }}
    let lx = lane % LX;
    let ly = lane / LX;
{{ layout.declare_sums() }}
    //# inner
    for (var k = 0u; k < params.k; k += 4u) {
        // Lane r % LANES loads row r of A's tile; lane v % LANES loads vec4 v of B's tile, counted over its four rows.
{% for i in range(kernel.a_loads) %}
        let a_reg{{ i }} = load_a4(a_base, row0 + lane % BM + {{ i }}u * LANES, k);
        dbg_k(LOADED_A, row0 + lane % BM + {{ i }}u * LANES, dbg_col(col0, BN), k, a_reg{{ i }});
{% endfor %}
{% for i in range(kernel.b_loads) %}
        let b_at{{ i }} = lane % BN + {{ i }}u * LANES;
        let b_reg{{ i }} = load_b4(b_base, k + b_at{{ i }} / (BN / 4u), col0 + b_at{{ i }} % (BN / 4u) * 4u);
{% set col, b_k = "col0 + b_at" ~ i ~ " % (BN / 4u) * 4u", "k + b_at" ~ i ~ " / (BN / 4u)" %}
        dbg_n(LOADED_B, dbg_row(row0, BM), {{ col }}, {{ b_k }}, b_reg{{ i }});
{% endfor %}
{% for r in range(kernel.tm) %}
{% set first = r * kernel.ly %}
        let a_row{{ r }} = subgroupShuffle(a_reg{{ first // kernel.lanes }}, ly + {{ first % kernel.lanes }}u);
{% endfor %}
{% for kk in range(4) %}
        { // kk = {{ kk }}
{% for j in range(kernel.tn // 4) %}
{% set first = kernel.lx * (kk * kernel.tn // 4 + j) %}
            let b_row{{ j }} = subgroupShuffle(b_reg{{ first // kernel.lanes }}, lx + {{ first % kernel.lanes }}u);
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            acc_{{ r }}_{{ j }} = fma({{ vec4r }}(a_row{{ r }}.{{ "xyzw"[kk] }}), b_row{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
{% set row, col = "row0 + ly + " ~ r ~ "u * LY", "col0 + (lx + " ~ j ~ "u * LX) * 4u" %}
            dbg(SHARED_A, {{ row }}, dbg_col({{ col }}, 4u), k + {{ kk }}u, a_row{{ r }}.{{ "xyzw"[kk] }});
            dbg_n(SHARED_B, {{ row }}, {{ col }}, k + {{ kk }}u, b_row{{ j }});
            dbg_n(ACC, {{ row }}, {{ col }}, k + {{ kk }}u, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
    }
    //# end
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    store_c4(c_base, row0 + ly + {{ r }}u * LY, col0 + (lx + {{ j }}u * LX) * 4u, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
}
