// pipelined: C = A·B, as blocked, with software pipelining: loading the next tiles overlaps multiplying these.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from blocked: the loads of the next tiles are issued before the current tiles are multiplied, so that
// the FMAs hide their latency.
{% if kernel.prefetch == "registers" %}
// The next tiles are held in registers: one buffer in workgroup memory, two barriers per step.
{% else %}
// The next tiles go to a second buffer: one barrier per step, twice the workgroup memory. The two buffers are separate
// variables and each iteration does two steps, since indexing a buffer would cost a bounds check per access.
{% endif %}
{#
  What was tried and dropped, on an H200; TFLOP/s at 4096³ unless stated otherwise:
  - Transposing A by writing single components of a vec4 in workgroup memory: fast and wrong, since WGSL allows such a
    store to write all four components, and Metal and D3D do so. Arrays of four f32 are as fast.
  - Gathering four rows of A into a vec4 (four scalar loads, one whole store): 46.1 instead of 48.2. Transposing 4×4
    blocks in registers: 42.
  - A condition in the k loop for the last tile, instead of a copy of the FMAs after the loop: 45.3 instead of 48.2.
  - A second workgroup buffer instead of registers for the next tile: 26 with tiles of 64×128, 38–44 with 128×128.
  - BK = 32: 34 or less; the registers for the next tile leave too few for everything else.
  - A loop over the inner tile that is not unrolled: 36–38. Engines add a counter to every loop, and the driver then
    does not unroll it.
  - Padding rows of the tiles: -2 %; 8×4 lanes per subgroup: -1 %; raster order of the tiles: within 1 %.
  - Swizzling or padding tiles that are transposed on their way into workgroup memory, which removes the bank conflicts
    of their stores: within 2 % either way for nt and tt, except that thin products gain 2–4 %.
  - Tiles of 96 rows or columns, which divide some sizes more evenly among the multiprocessors: 39.4 at 1536³, where
    dividing k reaches 40.7. Tiles of 256×64 and 128×256, 8×16 elements per invocation: 44–47.
  - Reading four elements at any offset with two vec4 and a shift instead of one by one: 38.8 instead of 45.8 at
    4095×4097×4093, 32.6 instead of 36.6 at 2047×2049×2051, and slower for eleven of twelve other sizes that vec4 do not
    fit; the next tile then takes twice the registers. (16-bit elements on matrix units gain by it, with eight per
    load.)
  - B transposed with a large k and a small C, whose rows are far apart in memory, 353×190×116460: 660 µs with BK = 8,
    430 with 16 (cuBLAS 383), 637 to 1,257 with 32, which reads whole lines of 128 bytes.

  Coalesced stores of C where vec4 do not fit: tall products rose from 0.66 through 0.76 to 0.91 of cuBLAS, since four
  stores 16 bytes apart had moved four times as many cache lines.
#}
// Edges: partial tiles are padded with zeros.
// Workgroup memory: at most (BM + BN + 8)·BK·4 bytes per buffer; tiles written as vec4 need no padding.
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/load.wgsl" as load with context %}
{% import "common/register_tiles/multiply.wgsl" as multiply with context %}
{% import "common/register_tiles/store.wgsl" as store with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ load.declarations(kernel.buffers) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ layout.assign_tile() }}
{{ matrix.bases() }}
{{ layout.invocation_position(interleaved=kernel.interleaved(s)) }}
{{ load.plan_loads() }}
{{ layout.declare_sums() }}
{{ load.declare_registers() }}
    //# inner
{{ load.load_next("0u") }}
{{ load.write_tiles() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
{% if kernel.prefetch == "registers" %}
    for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ load.load_next("k0") }}
{{ multiply.multiply_tiles(k0="k0 - BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ load.write_tiles() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
    //# end
    // The last tiles are multiplied outside the loop: a condition inside it costs 6 % (H200, 4096³).
{{ multiply.multiply_tiles(k0="(params.k - 1u) / BK * BK") }}
{% else %}
    for (var k0 = 0u; k0 < params.k; k0 += 2u * BK) {
{% for buffer in range(2) %}
        let more_{{ buffer }} = k0 + {{ buffer + 1 }}u * BK < params.k;
        if (more_{{ buffer }}) {
{{ load.load_next("(k0 + " ~ (buffer + 1) ~ "u * BK)") }}
        }
{% if buffer %}
        if (more_0) {
{{ multiply.multiply_tiles(buffer, "k0 + " ~ buffer ~ "u * BK") }}
        }
{% else %}
{{ multiply.multiply_tiles(buffer, "k0 + " ~ buffer ~ "u * BK") }}
{% endif %}
        if (more_{{ buffer }}) {
{{ load.write_tiles(1 - buffer) }}
        }
        workgroupBarrier(); // the next tiles are complete, and everyone is done with these
{% endfor %}
    }
{% endif %}
{{ store.store_sums(store.staged) }}
}
