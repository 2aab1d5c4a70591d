// split_k: C = A·B, as pipelined, with k split among groups of invocations and among workgroups.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
// Changed from pipelined: if C has few tiles, one workgroup per tile leaves most of a GPU idle. Here SLICES groups of
// invocations each compute every SLICES-th step of k for the same tile, and add their sums in workgroup memory.
{% if kernel.splits > 1 %}
// SPLITS workgroups each compute a part of k, and store partial sums (batch, split, row, column), rows padded to whole
// vec4. The next dispatch (sum_splits) adds these and applies the epilogue.
{% endif %}
// On an H200, against pipelined: 4.3 and 2.8 TFLOP/s at 256³, 17.7 and 15.0 at 512³ (8 slices both), 37 and 34 at
// 1024³, 40.7 and 35.0 at 1536³ (3 splits both); 40.9 at 256×256×65536 (32 splits). From 2048³ on there is nothing to
// gain. The second dispatch costs about 2 µs and the traffic of the partial sums; slices cost workgroup memory.
// Edges: partial tiles are padded with zeros.
// Workgroup memory: SLICES·(BM + BN + 8)·BK·4 bytes for tiles, (SLICES - 1)·BM·BN/TM·4 for sums.
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/load.wgsl" as load with context %}
{% import "common/register_tiles/multiply.wgsl" as multiply with context %}
{% import "common/register_tiles/store.wgsl" as store with context %}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/splits.wgsl" as splits with context %}
{% include "common/header.wgsl" %}

{% set staged = store.staged and kernel.splits == 1 %}
{% set slice = "[slice]" if kernel.slices > 1 else "" %}
const SHARERS = BM / TM * (BN / TN); // invocations of a slice
{% if kernel.slices > 1 %}
var<workgroup> sums: array<array<array<{{ vec4r }}, SHARERS>, TN / 4u>, SLICES - 1u>; // [slice - 1][column/4][sharer]
{% endif %}

{% if kernel.splits > 1 %}
{{ load.declarations(slices=kernel.slices) }}
{{ splits.store_partial() }}
{% else %}
{{ load.declarations(slices=kernel.slices) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endif %}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ layout.assign_tile() }}
    let sharer = local_index % SHARERS;
    let slice = local_index / SHARERS;
{% if kernel.splits > 1 %}
    let batch = workgroup.z / SPLITS;
    let split = workgroup.z % SPLITS;
{{ matrix.bases("batch", c=false) }}
    let c_base = {{ splits.partial_base() }}; // of this split's partial sums, in vec4
{% else %}
    let split = 0u;
{{ matrix.bases() }}
{% endif %}
{{ layout.invocation_position("sharer", kernel.interleaved(s)) }}
{{ load.plan_loads("sharer") }}
{{ splits.part_of_k("SLICES * BK", "split") }}
{{ layout.declare_sums() }}
{{ load.declare_registers() }}
    //# inner
    var k0 = k_first + slice * BK;
{{ load.load_next("k0") }}
{{ load.write_tiles(slice) }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    for (var k = k_first + SLICES * BK; k < k_end; k += SLICES * BK) {
        k0 = k + slice * BK;
{{ load.load_next("k0") }}
{{ multiply.multiply_tiles(slice, "k0 - SLICES * BK") }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ load.write_tiles(slice) }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
    //# end
{{ multiply.multiply_tiles(slice) }}
{% if kernel.slices > 1 %}
{% for r in range(kernel.tm) %}
    //# slices
    if (slice > 0u) {
{% for j in range(kernel.tn // 4) %}
        sums[slice - 1u][{{ j }}][sharer] = acc_{{ r }}_{{ j }};
{% endfor %}
    }
    workgroupBarrier(); // the other slices' sums are complete before the first slice adds them
    if (slice == 0u) {
{% for j in range(kernel.tn // 4) %}
{% for other in range(kernel.slices - 1) %}
        acc_{{ r }}_{{ j }} += sums[{{ other }}][{{ j }}][sharer];
{% endfor %}
{% if not staged %}
        {{ store.store_vec4(r, j) }}
{% endif %}
{% endfor %}
{% if staged %}
{{ store.stage_rows(r, "[0]") }}
{% endif %}
    }
{% if staged %}
    workgroupBarrier(); // the sums are read, and these rows are complete, before anyone stores them
{{ store.store_staged_rows(r, "[0]") }}
{% elif not loop.last %}
    workgroupBarrier(); // the first slice has read the sums before they are overwritten
{% endif %}
    //# end
{% endfor %}
{% else %}
{{ store.store_sums() }}
{% endif %}
}
