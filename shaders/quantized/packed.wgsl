// packed: C = a product of 8-bit integers, TM × TN elements of C per invocation, four products per instruction.
//
// Storage: A (m, k), B (k, n), bytes, four to a u32, each with its own row length; C (m, n), dense. Sums in i32.
// Changed from unpacked: four neighbours along k share a word, and dot4I8Packed or dot4U8Packed multiplies two such words
// at once. Register tiles over workgroup tiles and the order of work are those of gemm/pipelined: the next tile is on
// its way, in registers, while this one is multiplied. Bytes are multiplied as they are; zero points are brought in at
// the end, from the sums of A's rows and B's columns: Σ (a - za)·(b - zb) = Σ a·b - zb·(Σ a - k·za) - za·Σ b. 32-bit
// arithmetic wraps, so that the parts may overflow as long as the whole does not.
{% if s.flip_a or s.flip_b %}
// {{ "A" if s.flip_a else "B" }} is u8, the other i8: its bytes and zero points are moved by 128, to i8, which changes no difference.
{% endif %}
// Shapes: any; bytes beyond the end of k are zero. Workgroup memory: (BM + BN)·(BK + 1)·4 bytes.
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{% include "common/header.wgsl" %}

{{ quantized.dot4() }}
fn dots(x: u32, y: vec4u) -> vec4i {
    return vec4i(dot4(x, y.x), dot4(x, y.y), dot4(x, y.z), dot4(x, y.w));
}

{{ bytes.declarations() }}
{{ quantized.store_c4() }}
// C[row0 + row, col0 + col..+3] ← dots
fn store_tile4(row0: u32, col0: u32, tile_row: u32, tile_col: u32, dots: vec4i) {
    let row = row0 + tile_row;
    let col = col0 + tile_col;
{{ quantized.leave_outside() }}
    var sums = dots;
{% if s.zero_a %}
    let zero_a = {{ quantized.zero_of_a(s.flip_a) }};
    let b_sum = vec4i(
{% for j in range(4) %}
        atomicLoad(&b_sums[tile_col{{ " + %du" % j if j }}]),
{% endfor %}
    );
    sums -= zero_a * b_sum;
{% endif %}
{% if s.zero_b %}
    let zero_b = {{ quantized.zeros_of_b(s.flip_b) }};
    sums -= zero_b * (atomicLoad(&a_sums[tile_row]){{ " - i32(params.k) * zero_a" if s.zero_a }});
{% endif %}
    store_c4(row, col, sums);
}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ tiles.own_tile() }}
{{ tiles.lanes() }}
{{ bytes.positions() }}
{{ bytes.accumulators() }}
{{ bytes.fetch("0u") }}
{{ bytes.put() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    for (var k0 = 4u * BK; k0 < params.k; k0 += 4u * BK) {
{{ bytes.fetch("k0") }}
{{ bytes.multiply() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ bytes.put() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
{{ bytes.multiply() }}
{{ bytes.share_sums() }}
{{ bytes.store() }}
}
