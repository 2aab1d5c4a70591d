// pipelined: C = A·B, as blocked, with software pipelining: loading the next tiles overlaps multiplying these.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; bound as array<vec4> if the
// contiguous length is a multiple of 4; accumulation in f32.
// Changed from blocked: the loads of the next tiles are issued before the current tiles are multiplied, so that
// the FMAs hide their latency.
{% if kernel.prefetch == "registers" %}
// The next tiles are held in registers: one buffer in workgroup memory, two barriers per step.
{% else %}
// The next tiles go to a second buffer: one barrier per step, twice the workgroup memory. The two buffers are separate
// variables and each iteration does two steps, since indexing a buffer would cost a bounds check per access.
{% endif %}
// Shapes: any; partial tiles are padded with zeros.
// Workgroup memory: at most (BM + BN + 8)·BK·4 bytes per buffer; tiles written as vec4 need no padding.
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ tiles.declarations(kernel.buffers) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ tiles.assign_tile() }}
{{ matrix.bases() }}
{{ tiles.invocation_position() }}
{{ tiles.plan_loads() }}
{{ tiles.declare_sums() }}
{{ tiles.declare_registers() }}
{{ tiles.load_next("0u") }}
{{ tiles.write_tiles() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
{% if kernel.prefetch == "registers" %}
    for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ tiles.load_next("k0") }}
{{ tiles.multiply_tiles(k0="k0 - BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ tiles.write_tiles() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
    // The last tiles are multiplied outside the loop: a condition inside it costs 6 % (H200, 4096³).
{{ tiles.multiply_tiles(k0="(params.k - 1u) / BK * BK") }}
{% else %}
    for (var k0 = 0u; k0 < params.k; k0 += 2u * BK) {
{% for buffer in range(2) %}
        let more_{{ buffer }} = k0 + {{ buffer + 1 }}u * BK < params.k;
        if (more_{{ buffer }}) {
{{ tiles.load_next("(k0 + " ~ (buffer + 1) ~ "u * BK)") }}
        }
{% if buffer %}
        if (more_0) {
{{ tiles.multiply_tiles(buffer, "k0 + " ~ buffer ~ "u * BK") }}
        }
{% else %}
{{ tiles.multiply_tiles(buffer, "k0 + " ~ buffer ~ "u * BK") }}
{% endif %}
        if (more_{{ buffer }}) {
{{ tiles.write_tiles(1 - buffer) }}
        }
        workgroupBarrier(); // the next tiles are complete, and everyone is done with these
{% endfor %}
    }
{% endif %}
{{ tiles.store_sums(tiles.staged) }}
}
