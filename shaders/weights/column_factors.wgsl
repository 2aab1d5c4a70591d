// column_factors: for each column of weights, the power of two that scales the largest of its scales to at least 2⁶, so
// that scale·(q - zero), whose second factor is below 2⁸, is not too large for float16 and mostly not too small.
//
// Storage: scales (n, blocks); factors (n).
// First dispatch of weights/matrix_unit. 32 invocations per column. Workgroup memory: 1 KiB.
{% include "common/header.wgsl" %}

const BLOCK: u32 = {{ s.block }}u; // consecutive weights along k that share a scale

var<workgroup> largest: array<array<u32, 32>, 8>; // bits of |scale|

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let col = (workgroup.x + workgroup.y * grid.x) * 8u + local_index / 32u;
    let blocks = params.ldb / BLOCK;
    var most = 0u;
    if (col < params.n) {
        for (var block = local_index % 32u; block < blocks; block += 32u) {
            most = max(most, bitcast<u32>(scales[col * blocks + block]) & 0x7fffffffu);
        }
    }
    largest[local_index / 32u][local_index % 32u] = most;
    workgroupBarrier(); // all are complete before anyone reads them
    if (local_index % 32u > 0u || col >= params.n) {
        return;
    }
    for (var i = 1u; i < 32u; i++) {
        most = max(most, largest[local_index / 32u][i]);
    }
    // Its biased exponent is most >> 23; the factor and its inverse must both be normal f32.
    factors[col] = bitcast<f32>(clamp(260u - (most >> 23u), 1u, 253u) << 23u);
}
