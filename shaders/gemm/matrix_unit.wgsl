{% set direct = kernel.direct(s) %}
// matrix_unit: C = A·B by the GPU's matrix units, SM × SN of C per subgroup out of a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; float16 A and B, bound as array<vec4<u32>>, eight
// elements each, where the contiguous length is a multiple of 8, otherwise as array<u32>, two each; C in float32 or
// float16; accumulation in float32.
// Changed from pipelined: a subgroup multiplies fragments of FM × FK and FK × FN by one instruction. Fragments are
// opaque, so that each is loaded from workgroup memory as a whole, and what an epilogue, an edge or a conversion does to
// single elements of C is done on its way through workgroup memory, too.
{% if not (s.vec_a and s.vec_b) %}
// Rows that are no multiple of 8 elements start anywhere: eight neighbours are five words, moved by half a word where the
// first is an odd one. 168 TFLOP/s at 4095×4097×4093 on an H200; 35 by single elements, 182 by two vec4, whose last one a
// buffer may not hold whole.
{% endif %}
// Shapes: any. What lies beyond the end of k is zero. What lies beyond the other edges is read wherever the engine's
// bounds checks let it be: nothing that comes of it is stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 2·(BM·(BK + 8) + BN·(BK + 8·BK/SN)) bytes where A runs along k and B along n{{ "" if direct else ",
// and 4·FM·FN for each subgroup" }}.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% set operands = [
  {"x": "a", "at": "row", "tile": kernel.bm, "part": kernel.sm, "size": "m", "edge": s.edge_m, "vec": s.vec_a,
   "along_k": not s.trans_a, "loads": kernel.a_loads, "fragment": kernel.fm, "kind": "Left",
   "base": "a_base"},
  {"x": "b", "at": "col", "tile": kernel.bn, "part": kernel.sn, "size": "n", "edge": s.edge_n, "vec": s.vec_b,
   "along_k": s.trans_b, "loads": kernel.b_loads, "fragment": kernel.fn, "kind": "Right",
   "base": "b_base"},
] %}

{% include "common/header.wgsl" %}

{{ fragments.types() }}
{{ fragments.panels(operands, "is what lies contiguously in storage") }}
{%- if not direct %}
var<workgroup> c_tile: array<array<f32, FM * FN>, {{ kernel.subgroups }}>; // a fragment of C per subgroup
{% endif %}

{% macro load(o) %}
{% set at, k = (o.at, "k..+7") if o.along_k else (o.at ~ "..+7", "k") %}
// Eight neighbours in storage, {{ "A[%s, %s]" % (at, k) if o.x == "a" else "B[%s, %s]" % (k, at) }}
fn load_{{ o.x }}8(index: u32) -> vec4<u32> {
{% if o.vec %}
    return {{ o.x }}[index];
{% else %}
    let at = index / 2u;
    let words = vec4<u32>({% for j in range(4) %}{{ o.x }}[at{{ " + %du" % j if j }}]{{ ", " if j < 3 }}{% endfor %});
    let odd = (words >> vec4<u32>(16u)) | (vec4<u32>(words.yzw, {{ o.x }}[at + 4u]) << vec4<u32>(16u));
    return select(words, odd, index % 2u == 1u);
{% endif %}
}
{% endmacro %}
{{ load(operands[0]) }}
{{ load(operands[1]) }}
{% if s.edge_k and (not s.trans_a or s.trans_b) %}
// Eight neighbours from k on, zero from the end of k on
fn before_end(neighbours: vec4<u32>, k: u32) -> vec4<u32> {
    let left = i32(min(max(params.k, k) - k, 8u));
    let bits = vec4<u32>(clamp(vec4<i32>(16 * left) - vec4<i32>(0, 32, 64, 96), vec4<i32>(), vec4<i32>(32)));
    return vec4<u32>(
{% for c in "xyzw" %}
        extractBits(neighbours.{{ c }}, 0u, bits.{{ c }}),
{% endfor %}
    );
}

{% endif %}
{% if not direct %}
{% if s.vec_c %}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% else %}
{{ matrix.store_c(row=s.edge_m, col=s.edge_n) }}
{% endif %}
// The fragment that this subgroup left in workgroup memory → C, from (row, col) on{% if not s.vec_c %}; neighbours by neighbouring lanes{% endif %}

fn store_fragment(base: u32, row: u32, col: u32, subgroup: u32, first: u32) {
{% if s.vec_c %}
    for (var i = 4u * first; i < FM * FN; i += 4u * LANES) {
        let value = vec4f(c_tile[subgroup][i], c_tile[subgroup][i + 1u], c_tile[subgroup][i + 2u], c_tile[subgroup][i + 3u]);
        store_c4(base, row + i / FN, col + i % FN, value);
    }
{% else %}
    for (var i = first; i < FM * FN; i += LANES) {
        store_c(base, row + i / FN, col + i % FN, c_tile[subgroup][i]);
    }
{% endif %}
}
{% endif %}

{% macro fetch(k0) %}
{{ fragments.fetch(operands, k0) }}
{% endmacro %}

{% macro put(k0) %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // what lies beyond the end of k must come to nothing
{% for o in operands %}
{% for i in range(o.loads) %}
{% set next, k = "%s_next%d" % (o.x, i), "%s + %s_k%d" % (k0, o.x, i) %}
            {{ next }} = {{ "before_end(%s, %s)" % (next, k) if o.along_k else "select(vec4<u32>(), %s, %s < params.k)" % (next, k) }};
{% endfor %}
{% endfor %}
        }
{% endif %}
{{ fragments.put(operands) }}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
{% if not direct %}
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
{% endif %}
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
{{ fragments.positions(operands) }}
{{ fragments.product(operands, fetch, put) }}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if direct %}
    let stride = params.ldc;
{% endif %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
{% if direct %}
    let c_{{ r }}_{{ q }} = c_base + (row + {{ r * kernel.fm }}u) * stride + col + {{ q * kernel.fn }}u;
{{ fragments.store("acc_%d_%d" % (r, q), "c", "c_%d_%d" % (r, q), "stride") }}
{%- else %}
{{ fragments.store("acc_%d_%d" % (r, q), "c_tile[subgroup]", "0u", "FN") }}
    workgroupBarrier(); // the fragments are complete before lanes read them
    store_fragment(c_base, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, subgroup, subgroup_lane);
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endif %}
{% endfor %}
{% endfor %}
}
