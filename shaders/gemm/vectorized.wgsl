// vectorized: C = A·B, four consecutive elements of a row of C per invocation, loaded as vec4.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from shared: a load moves four elements, {{ 4 * s.dtype.itemsize }} bytes, and a vec4 of A from workgroup
// memory is used for 16 FMAs.
// Edges: partial tiles are padded with zeros. Workgroup memory: (BM + BN)·BK·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const INVOCATIONS = BM * BN / 4u; // per workgroup

//# tiles
var<workgroup> a_tile: array<array<{{ vec4r }}, BK / 4u>, BM>; // [row][kk/4], four elements along k
var<workgroup> b_tile: array<array<{{ vec4r }}, BN / 4u>, BK>; // [kk][col/4], four elements along n
//# end

//# loads
{{ matrix.load_a4(row=s.edge_m, k=s.edge_k) }}
//# end
{{ matrix.load_b4(k=s.edge_k, col=s.edge_n) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
@compute @workgroup_size(BN / 4u, BM)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ matrix.tile_origin("BM", "BN") }}
{{ matrix.bases() }}
    //# inner
    var acc = {{ vec4r }}();
    for (var k0 = 0u; k0 < params.k; k0 += BK) {
        // Consecutive invocations read consecutive elements of storage, whichever layout a matrix has.
        for (var i = local_index; i < BM * BK / 4u; i += INVOCATIONS) {
            let row = {{ "i % BM" if s.trans_a else "i / (BK / 4u)" }};
            let kk = {{ "i / BM" if s.trans_a else "i % (BK / 4u)" }};
            a_tile[row][kk] = load_a4(a_base, row0 + row, k0 + kk * 4u);
            dbg_k(LOADED_A, row0 + row, dbg_col(col0, BN), k0 + kk * 4u, a_tile[row][kk]);
        }
        for (var i = local_index; i < BK * BN / 4u; i += INVOCATIONS) {
            let kk = {{ "i % BK" if s.trans_b else "i / (BN / 4u)" }};
            let col = {{ "i / BK" if s.trans_b else "i % (BN / 4u)" }};
            b_tile[kk][col] = load_b4(b_base, k0 + kk, col0 + col * 4u);
            dbg_n(LOADED_B, dbg_row(row0, BM), col0 + col * 4u, k0 + kk, b_tile[kk][col]);
        }
        workgroupBarrier(); // the tiles are complete before anyone reads them
        for (var kk = 0u; kk < BK / 4u; kk++) {
            let a_reg = a_tile[local.y][kk];
            acc = fma({{ vec4r }}(a_reg.x), b_tile[kk * 4u][local.x], acc);
            acc = fma({{ vec4r }}(a_reg.y), b_tile[kk * 4u + 1u][local.x], acc);
            acc = fma({{ vec4r }}(a_reg.z), b_tile[kk * 4u + 2u][local.x], acc);
            acc = fma({{ vec4r }}(a_reg.w), b_tile[kk * 4u + 3u][local.x], acc);
            dbg_k(SHARED_A, row0 + local.y, dbg_col(col0 + local.x * 4u, 4u), k0 + kk * 4u, a_reg);
{% for i in range(4) %}
{% set in_tile = "kk * 4u + " ~ i ~ "u" %}
            dbg_n(SHARED_B, row0 + local.y, col0 + local.x * 4u, k0 + {{ in_tile }}, b_tile[{{ in_tile }}][local.x]);
{% endfor %}
            dbg_n(ACC, row0 + local.y, col0 + local.x * 4u, k0 + kk * 4u + 3u, acc);
        }
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
    store_c4(c_base, row0 + local.y, col0 + local.x * 4u, acc);
    //# end
}
