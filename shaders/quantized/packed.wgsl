// packed: C = a product of 8-bit integers, TM × TN elements of C per invocation, four products per instruction.
//
// Storage: A (m, k), B (k, n), bytes, four to a u32, each with its own row length; C (m, n), dense. Sums in i32.
// Changed from unpacked: four neighbours along k share a word, and dot4I8Packed or dot4U8Packed multiplies two such
// words at once. Register tiles over workgroup tiles and the order of work are those of gemm/pipelined: the next tile
// is on its way, in registers, while this one is multiplied. Bytes are multiplied as they are; zero points are brought
// in at the end, from the sums of A's rows and B's columns: Σ (a - za)·(b - zb) = Σ a·b - zb·(Σ a - k·za) - za·Σ b.
// 32-bit arithmetic wraps, so that the parts may overflow as long as the whole does not.
{% if s.flip_a or s.flip_b %}
// {{ "A" if s.flip_a else "B" }} is u8, the other i8: its bytes and zero points are moved by 128, to i8, which changes
// no difference.
{% endif %}
// Shapes: any; bytes beyond the end of k are zero. Workgroup memory: (BM + BN)·(BK + 1)·4 bytes.
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{% include "common/header.wgsl" %}

{{ quantized.dots() }}
{{ bytes.declarations() }}
{{ quantized.store_tile4() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ tiles.own_tile() }}
{{ tiles.lane_position() }}
{{ bytes.positions() }}
{{ bytes.accumulators() }}
{{ bytes.fetch("0u") }}
{{ bytes.put() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    for (var k0 = 4u * BK; k0 < params.k; k0 += 4u * BK) {
{{ bytes.fetch("k0") }}
{{ bytes.multiply("k0 - 4u * BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ bytes.put() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
{{ bytes.multiply("(params.k - 1u) / (4u * BK) * (4u * BK)") }}
{{ bytes.share_sums(bytes.operands) }}
{{ bytes.store() }}
}
