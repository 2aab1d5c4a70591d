{#
  Fragments of float16 between storage and matrix units: chunks of eight on their way in, and C, single elements of which
  an epilogue, an edge or a conversion needs, on its way out through workgroup memory. Beside fragments.wgsl.
#}
{% import "common/fragments.wgsl" as fragments with context %}

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
{% macro before_end() %}
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

{% endmacro %}

{# Of the fragment of C that subgroup `own` of a slice left in workgroup memory, four neighbours. #}
{% macro four(slice) -%}
{% if fragments.wide -%}
bitcast<vec4f>(a_tile[{{ "%du + " % (slice * kernel.bm // kernel.sm) if slice }}own / (BN / SN)][own % (BN / SN) * (FM * FN / 4u) + i])
{%- else -%}
{% set at = "c_tile[%sown]" % ("%du + " % (slice * fragments.own) if slice) %}
vec4f({{ at }}[4u * i], {{ at }}[4u * i + 1u], {{ at }}[4u * i + 2u], {{ at }}[4u * i + 3u])
{%- endif %}
{%- endmacro %}

{# `finish` stands in for store_c4 or store_c. #}
{% macro store_fragment(finish="store_c4" if s.vec_c else "store_c") %}
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
        {{ finish }}(base, row + 4u * i / FN, col + 4u * i % FN, value);
{% else %}
        {{ finish }}(base, row + element / FN, col + element % FN, value[element % 4u]);
{% endif %}
    }
}
{% endmacro %}

{# All fragments of a subgroup → C. #}
{% macro store(operands) %}
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
{% endmacro %}
