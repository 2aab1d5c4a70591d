// pipelined: C = A·B, TM × TN elements of C per invocation, with the next tile on its way during the FMAs.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; bound as array<vec4> where the
// contiguous length is a multiple of 4; accumulation in f32.
// Changed from blocked: the loads of the next tile are issued before this tile is multiplied, so that their latency
// hides behind the FMAs.
{% if kernel.prefetch == "registers" %}
// The next tile waits in registers; one buffer, two barriers per step.
{% else %}
// The next tile goes to a second buffer; one barrier per step, twice the workgroup memory. The two buffers are two
// variables and the loop takes two steps at once: a buffer chosen by an index would cost a bounds check per access.
{% endif %}
// Shapes: any; tiles that hang over an edge are filled with zeros.
// Workgroup memory: (BM + BN + 8)·BK·4 bytes per buffer, 8·BK·4 less where vec4 fit.
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

{{ tiles.declarations(kernel.buffers) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
{{ tiles.lane_position() }}
{{ tiles.plan_loads() }}
{{ tiles.declare_sums() }}
{{ tiles.declare_registers() }}
{{ tiles.fetch("0u") }}
{{ tiles.put() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
{% if kernel.prefetch == "registers" %}
    for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ tiles.fetch("k0") }}
{{ tiles.multiply(k0="k0 - BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ tiles.put() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
    // The last tiles stand outside the loop: a condition in it costs 6 % (H200, 4096³).
{{ tiles.multiply(k0="(params.k - 1u) / BK * BK") }}
{% else %}
    for (var k0 = 0u; k0 < params.k; k0 += 2u * BK) {
{% for buffer in range(2) %}
        let more_{{ buffer }} = k0 + {{ buffer + 1 }}u * BK < params.k;
        if (more_{{ buffer }}) {
{{ tiles.fetch("(k0 + " ~ (buffer + 1) ~ "u * BK)") }}
        }
{% if buffer %}
        if (more_0) {
{{ tiles.multiply(buffer, "k0 + " ~ buffer ~ "u * BK") }}
        }
{% else %}
{{ tiles.multiply(buffer, "k0 + " ~ buffer ~ "u * BK") }}
{% endif %}
        if (more_{{ buffer }}) {
{{ tiles.put(1 - buffer) }}
        }
        workgroupBarrier(); // the next tiles are complete, and everyone is done with these
{% endfor %}
    }
{% endif %}
{{ tiles.store(tiles.staged) }}
}
