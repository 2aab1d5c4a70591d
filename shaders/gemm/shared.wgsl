// shared: C = A·B, one element of C per invocation, from tiles of A and B in workgroup memory.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from workgroup_2d: a workgroup loads each element of its tiles from storage once, and its invocations read it
// TILE times from workgroup memory.
// Edges: partial tiles are padded with zeros. Workgroup memory: 2·TILE·TILE·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

// Nested arrays let the compiler hoist the engine's bounds checks out of the loop over kk.
//# tiles
var<workgroup> a_tile: array<array<{{ real }}, TILE>, TILE>; // [row][kk]
var<workgroup> b_tile: array<array<{{ real }}, TILE>, TILE>; // [kk][col]
//# end

{{ matrix.load_a(row=s.edge_m, k=s.edge_k) }}
{{ matrix.load_b(k=s.edge_k, col=s.edge_n) }}
{{ matrix.store_c(row=s.edge_m, col=s.edge_n) }}
@compute @workgroup_size(TILE, TILE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
{{ matrix.tile_origin("TILE", "TILE") }}
    let row = row0 + local.y;
    let col = col0 + local.x;
{{ matrix.bases() }}
    //# inner
    var sum: {{ real }} = 0.0;
    for (var k0 = 0u; k0 < params.k; k0 += TILE) {
        a_tile[local.y][local.x] = load_a(a_base, row, k0 + local.x);
        b_tile[local.y][local.x] = load_b(b_base, k0 + local.y, col);
        dbg(LOADED_A, row, dbg_col(col0, TILE), k0 + local.x, a_tile[local.y][local.x]);
        dbg(LOADED_B, dbg_row(row0, TILE), col, k0 + local.y, b_tile[local.y][local.x]);
        workgroupBarrier(); // the tiles are complete before anyone reads them
        for (var kk = 0u; kk < TILE; kk++) {
            dbg(SHARED_A, row, col, k0 + kk, a_tile[local.y][kk]);
            dbg(SHARED_B, row, col, k0 + kk, b_tile[kk][local.x]);
            sum = fma(a_tile[local.y][kk], b_tile[kk][local.x], sum);
            dbg(ACC, row, col, k0 + kk, sum);
        }
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
    store_c(c_base, row, col, sum);
    //# end
}
