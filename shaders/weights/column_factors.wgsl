// column_factors: for each column of weights the power of two that brings the largest of its scales to 2⁶ and above, so
// that scale·(q - zero), of which the latter is below 2⁸, is neither too large for float16 nor, mostly, too small.
//
// Storage: scales (n, blocks); factors (n). 32 invocations to a column. Shapes: any. Workgroup memory: 1 KiB.
{% include "common/header.wgsl" %}

const BLOCK: u32 = {{ s.block }}u; // neighbours along k that share a scale

var<workgroup> largest: array<array<u32, 32>, 8>; // bits of |scale|

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let col = (workgroup.x + workgroup.y * grid.x) * 8u + lane / 32u;
    let blocks = params.ldb / BLOCK;
    var most = 0u;
    if (col < params.n) {
        for (var block = lane % 32u; block < blocks; block += 32u) {
            most = max(most, bitcast<u32>(scales[col * blocks + block]) & 0x7fffffffu);
        }
    }
    largest[lane / 32u][lane % 32u] = most;
    workgroupBarrier(); // all are there before the largest is looked for
    if (lane % 32u > 0u || col >= params.n) {
        return;
    }
    for (var i = 1u; i < 32u; i++) {
        most = max(most, largest[lane / 32u][i]);
    }
    // Its exponent is most >> 23, biased by 127; that of the factor, and of one by it, must be one that f32 has.
    factors[col] = bitcast<f32>(clamp(260u - (most >> 23u), 1u, 253u) << 23u);
}
