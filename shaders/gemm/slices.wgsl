// slices: C = A·B in float64 by exact products of 8-bit integers (Ozaki's scheme), TM × TN elements per invocation.
//
// Storage: slices (batch, line, slice, k) as slice.wgsl leaves them; wide (batch, row, column): the sum in units of
// 2⁻⁶³ times the powers of two of its row and its column, three words in two's complement, and Σ|a||b| of the first
// slices in units of 2⁻¹⁴, from which the next dispatch (from_slices) tells whether the sum is good enough.
// What slices s and t weigh depends on s + t alone: pairs of equal weight are one product, as long as all of them,
// whose sums in i32 go to the sum in storage before they can overflow. Pairs beyond the weight of the last slice are
// left out. The next tile is on its way, in registers, while this one is multiplied.
// Shapes: any. Workgroup memory: (BM + BN)·BK·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/slices.wgsl" as slices with context %}
{% include "common/header.wgsl" %}

{% set a_loads = kernel.bm * kernel.bk // 4 // kernel.invocations %}
{% set b_loads = kernel.bn * kernel.bk // 4 // kernel.invocations %}
{% set loads = {"a": a_loads, "b": b_loads} %}
const WX = BN / TN;
const WY = BM / TM;

{% for x, size in (("a", "BM"), ("b", "BN")) %}
var<workgroup> {{ x }}_tile: array<array<array<u32, 4>, {{ size }} / 4u>, BK>; // [word][line/4][line%4]
{% endfor %}

{{ slices.sums() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
{{ matrix.tile_origin("BM", "BN") }}
    let lx = lane % WX;
    let ly = lane / WX;
    let words = (params.k + 4u * BK - 1u) / (4u * BK) * BK; // of a line of a slice
{% for x, at, length in (("a", "row", "m"), ("b", "col", "n")) %}
    let {{ x }}_z = select(workgroup.z, 0u, params.{{ x }}_batch_stride == 0u);
{% for i in range(loads[x]) %}
    let {{ x }}_line{{ i }} = (lane + {{ i * kernel.invocations }}u) / (BK / 4u);
    let {{ x }}_word{{ i }} = (lane + {{ i * kernel.invocations }}u) % (BK / 4u) * 4u;
    // Lines beyond the last read it: nothing that comes of them is stored.
{% set within %}min({{ at }}0 + {{ x }}_line{{ i }}, params.{{ length }} - 1u){% endset %}
{% set line %}{{ x }}_z * params.{{ length }} + {{ within }}{% endset %}
    let {{ x }}_start{{ i }} = ({{ line }}) * KEPT * words + {{ x }}_word{{ i }};
    var {{ x }}_next{{ i }}: vec4u;
{% endfor %}
{% endfor %}
{% macro fetch(k0) %}
{% for x in "ab" %}
{% set at = k0 if x == "a" else "first + " ~ k0 %}
{% for i in range(loads[x]) %}
                {{ x }}_next{{ i }} = {{ x }}_slices[({{ x }}_start{{ i }} + {{ at }}) / 4u];
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro put() %}
{% for x in "ab" %}
{% for i in range(loads[x]) %}
{% set next, word, line = x ~ "_next" ~ i, x ~ "_word" ~ i, x ~ "_line" ~ i %}
                {{ next }} = select({{ next }}, magnitudes({{ next }}), vec4<bool>(step == 0u));
{% for j in range(4) %}
                {{ x }}_tile[{{ word }} + {{ j }}u][{{ line }} / 4u][{{ line }} % 4u] = {{ next }}[{{ j }}];
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro multiplied() %}
{% for kk in range(kernel.bk) %}
                {
{% for i in range(kernel.tm // 4) %}
                    let a{{ i }} = a_tile[{{ kk }}][ly + {{ i }}u * WY];
{% endfor %}
{% for j in range(kernel.tn // 4) %}
                    let b{{ j }} = b_tile[{{ kk }}][lx + {{ j }}u * WX];
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
{% set a %}a{{ r // 4 }}[{{ r % 4 }}]{% endset %}
                    acc_{{ r }}_{{ j }} += vec4i(
{%- for c in range(4) %}dot4I8Packed({{ a }}, b{{ j }}[{{ c }}]){{ ", " if c < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
                }
{% endfor %}
{% endmacro %}
{% call slices.weights() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            var acc_{{ r }}_{{ j }} = vec4i();
{% endfor %}
{% endfor %}
{{ fetch("chunk") }}
{{ put() }}
            workgroupBarrier(); // the first tiles are complete before anyone reads them
            for (var k0 = chunk + BK; k0 < end; k0 += BK) {
{{ fetch("k0") }}
{{ multiplied() }}
                workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ put() }}
                workgroupBarrier(); // the tiles are complete before anyone reads them
            }
{{ multiplied() }}
            workgroupBarrier(); // everyone is done with the tiles before the next begin
{% for r in range(kernel.tm) %}
{% set row %}row0 + (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u{% endset %}
{% for j in range(kernel.tn // 4) %}
{% for c in range(4) %}
{% set col %}col0 + (lx + {{ j }}u * WX) * 4u + {{ c }}u{% endset %}
            keep(workgroup.z, {{ row }}, {{ col }}, acc_{{ r }}_{{ j }}[{{ c }}], weight, fresh);
{% endfor %}
{% endfor %}
{% endfor %}
{% endcall %}
}
