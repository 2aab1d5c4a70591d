// tiles: C = A·W for many rows of A, W quantised weights; a TM × TN register tile of C per invocation.
//
// Storage: A (m, k) with its own row stride, f32 or f16; W (k, n) by columns, {{ s.per_word }} weights of {{ s.bits }}
// bits to a u32, with a scale and a zero point per block of {{ s.block }}; C (m, n), dense. Accumulation in f32.
// This is gemm/pipelined, except that a load of B unpacks four weights from a word.
// Changed from vector: A and W pass through workgroup memory, so that a weight is loaded and unpacked once for BM rows.
{% set divided = kernel.splits > 1 %}
{% if divided %}
// SPLITS workgroups each compute a part of k for the same tile, and store partial sums; the next dispatch (sum_splits)
// adds these.
{% endif %}
// Edges: partial tiles are padded with zeros. Workgroup memory: (BM + 4 + BN)·BK·4 bytes.
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/load.wgsl" as load with context %}
{% import "common/register_tiles/multiply.wgsl" as multiply with context %}
{% import "common/register_tiles/store.wgsl" as store with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/splits.wgsl" as splits with context %}
{% import "common/weights.wgsl" as weights with context %}
{% include "common/header.wgsl" %}

{{ weights.constants() }}
{% macro load_b4() %}
{{ weights.unpack_functions() }}
//# unpack
// W[k..k+3, col], stored from weight `index` on{% if s.edge_n %}; zero outside the matrix{% endif %}

fn load_b4(index: u32, col: u32, k: u32) -> vec4f {
{% if s.edge_n %}
    if (col >= params.n) {
        return vec4f();
    }
{% endif %}
    let block = index / BLOCK;
    return scales[block] * (integers4(b[index / PER_WORD] >> (index % PER_WORD * BITS)) - zero_of(block));
}
//# end
{% endmacro %}
{% if divided %}
{{ load.declarations(load_b4=load_b4()) }}
{{ splits.store_partial() }}
{% else %}
{{ load.declarations(load_b4=load_b4()) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endif %}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ layout.assign_tile() }}
    let a_base = params.a_offset;
    let b_base = 0u;
    let c_base = {{ splits.partial_base() ~ "; // of this split's partial sums, in vec4" if divided else "0u;" }}
{{ layout.invocation_position() }}
{{ load.plan_loads() }}
{{ layout.declare_sums() }}
{{ load.declare_registers() }}
{% if divided %}
{{ splits.part_of_k("BK") }}
{% endif %}
{% set first, end = ("k_first", "k_end") if divided else ("0u", "params.k") %}
{{ load.load_next(first) }}
{{ load.write_tiles() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    for (var k0 = {{ "k_first + " if divided }}BK; k0 < {{ end }}; k0 += BK) {
{{ load.load_next("k0") }}
{{ multiply.multiply_tiles(k0="k0 - BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ load.write_tiles() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
{{ multiply.multiply_tiles(k0="(" ~ end ~ " - 1u) / BK * BK") }}
{{ store.store_sums(store.staged and not divided) }}
}
