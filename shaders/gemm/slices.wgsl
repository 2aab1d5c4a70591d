// slices: C = A·B in float64 by exact products of 8-bit integers (Ozaki's scheme), a TM × TN tile per invocation.
//
// Storage: slices (batch, line, slice, k) as slice.wgsl stores them; wide (batch, row, column), four words: the sum in
// units of 2^-7(KEPT + 1) times the powers of two of its row and its column, three words in two's complement, and
// Σ|a||b| of the first slices in units of 2⁻¹⁴, from which the next dispatch (from_slices) decides whether the sum is
// accurate enough. The weight of a product of slices s and t is 2^-7(s + t). Pairs of equal weight are multiplied as
// one long product, whose sums in i32 are added to `wide` before they can overflow. Pairs with s + t > KEPT + 1 are
// omitted. Loading the next tiles into registers overlaps multiplying the current ones.
// Workgroup memory: (BM + BN)·BK·4 bytes.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/slices.wgsl" as slices with context %}
{% include "common/header.wgsl" %}

{% set a_loads = kernel.bm * kernel.bk // 4 // kernel.invocations %}
{% set b_loads = kernel.bn * kernel.bk // 4 // kernel.invocations %}
{% set loads = {"a": a_loads, "b": b_loads} %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

{% for x, size in (("a", "BM"), ("b", "BN")) %}
var<workgroup> {{ x }}_tile: array<array<array<u32, 4>, {{ size }} / 4u>, BK>; // [word][line/4][line%4]
{% endfor %}

{{ slices.sum_functions() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ matrix.tile_origin("BM", "BN") }}
    let lx = local_index % WX;
    let ly = local_index / WX;
    let words = (params.k + 4u * BK - 1u) / (4u * BK) * BK; // of a line of a slice
{% for x, at, length in (("a", "row", "m"), ("b", "col", "n")) %}
    let {{ x }}_z = select(workgroup.z, 0u, params.{{ x }}_batch_stride == 0u);
{% for i in range(loads[x]) %}
    let {{ x }}_line{{ i }} = (local_index + {{ i * kernel.invocations }}u) / (BK / 4u);
    let {{ x }}_word{{ i }} = (local_index + {{ i * kernel.invocations }}u) % (BK / 4u) * 4u;
    // Lines beyond the last are loads of the last one; their sums are not stored.
{% set within %}min({{ at }}0 + {{ x }}_line{{ i }}, params.{{ length }} - 1u){% endset %}
{% set line %}{{ x }}_z * params.{{ length }} + {{ within }}{% endset %}
    let {{ x }}_start{{ i }} = ({{ line }}) * KEPT * words + {{ x }}_word{{ i }};
    var {{ x }}_next{{ i }}: vec4u;
{% endfor %}
{% endfor %}
{% macro load_next(k0) %}
{% for x in "ab" %}
{% set at = k0 if x == "a" else "first + " ~ k0 %}
{% for i in range(loads[x]) %}
                {{ x }}_next{{ i }} = {{ x }}_slices[({{ x }}_start{{ i }} + {{ at }}) / 4u];
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro write_tiles() %}
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
{% macro multiply_tiles() %}
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
{% call slices.for_each_chunk() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            var acc_{{ r }}_{{ j }} = vec4i();
{% endfor %}
{% endfor %}
{{ load_next("chunk") }}
{{ write_tiles() }}
            workgroupBarrier(); // the first tiles are complete before anyone reads them
            for (var k0 = chunk + BK; k0 < end; k0 += BK) {
{{ load_next("k0") }}
{{ multiply_tiles() }}
                workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ write_tiles() }}
                workgroupBarrier(); // the tiles are complete before anyone reads them
            }
{{ multiply_tiles() }}
            workgroupBarrier(); // everyone is done with the tiles before the next ones are written
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
