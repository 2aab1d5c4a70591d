{#
  What stages on matrix units that multiply float16 have beside fragments.wgsl: functions that load chunks of eight
  elements, and the way of C out of fragments. No shader can reach the elements of a fragment, but an epilogue, an edge
  or a conversion needs them one by one: so each fragment of C goes through workgroup memory, from where lanes read it.
#}
{% import "common/fragments.wgsl" as fragments with context %}

{# Where rows are no multiple of eight elements, these start within a word: five words hold them. #}
{% macro load_function(o) %}
{% set place, k = (o.axis, "k..+7") if o.along_k else (o.axis ~ "..+7", "k") %}
// Eight neighbours in storage, {{ "A[" ~ place ~ ", " ~ k ~ "]" if o.x == "a" else "B[" ~ k ~ ", " ~ place ~ "]" }}
fn load_{{ o.x }}8(index: u32) -> vec4<u32> {
{% if o.vec %}
    return {{ o.x }}[index];
{% else %}
    let at = index / 2u;
    let words = vec4<u32>({{ o.x }}[at], {{ o.x }}[at + 1u], {{ o.x }}[at + 2u], {{ o.x }}[at + 3u]);
    let odd = (words >> vec4<u32>(16u)) | (vec4<u32>(words.yzw, {{ o.x }}[at + 4u]) << vec4<u32>(16u));
    return select(words, odd, index % 2u == 1u);
{% endif %}
}
{% endmacro %}
{% macro before_end_function() %}
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

{# Statements that make zero what lies beyond the end of k, of the chunks in registers that start at k0. #}
{% macro zero_beyond_end(o, k0) %}
{% for i in range(o.loads) %}
{% set next = o.x ~ "_next" ~ i %}
{% set k %}{{ k0 }} + {{ o.x }}_k{{ i }}{% endset %}
{% if o.along_k %}
            {{ next }} = before_end({{ next }}, {{ k }});
{% else %}
            {{ next }} = select(vec4<u32>(), {{ next }}, {{ k }} < params.k);
{% endif %}
{% endfor %}
{% endmacro %}

{# Vec4 `i` of the fragment of C that subgroup `own` of a slice left in workgroup memory: where A was, or in c_tile. #}
{% macro read_four(slice) -%}
{% if fragments.vec4_panels -%}
{% set panel %}{% if slice %}{{ slice * kernel.bm // kernel.sm }}u + {% endif %}own / (BN / SN){% endset %}
bitcast<vec4f>(a_tile[{{ panel }}][own % (BN / SN) * (FM * FN / 4u) + i])
{%- else -%}
{% set fragment %}c_tile[{% if slice %}{{ slice * fragments.slice_subgroups }}u + {% endif %}own]{% endset %}
vec4f({% for e in range(4) %}{{ fragment }}[4u * i{% if e %} + {{ e }}u{% endif %}]{{ ", " if e < 3 }}{% endfor %})
{%- endif %}
{%- endmacro %}

{# The function that takes a fragment from there to C; `finish` stands in for store_c4 or store_c. #}
{% macro store_function(finish="store_c4" if s.vec_c else "store_c") %}
// A fragment in workgroup memory → C, from (row, col) on
{%- if kernel.slices > 1 %}, added up from those of all slices{% endif %}
{%- if not s.vec_c %}.
// Neighbouring lanes store single elements.{% endif %}

fn store_fragment(base: u32, row: u32, col: u32, own: u32, lane: u32) {
{% if s.vec_c %}
    for (var i = lane; i < FM * FN / 4u; i += SLICES * LANES) {
{% else %}
    for (var element = lane; element < FM * FN; element += SLICES * LANES) {
        let i = element / 4u;
{% endif %}
        {{ "var" if kernel.slices > 1 else "let" }} value = {{ read_four(0) }};
{% for slice in range(1, kernel.slices) %}
        value += {{ read_four(slice) }};
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
{% macro store_fragments(operands) %}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if kernel.slices > 1 %}
    let own = subgroup % {{ fragments.slice_subgroups }}u;
    let own_lane = slice * LANES + subgroup_lane;
{% endif %}
{% if fragments.vec4_panels %}
    workgroupBarrier(); // everyone is done with the tiles before C takes the place of A's
{% endif %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
{% set fragment = "acc_" ~ r ~ "_" ~ q %}
{% if fragments.vec4_panels %}
{% set panel = "a_tile[" ~ fragments.own_panel(operands[0]) ~ "]" %}
{{ fragments.store_fragment(fragment, panel, "subgroup_col * (FM * FN / 4u)", "FN / 4u") }}
{%- else %}
{{ fragments.store_fragment(fragment, "c_tile[subgroup]", "0u", "FN") }}
{%- endif %}
    workgroupBarrier(); // the fragments are complete before lanes read them
{% set own = "own, own_lane" if kernel.slices > 1 else "subgroup, subgroup_lane" %}
    store_fragment(c_base, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, {{ own }});
{% if not (r == kernel.sm // kernel.fm - 1 and loop.last) %}
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}
