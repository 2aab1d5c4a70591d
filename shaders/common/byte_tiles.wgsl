{#
  Tiles of 8-bit integers in workgroup memory, four consecutive elements along k per word. Invocations, fragments and
  tiles are laid out as in register_tiles/layout.wgsl, with words in place of floats: BK counts words, tiles are
  k-major, and a load reads the words of four rows of A or of four columns of B.

  If storage is contiguous along k, 16 bytes of a row are four words, which are written to four rows of the tile; such a
  tile is an array of array<u32, 4>, since invocations that write components of one vec4 would race. If storage is
  contiguous across k, an invocation loads 4 bytes at each of four k and transposes these 4 × 4 bytes in registers to a
  vec4, which it writes at once.
#}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/line_sums.wgsl" as lines with context %}
{% import "common/quantized.wgsl" as quantized with context %}

{% set operands = [
  {"x": "a", "axis": "row", "tile": "BM", "size": "m", "edge": s.edge_m, "align": s.align_a,
   "across_k": s.trans_a, "flip": s.flip_a, "sums": s.zero_b, "loads": kernel.a_loads, "line": "a_row",
   "summed": kernel.a_loads},
  {"x": "b", "axis": "col", "tile": "BN", "size": "n", "edge": s.edge_n, "align": s.align_b,
   "across_k": not s.trans_b, "flip": s.flip_b, "sums": s.zero_a, "loads": kernel.b_loads, "line": "b_col",
   "summed": kernel.b_loads},
] %}

{% macro declarations() %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

{% for o in operands %}
{% set four = "vec4u" if o.across_k else "array<u32, 4>" %}
var<workgroup> {{ o.x }}_tile: array<array<{{ four }}, {{ o.tile }} / 4u>, BK>; // [word][{{ o.axis }}/4]
{% endfor %}
{{ load_functions(operands) }}
{% endmacro %}

{# The functions that load from storage; sums of the tile's rows or columns, if zero points need them. #}
{% macro load_functions(operands) %}
{% for o in operands if o.sums %}
var<workgroup> {{ o.x }}_sums: array<atomic<i32>, {{ o.tile }}>; // of each {{ o.axis }}'s bytes, over all of k
{% endfor %}

{% if s.trans_a or not s.trans_b %}
// The transpose of 4 × 4 bytes: four rows in, four columns out
fn transposed(row0: u32, row1: u32, row2: u32, row3: u32) -> vec4u {
    let even01 = (row0 & 0x00ff00ffu) | ((row1 & 0x00ff00ffu) << 8u);
    let even23 = (row2 & 0x00ff00ffu) | ((row3 & 0x00ff00ffu) << 8u);
    let odd01 = ((row0 >> 8u) & 0x00ff00ffu) | (row1 & 0xff00ff00u);
    let odd23 = ((row2 >> 8u) & 0x00ff00ffu) | (row3 & 0xff00ff00u);
    return vec4u(
        (even01 & 0xffffu) | (even23 << 16u),
        (odd01 & 0xffffu) | (odd23 << 16u),
        (even01 >> 16u) | (even23 & 0xffff0000u),
        (odd01 >> 16u) | (odd23 & 0xffff0000u)
    );
}

{% endif %}
{% if s.edge_k %}
// A mask of the bytes before the end of k, for a word that starts at k
fn bytes_before_end(k: u32) -> u32 {
    let bytes = max(params.k, k) - k;
    return select((1u << (bytes % 4u * 8u)) - 1u, 0xffffffffu, bytes >= 4u);
}

{% endif %}
{% for o in operands %}
{{ load_function(o) }}
{% endfor %}
{% endmacro %}

{# The word of four bytes from byte `i` on. #}
{% macro word_at(o, i) -%}
{% if o.align == 1 -%}
word_of_{{ o.x }}({{ i }})
{%- else -%}
{{ o.x }}[({{ i }}) / 4u]
{%- endif %}
{%- endmacro %}

{# The function that loads four words: 16 bytes along k, or four bytes across k at each of four k. #}
{% macro load_function(o) %}
{% set at, k = (o.axis ~ "..+3", "k..+3") if o.across_k else (o.axis, "k..+15") %}
{% if o.align == 1 and o.across_k %}
// Four bytes of {{ o.x.upper() }} from byte i on, which may not be aligned
fn word_of_{{ o.x }}(i: u32) -> u32 {
    let shift = i % 4u * 8u;
    // Two shifts, by up to 31 and by 1: a single shift by 32 would be a shift by 0.
    return ({{ o.x }}[i / 4u] >> shift) | (({{ o.x }}[i / 4u + 1u] << (31u - shift)) << 1u);
}

{% endif %}
// {{ "A[" ~ at ~ ", " ~ k ~ "]" if o.x == "a" else "B[" ~ k ~ ", " ~ at ~ "]" }}, from byte i on
fn load_{{ o.x }}4(i: u32) -> vec4u {
{% if o.across_k %}
    return vec4u(
{% for j in range(4) %}
        {{ word_at(o, "i + " ~ j ~ "u * params.ld" ~ o.x if j else "i") }},
{% endfor %}
    );
{% elif o.align == 16 %}
    return {{ o.x }}[i / 16u];
{% else %}
    let at = i / 4u;
    let words = vec4u({{ o.x }}[at], {{ o.x }}[at + 1u], {{ o.x }}[at + 2u], {{ o.x }}[at + 3u]);
{% if o.align == 4 %}
    return words;
{% else %}
    let shift = i % 4u * 8u;
    // Two shifts, by up to 31 and by 1: a single shift by 32 would be a shift by 0.
    return (words >> vec4u(shift)) | ((vec4u(words.yzw, {{ o.x }}[at + 4u]) << vec4u(31u - shift)) << vec4u(1u));
{% endif %}
{% endif %}
}

{{ convert_function(o) }}
{% endmacro %}

{# Whether words are converted between storage and the tile. #}
{% macro converted(o) %}{{ "yes" if o.across_k or o.flip or s.edge_k }}{% endmacro %}

{# The function that converts four words. #}
{% macro convert_function(o) %}
{% if converted(o) %}
{% set changes = (["u8 to i8"] if o.flip else []) + (["zero beyond k"] if s.edge_k else []) %}
{% set changes = changes + (["transposed"] if o.across_k else []) %}
// Four words of {{ o.x.upper() }}, converted for the tile: {{ changes | join(", ") }}
fn convert_{{ o.x }}4(stored: vec4u, k: u32) -> vec4u {
    var words = stored{{ " ^ vec4u(0x80808080u)" if o.flip }};
{% if s.edge_k and o.across_k %}
    words = select(vec4u(), words, vec4u(k, k + 1u, k + 2u, k + 3u) < vec4u(params.k));
{% elif s.edge_k and o.align == 16 %}
    words = select(vec4u(), words, k < params.k);
{% elif s.edge_k %}
    words &= vec4u(
        bytes_before_end(k), bytes_before_end(k + 4u), bytes_before_end(k + 8u), bytes_before_end(k + 12u)
    );
{% endif %}
    return {{ "transposed(words.x, words.y, words.z, words.w)" if o.across_k else "words" }};
}

{% endif %}
{% endmacro %}

{# `words`, whose first byte is at k, converted for the tile. #}
{% macro convert(o, words, k) -%}
{{ "convert_" ~ o.x ~ "4(" ~ words ~ ", " ~ k ~ ")" if converted(o) else words }}
{%- endmacro %}

{#
  The words that this invocation loads, in fours: their position in the tile, and their index in storage in the first
  step (start). Rows or columns beyond the edge are loads of the last one; their sums are not stored.
#}
{% macro plan_loads() %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set line = o.x ~ "_" ~ o.axis ~ i %}
    let {{ o.x }}_index{{ i }} = local_index + {{ i * kernel.invocations }}u;
{% if o.across_k %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_index{{ i }} / ({{ o.tile }} / 4u);
    let {{ line }} = {{ o.x }}_index{{ i }} % ({{ o.tile }} / 4u) * 4u;
{% else %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_index{{ i }} % (BK / 4u) * 4u;
    let {{ line }} = {{ o.x }}_index{{ i }} / (BK / 4u);
{% endif %}
{% set place = o.axis ~ "0 + " ~ line %}
{% set stored = "min(" ~ place ~ ", params." ~ o.size ~ " - 1u)" if o.edge else "(" ~ place ~ ")" %}
{% set kk, stride = o.x ~ "_kk" ~ i, "params.ld" ~ o.x %}
    let {{ o.x }}_start{{ i }} = params.{{ o.x }}_offset + {{ kk }} * 4u
{%- if o.across_k %} * {{ stride }} + {{ stored }}{% else %} + {{ stride }} * {{ stored }}{% endif %};
    var {{ o.x }}_next{{ i }}: vec4u;
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro declare_sums() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4i();
{% endfor %}
{% endfor %}
{{ lines.declare_line_sums(operands) }}
{% endmacro %}

{# storage → registers: the tiles whose first inner element is k0 #}
{% macro load_next(k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set next, dbg = o.x ~ "_next" ~ i, "dbg_i8" if s.signed else "dbg_u8" %}
{% set k %}{{ k0 }} + {{ o.x }}_kk{{ i }} * 4u{% endset %}
{% set words %}load_{{ o.x }}4({{ o.x }}_start{{ i }} + {{ k0 }}{{ " * params.ld" ~ o.x if o.across_k }}){% endset %}
        {{ next }} = {{ convert(o, words, k) }};
{% for j in range(4) %}
{% set line %}{{ o.axis }}0 + {{ o.x }}_{{ o.axis }}{{ i }} + {{ j if o.across_k else 0 }}u{% endset %}
{% set place = line ~ ", dbg_col(col0, BN)" if o.x == "a" else "dbg_row(row0, BM), " ~ line %}
{% set k_of_word = k ~ " + " ~ (0 if o.across_k else 4 * j) ~ "u" %}
        {{ dbg }}(LOADED_{{ o.x | upper }}, {{ place }}, {{ k_of_word }}, {{ next }}[{{ j }}]);
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  registers → workgroup memory. Each invocation also adds the words that it writes to the sums that zero points need.
  Summing whole rows of the tile instead took as long as the product (49.9 against 97 TOP/s at 4096³ on an H200).
#}
{% macro write_tiles() %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set kk, line = o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i %}
{% if o.across_k %}
        {{ o.x }}_tile[{{ kk }}][{{ line }} / 4u] = {{ o.x }}_next{{ i }};
{% else %}
{% for j in range(4) %}
        {{ o.x }}_tile[{{ kk }} + {{ j }}u][{{ line }} / 4u][{{ line }} % 4u] = {{ o.x }}_next{{ i }}[{{ j }}];
{% endfor %}
{% endif %}
{% if o.sums %}
        {{ o.x }}_sum{{ i }} += {{ lines.sum_of_bytes(o, o.x ~ "_next" ~ i) }};
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# sums += tile of A · tile of B; k0 is their first inner element, for debug shaders. #}
{% macro multiply_tiles(k0="k0") %}
{{ layout.for_each_kk(multiply_step, 0, k0) }}
{% endmacro %}

{# One kk: the outer product of TM words of A and TN words of B, four products per pair of words. #}
{% macro multiply_step(kk, buffer, k0) %}
{% for i in range(kernel.tm // 4) %}
{% set four %}a_tile[{{ kk }}][{{ layout.row_vec4(i) }}]{% endset %}
            let a_reg{{ i }} = {{ layout.as_vector(four, operands[0].across_k, "vec4u") }};
{% endfor %}
{% for j in range(kernel.tn // 4) %}
{% set four %}b_tile[{{ kk }}][{{ layout.col_vec4(j) }}]{% endset %}
            let b_reg{{ j }} = {{ layout.as_vector(four, operands[1].across_k, "vec4u") }};
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            acc_{{ r }}_{{ j }} += dots(a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }}, b_reg{{ j }});
{% endfor %}
{% endfor %}
{% set bytes, k = "dbg_i8" if s.signed else "dbg_u8", k0 ~ " + (" ~ kk ~ ") * 4u" %}
{% for r in range(kernel.tm) %}
{% set row %}{{ layout.first_row(r // 4) }} + {{ r % 4 }}u{% endset %}
{% for j in range(kernel.tn // 4) %}
{% set col = layout.first_column(j) %}
            {{ bytes }}(SHARED_A, {{ row }}, dbg_col({{ col }}, 4u), {{ k }}, a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }});
{% for c in range(4) %}
            {{ bytes }}(SHARED_B, {{ row }}, {{ col }} + {{ c }}u, {{ k }}, b_reg{{ j }}[{{ c }}]);
{% endfor %}
            dbg_n(ACC, {{ row }}, {{ col }}, {{ k }} + 3u, vec4f(acc_{{ r }}_{{ j }}));
{% endfor %}
{% endfor %}
{% endmacro %}

{# The sums → C, or with `part`, the first argument of store_tile4(), to the partial sums of that part of k. #}
{% macro store_sums(part="") %}
{% for j in range(kernel.tn // 4) %}
    let columns{{ j }} = {{ quantized.columns_of_tile("(" ~ layout.col_vec4(j) ~ ") * 4u") }};
{% for r in range(kernel.tm) %}
    store_tile4({{ part }}row0, (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u, columns{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}
