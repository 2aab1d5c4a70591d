// A shader without a template, as `webmm kernel` takes it: C = A·B with square tiles in workgroup memory.
//
//     webmm kernel check examples/tiles.wgsl --uniform m,n,k --workgroup 16,16 --grid n/16,m/16

const TILE = 16u; // side of a tile, which --tunable can set

struct Sizes {
    m: u32,
    n: u32,
    k: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

var<workgroup> a_tile: array<array<f32, TILE>, TILE>;
var<workgroup> b_tile: array<array<f32, TILE>, TILE>;

@compute @workgroup_size(TILE, TILE)
fn main(@builtin(global_invocation_id) at: vec3u, @builtin(local_invocation_id) local: vec3u) {
    var sum = 0.0;
    for (var k0 = 0u; k0 < sizes.k; k0 += TILE) {
        var a_reg = 0.0;
        var b_reg = 0.0;
        if (at.y < sizes.m && k0 + local.x < sizes.k) {
            a_reg = a[at.y * sizes.k + k0 + local.x];
        }
        if (at.x < sizes.n && k0 + local.y < sizes.k) {
            b_reg = b[(k0 + local.y) * sizes.n + at.x];
        }
        a_tile[local.y][local.x] = a_reg;
        b_tile[local.y][local.x] = b_reg;
        workgroupBarrier(); // the tiles are complete before any invocation reads them
        for (var i = 0u; i < TILE; i++) {
            sum += a_tile[local.y][i] * b_tile[i][local.x];
            //dbg(SHARED_A, at.y, at.x, k0 + i, a_tile[local.y][i]);
            //dbg(SHARED_B, at.y, at.x, k0 + i, b_tile[i][local.x]);
            //dbg(ACC, at.y, at.x, k0 + i, sum);
        }
        workgroupBarrier(); // all invocations have read the tiles before they are overwritten
    }
    if (at.y < sizes.m && at.x < sizes.n) {
        c[at.y * sizes.n + at.x] = sum;
    }
}
