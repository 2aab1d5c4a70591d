// packed: C = a product of 8-bit integers, a TM × TN register tile per invocation, four products per instruction.
//
// Storage: A (m, k), B (k, n), four bytes per u32, each with its own row stride; C (m, n), dense. Accumulation in i32.
// Changed from unpacked: four consecutive elements along k share a word, and dot4I8Packed or dot4U8Packed multiplies
// two such words. Register tiles, workgroup tiles and software pipelining are those of gemm/pipelined. Bytes are
// multiplied without their zero points, which are applied at the end with the sums of A's rows and B's columns:
// Σ (a - za)·(b - zb) = Σ a·b - zb·(Σ a - k·za) - za·Σ b. 32-bit arithmetic wraps, so the terms may overflow as long as
// the result does not.
{% if s.flip_a or s.flip_b %}
// {{ "A" if s.flip_a else "B" }} is u8, the other i8: 128 is subtracted from its bytes and zero points, to make them i8
// and leave each difference as it is.
{% endif %}
{% set divided = kernel.splits > 1 %}
{% if divided %}
// SPLITS workgroups each compute a part of k for the same tile, with its share of the terms, and store partial sums;
// the next dispatch (sum_splits) adds these and computes C.
{% endif %}
// Edges: bytes beyond the end of k are zero. Workgroup memory: (BM + BN)·(BK + 1)·4 bytes.
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/byte_tiles.wgsl" as bytes with context %}
{% import "common/line_sums.wgsl" as lines with context %}
{% import "common/quantized.wgsl" as quantized with context %}
{% import "common/splits.wgsl" as splits with context %}
{% include "common/header.wgsl" %}

{{ quantized.dot_functions() }}
{{ bytes.declarations() }}
{{ quantized.store_tile4(divided) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ layout.assign_tile() }}
{{ layout.invocation_position() }}
{{ bytes.plan_loads() }}
{{ bytes.declare_sums() }}
{% if divided %}
{{ splits.part_of_k("4u * BK") }}
{% endif %}
{% set first, end = ("k_first", "k_end") if divided else ("0u", "params.k") %}
{{ bytes.load_next(first) }}
{{ bytes.write_tiles() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    //# inner
    for (var k0 = {{ "k_first + " if divided }}4u * BK; k0 < {{ end }}; k0 += 4u * BK) {
{{ bytes.load_next("k0") }}
{{ bytes.multiply_tiles("k0 - 4u * BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ bytes.write_tiles() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
    //# end
{{ bytes.multiply_tiles("(" ~ end ~ " - 1u) / (4u * BK) * (4u * BK)") }}
{{ lines.add_line_sums(bytes.operands) }}
{{ bytes.store_sums("workgroup.z, " if divided else "") }}
}
