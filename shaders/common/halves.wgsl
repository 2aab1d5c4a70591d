{#
  For stages that multiply floats on matrix units, in addition to fragments.wgsl: loads of chunks, and stores of
  fragments to C. A shader cannot access the elements of a fragment, but the epilogue, the edges and the
  conversion of C need single elements, so each fragment of C is written to workgroup memory, from which invocations
  read it.
#}
{% import "common/fragments.wgsl" as fragments with context %}

{#
  A chunk in the type of fragments. One of float16 starts in the middle of a word if rows are not a multiple of its
  elements: it then spans one word more.
#}
{% macro load_function(o) %}
{% set x, chunk = o.x, kernel.chunk %}
{% set along = "..+" ~ (chunk - 1) %}
{% set place, k = (o.axis, "k" ~ along) if o.along_k else (o.axis ~ along, "k") %}
{% set words = chunk * s.dtype.itemsize // 4 %}
{% set vector = "vec" ~ words ~ "<u32>" %}
{% set at = [place, k] if x == "a" else [k, place] %}
// {{ {4: "Four", 8: "Eight"}[chunk] }} elements of storage: {{ x | upper }}[{{ at | join(", ") }}]
{%- if s.dtype.wgsl != fragments.shape.operands %}, as {{ fragments.shape.operands }}{% endif %}

fn load_{{ x }}{{ chunk }}(index: u32) -> vec4<u32> {
{% if o.vec %}
    return {{ in_fragments(x ~ "[index]") }};
{% elif s.dtype.itemsize == 4 %}
    return {{ words_from(x, "index", words) }};
{% else %}
    let at = index / 2u;
    let words = {{ words_from(x, "at", words) }};
{% set rest = "words.yzw" if words == 4 else "words.y" %}
    let later = {{ vector }}({{ rest }}, {{ x }}[at + {{ words }}u]);
    let odd = (words >> {{ vector }}(16u)) | (later << {{ vector }}(16u));
    return {{ in_fragments("select(words, odd, index % 2u == 1u)") }};
{% endif %}
}
{% endmacro %}
{% macro words_from(x, at, words) -%}
vec{{ words }}<u32>(
{%- for i in range(words) %}{{ x }}[{{ at }}{% if i %} + {{ i }}u{% endif %}]{{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{# The words of a chunk, as elements of the type of fragments #}
{% macro in_fragments(words) -%}
{{ "widened(" ~ words ~ ")" if s.dtype.wgsl != fragments.shape.operands else words }}
{%- endmacro %}
{% macro widened_function() %}
{% if s.dtype.wgsl != fragments.shape.operands %}
// Four float16, as float32
fn widened(words: vec2<u32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(vec4f(unpack2x16float(words.x), unpack2x16float(words.y)));
}

{% endif %}
{% endmacro %}
{% macro before_end_function() %}
// {{ {4: "Four", 8: "Eight"}[kernel.chunk] }} elements from k on, zero beyond the end of k
fn before_end(elements: vec4<u32>, k: u32) -> vec4<u32> {
{% if kernel.chunk == 4 %}
    return select(vec4<u32>(), elements, vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.k));
{% else %}
    let left = i32(min(max(params.k, k) - k, 8u));
    let bits = vec4<u32>(clamp(vec4<i32>(16 * left) - vec4<i32>(0, 32, 64, 96), vec4<i32>(), vec4<i32>(32)));
    return vec4<u32>(
{% for c in "xyzw" %}
        extractBits(elements.{{ c }}, 0u, bits.{{ c }}),
{% endfor %}
    );
{% endif %}
}

{% endmacro %}

{# Zero the elements beyond the end of k, in the chunks in registers; k0 is the first inner element of their tiles. #}
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

{#
  The fragments of C that a subgroup stores to workgroup memory at once: in A's panels, several side by side, in lines
  of kernel.c_line vec4; otherwise one, in c_tile. For 64 products of 466×466×128, whose rows of C are stored by single
  elements, an H200 takes 56 µs with two, and 95 with one, unpadded, and vec4 of which each invocation picks an element.
#}
{% set at_once = kernel.at_once if fragments.vec4_panels else 1 %}
{% set width = kernel.fn * at_once %}
{% set line = kernel.c_line if fragments.vec4_panels else kernel.fn // 4 %}

{# Vec4 `at` of these fragments, of one subgroup of a slice; or its element `e`. #}
{% macro read_sums(slice, e="") -%}
{% if fragments.vec4_panels -%}
{% set panel %}{% if slice %}{{ slice * kernel.bm // kernel.sm }}u + {% endif %}member / (BN / SN){% endset %}
{% set four %}a_tile[{{ panel }}][member % (BN / SN) * {{ kernel.fm * line }}u + at]{% endset %}
{{ "bitcast<f32>(" ~ four ~ "[" ~ e ~ "])" if e else "bitcast<vec4f>(" ~ four ~ ")" }}
{%- else -%}
{% set fragment %}c_tile[{% if slice %}{{ slice * fragments.slice_subgroups }}u + {% endif %}member]{% endset %}
{% if e -%}
{{ fragment }}[4u * at + {{ e }}]
{%- else -%}
vec4f({% for e in range(4) %}{{ fragment }}[4u * at{% if e %} + {{ e }}u{% endif %}]{{ ", " if e < 3 }}{% endfor %})
{%- endif %}
{%- endif %}
{%- endmacro %}

{# The function that stores these fragments to `to`, by calls of `finish` for a vec4, or an element if not `by_vec4`. #}
{% macro store_function(finish="store_c4" if s.vec_c else "store_c", by_vec4=s.vec_c, to="C") %}
{% set what = at_once ~ " adjacent fragments" if at_once > 1 else "A fragment" %}
// {{ what }} in workgroup memory → {{ to }}, from (row, col) on
{%- if kernel.slices > 1 %}, added to those of the other slices{% endif %}
{%- if not by_vec4 %}.
// Neighbouring invocations store single elements.{% endif %}

{% set count, sharers = kernel.fm * width // (4 if by_vec4 else 1), kernel.slices * kernel.lanes %}
fn store_fragments(base: u32, row: u32, col: u32, member: u32, sharer: u32) {
    for (var turn = 0u; turn < {{ (count + sharers - 1) // sharers }}u; turn++) {
        let i = turn * {{ sharers }}u + sharer;
{% if count % sharers %}
        if (i >= {{ count }}u) {
            return;
        }
{% endif %}
{% if by_vec4 %}
        let at = i / {{ width // 4 }}u * {{ line }}u + i % {{ width // 4 }}u;
{% set e, place = "", "row + i / " ~ width // 4 ~ "u, col + 4u * (i % " ~ width // 4 ~ "u)" %}
{% else %}
        let at = i / {{ width }}u * {{ line }}u + i % {{ width }}u / 4u;
{% set e, place = "i % 4u", "row + i / " ~ width ~ "u, col + i % " ~ width ~ "u" %}
{% endif %}
        {{ "var" if kernel.slices > 1 else "let" }} value = {{ read_sums(0, e) }};
{% for slice in range(1, kernel.slices) %}
        value += {{ read_sums(slice, e) }};
{% endfor %}
        {{ finish }}(base, {{ place }}, value);
    }
}
{% endmacro %}

{# All fragments of this subgroup → C. #}
{% macro store_fragments(operands) %}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if kernel.slices > 1 %}
    let member = subgroup % {{ fragments.slice_subgroups }}u; // this subgroup within its slice
    let sharer = slice * LANES + subgroup_lane;
{% endif %}
{% if fragments.vec4_panels %}
    workgroupBarrier(); // everyone is done with the tiles before C overwrites A's
{% endif %}
{% set rows, columns = kernel.sm // kernel.fm, kernel.sn // kernel.fn %}
{% for r in range(rows) %}
{% for q in range(0, columns, at_once) %}
{% for j in range(at_once) %}
{% set fragment = "acc_" ~ r ~ "_" ~ (q + j) %}
{% if fragments.vec4_panels %}
{% set panel = "a_tile[" ~ fragments.subgroup_panel(operands[0]) ~ "]" %}
{% set place %}subgroup_col * {{ kernel.fm * line }}u{% if j %} + {{ j * kernel.fn // 4 }}u{% endif %}{% endset %}
{{ fragments.store_fragment(fragment, panel, place, line ~ "u") }}
{%- else %}
{{ fragments.store_fragment(fragment, "c_tile[subgroup]", "0u", "FN") }}
{%- endif %}
{% endfor %}
    workgroupBarrier(); // the fragments are complete before invocations read them
{% set sharer = "member, sharer" if kernel.slices > 1 else "subgroup, subgroup_lane" %}
    store_fragments(c_base, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, {{ sharer }});
{% if not (r == rows - 1 and loop.last) %}
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}
