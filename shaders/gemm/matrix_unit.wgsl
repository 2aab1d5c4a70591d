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
{% if kernel.slices > 1 %}
// Where a C of few tiles leaves most of a machine idle, SLICES groups of subgroups take a share of each step of k for the
// same tile, and add their sums up in workgroup memory. On an H200: 161 TFLOP/s at 1024³, 133 without; 154 at
// 128×4096×4096, 57 without.
{% endif %}
// Shapes: any. What lies beyond the end of k is zero. What lies beyond the other edges is read wherever the engine's
// bounds checks let it be: nothing that comes of it is stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 2·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes where A runs along k and B along n{{ "; C takes A's
// place" if dialect == "tint" and kernel.spelling == "current" else ",
// and 4·FM·FN for each subgroup" }}.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{% set operands = [
  {"x": "a", "at": "row", "tile": kernel.bm, "part": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "a_base", "vec": s.vec_a},
  {"x": "b", "at": "col", "tile": kernel.bn, "part": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": s.trans_b, "loads": kernel.b_loads, "base": "b_base", "vec": s.vec_b},
] %}

{% include "common/header.wgsl" %}

{{ fragments.types() }}
{{ fragments.panels(operands, "is what lies contiguously in storage") }}
{%- if not fragments.wide %}
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
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) if s.vec_c else matrix.store_c(row=s.edge_m, col=s.edge_n) }}
{# Of the fragment of C that subgroup `own` of a slice left in workgroup memory, four neighbours. #}
{% macro four(slice) -%}
{% if fragments.wide -%}
bitcast<vec4f>(a_tile[{{ "%du + " % (slice * kernel.bm // kernel.sm) if slice }}own / (BN / SN)][own % (BN / SN) * (FM * FN / 4u) + i])
{%- else -%}
{% set at = "c_tile[%sown]" % ("%du + " % (slice * fragments.own) if slice) %}
vec4f({{ at }}[4u * i], {{ at }}[4u * i + 1u], {{ at }}[4u * i + 2u], {{ at }}[4u * i + 3u])
{%- endif %}
{%- endmacro %}
// The fragment{{ "s that the slices of a subgroup" if kernel.slices > 1 else " that this subgroup" }} left in workgroup memory{{ ", added up" if kernel.slices > 1 }} → C, from (row, col) on{{ "; single elements by neighbouring lanes" if not s.vec_c }}
fn store_fragment(base: u32, row: u32, col: u32, own: u32, lane: u32) {
{% if s.vec_c %}
    for (var i = lane; i < FM * FN / 4u; i += SLICES * LANES) {
{% else %}
    for (var element = lane; element < FM * FN; element += SLICES * LANES) {
        let i = element / 4u;
{% endif %}
        {{ "var" if kernel.slices > 1 else "let" }} value = {{ four(0) }};
{% for slice in range(1, kernel.slices) %}
        value += {{ four(slice) }};
{% endfor %}
{% if s.vec_c %}
        store_c4(base, row + 4u * i / FN, col + 4u * i % FN, value);
{% else %}
        store_c(base, row + element / FN, col + element % FN, value[element % 4u]);
{% endif %}
    }
}

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
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
{{ fragments.positions(operands) }}
{{ fragments.product(operands, fetch, put) }}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if kernel.slices > 1 %}
    let own = subgroup % {{ fragments.own }}u;
    let own_lane = slice * LANES + subgroup_lane;
{% endif %}
{% if fragments.wide %}
    workgroupBarrier(); // everyone is done with the tiles before C takes the place of A's
{% endif %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
{% set fragment = "acc_%d_%d" % (r, q) %}
{% if fragments.wide %}
{{ fragments.store(fragment, "a_tile[%s]" % fragments.panel_of(operands[0]), "subgroup_col * (FM * FN / 4u)", "FN / 4u") }}
{%- else %}
{{ fragments.store(fragment, "c_tile[subgroup]", "0u", "FN") }}
{%- endif %}
    workgroupBarrier(); // the fragments are complete before lanes read them
    store_fragment(c_base, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, {{ "own, own_lane" if kernel.slices > 1 else "subgroup, subgroup_lane" }});
{% if not (r == kernel.sm // kernel.fm - 1 and loop.last) %}
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endif %}
{% endfor %}
{% endfor %}
}
