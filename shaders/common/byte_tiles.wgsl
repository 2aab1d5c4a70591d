{#
  Tiles of 8-bit integers in workgroup memory, four neighbours along k to a word. The layout of invocations, fragments
  and tiles is that of register_tiles.wgsl, with words in place of floats: BK counts words, k-major, so that a fragment
  is four words, of four rows of A or four columns of B.

  Where storage runs along k, 16 bytes of one row are four words, which go to four rows of the tile (an array of u32 by
  fours, since lanes that fill components of one vec4 would race). Where it runs across k, four words of four neighbours
  in k are transposed, 4 × 4 bytes in registers, to a vec4 that goes in whole ("across").
#}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/quantized.wgsl" as quantized with context %}

{% set operands = [
  {"x": "a", "axis": "row", "tile": "BM", "size": "m", "edge": s.edge_m, "align": s.align_a,
   "across": s.trans_a, "flip": s.flip_a, "sums": s.zero_b, "loads": kernel.a_loads, "line": "a_row",
   "summed": kernel.a_loads},
  {"x": "b", "axis": "col", "tile": "BN", "size": "n", "edge": s.edge_n, "align": s.align_b,
   "across": not s.trans_b, "flip": s.flip_b, "sums": s.zero_a, "loads": kernel.b_loads, "line": "b_col",
   "summed": kernel.b_loads},
] %}

{% macro declarations() %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

{% for o in operands %}
{% set four = "vec4u" if o.across else "array<u32, 4>" %}
var<workgroup> {{ o.x }}_tile: array<array<{{ four }}, {{ o.tile }} / 4u>, BK>; // [word][{{ o.axis }}/4]
{% endfor %}
{{ loads(operands) }}
{% endmacro %}

{# What fills a tile, and the sums of its rows or columns where zero points need them. #}
{% macro loads(operands) %}
{% for o in operands if o.sums %}
var<workgroup> {{ o.x }}_sums: array<atomic<i32>, {{ o.tile }}>; // of each {{ o.axis }}'s bytes, along all of k
{% endfor %}

{% if s.trans_a or not s.trans_b %}
// 4 × 4 bytes: four rows in, four columns out
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
// Which bytes of a word that starts at k lie before the end
fn within(k: u32) -> u32 {
    let bytes = max(params.k, k) - k;
    return select((1u << (bytes % 4u * 8u)) - 1u, 0xffffffffu, bytes >= 4u);
}

{% endif %}
{% for o in operands %}
{{ load4(o) }}
{% endfor %}
{% endmacro %}

{# Four bytes from byte `i` on. #}
{% macro word(o, i) -%}
{% if o.align == 1 -%}
word_of_{{ o.x }}({{ i }})
{%- else -%}
{{ o.x }}[({{ i }}) / 4u]
{%- endif %}
{%- endmacro %}

{# Four words of storage, from byte i on: 16 bytes of a line along k, or four bytes of each of four lines across. #}
{% macro load4(o) %}
{% set at, k = (o.axis ~ "..+3", "k..+3") if o.across else (o.axis, "k..+15") %}
{% if o.align == 1 and o.across %}
// Four bytes of {{ o.x.upper() }}, from byte i on, wherever that is
fn word_of_{{ o.x }}(i: u32) -> u32 {
    let shift = i % 4u * 8u;
    // Shifted by 32, the second word would come in whole: it is, by 31 and 1, nothing.
    return ({{ o.x }}[i / 4u] >> shift) | (({{ o.x }}[i / 4u + 1u] << (31u - shift)) << 1u);
}

{% endif %}
// {{ "A[" ~ at ~ ", " ~ k ~ "]" if o.x == "a" else "B[" ~ k ~ ", " ~ at ~ "]" }}, from byte i on
fn load_{{ o.x }}4(i: u32) -> vec4u {
{% if o.across %}
    return vec4u(
{% for j in range(4) %}
        {{ word(o, "i + " ~ j ~ "u * params.ld" ~ o.x if j else "i") }},
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
    // Shifted by 32, the next word would come in whole: it is, by 31 and 1, nothing.
    return (words >> vec4u(shift)) | ((vec4u(words.yzw, {{ o.x }}[at + 4u]) << vec4u(31u - shift)) << vec4u(1u));
{% endif %}
{% endif %}
}

{{ ready4(o) }}
{% endmacro %}

{# Whether four words are multiplied otherwise than they are stored. #}
{% macro changed(o) %}{{ "yes" if o.across or o.flip or s.edge_k }}{% endmacro %}

{% macro ready4(o) %}
{% if changed(o) %}
{% set changes = (["moved to i8"] if o.flip else []) + (["zero beyond k"] if s.edge_k else []) %}
{% set changes = changes + (["transposed"] if o.across else []) %}
// Four words of {{ o.x.upper() }}, as they are multiplied: {{ changes | join(", ") }}
fn ready_{{ o.x }}4(stored: vec4u, k: u32) -> vec4u {
    var words = stored{{ " ^ vec4u(0x80808080u)" if o.flip }};
{% if s.edge_k and o.across %}
    words = select(vec4u(), words, vec4u(k, k + 1u, k + 2u, k + 3u) < vec4u(params.k));
{% elif s.edge_k and o.align == 16 %}
    words = select(vec4u(), words, k < params.k);
{% elif s.edge_k %}
    words &= vec4u(within(k), within(k + 4u), within(k + 8u), within(k + 12u));
{% endif %}
    return {{ "transposed(words.x, words.y, words.z, words.w)" if o.across else "words" }};
}

{% endif %}
{% endmacro %}

{# What `words` are multiplied as, of which the first byte is at k. #}
{% macro ready(o, words, k) -%}
{{ "ready_" ~ o.x ~ "4(" ~ words ~ ", " ~ k ~ ")" if changed(o) else words }}
{%- endmacro %}

{#
  Which four words this lane moves: their place in the tile, and where they start in storage. A row or column beyond the
  edge is read from the last one: nothing that comes of it is stored.
#}
{% macro positions() %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set line = o.x ~ "_" ~ o.axis ~ i %}
    let {{ o.x }}_at{{ i }} = lane + {{ i * kernel.invocations }}u;
{% if o.across %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_at{{ i }} / ({{ o.tile }} / 4u);
    let {{ line }} = {{ o.x }}_at{{ i }} % ({{ o.tile }} / 4u) * 4u;
{% else %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_at{{ i }} % (BK / 4u) * 4u;
    let {{ line }} = {{ o.x }}_at{{ i }} / (BK / 4u);
{% endif %}
{% set place = o.axis ~ "0 + " ~ line %}
{% set stored = "min(" ~ place ~ ", params." ~ o.size ~ " - 1u)" if o.edge else "(" ~ place ~ ")" %}
{% set kk, stride = o.x ~ "_kk" ~ i, "params.ld" ~ o.x %}
    let {{ o.x }}_start{{ i }} = params.{{ o.x }}_offset + {{ kk }} * 4u
{%- if o.across %} * {{ stride }} + {{ stored }}{% else %} + {{ stride }} * {{ stored }}{% endif %};
    var {{ o.x }}_next{{ i }}: vec4u;
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro accumulators() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4i();
{% endfor %}
{% endfor %}
{{ no_sums(operands) }}
{% endmacro %}

{# A lane has one sum for each line of which it moves a part, in a vec4 for four of them across. #}
{% macro no_sums(operands) %}
{% for o in operands if o.sums %}
{% for i in range(o.summed) %}
    var {{ o.x }}_sum{{ i }} = {{ "vec4i()" if o.across else "0" }};
{% endfor %}
{% endfor %}
{% for o in operands if o.sums %}
    for (var i = lane; i < {{ o.tile }}; i += {{ kernel.invocations }}u) {
        // WGSL promises zeros, but lavapipe (Mesa 22.3.6) has them for one workgroup only.
        atomicStore(&{{ o.x }}_sums[i], 0);
    }
{% endfor %}
{% endmacro %}

{# storage → registers; k0 counts elements #}
{% macro fetch(k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set next, dbg = o.x ~ "_next" ~ i, "dbg_i8" if s.signed else "dbg_u8" %}
{% set k %}{{ k0 }} + {{ o.x }}_kk{{ i }} * 4u{% endset %}
{% set words %}load_{{ o.x }}4({{ o.x }}_start{{ i }} + {{ k0 }}{{ " * params.ld" ~ o.x if o.across }}){% endset %}
        {{ next }} = {{ ready(o, words, k) }};
{% for j in range(4) %}
{% set line %}{{ o.axis }}0 + {{ o.x }}_{{ o.axis }}{{ i }} + {{ j if o.across else 0 }}u{% endset %}
{% set place = line ~ ", dbg_col(col0, BN)" if o.x == "a" else "dbg_row(row0, BM), " ~ line %}
{% set k_of_word = k ~ " + " ~ (0 if o.across else 4 * j) ~ "u" %}
        {{ dbg }}(LOADED_{{ o.x | upper }}, {{ place }}, {{ k_of_word }}, {{ next }}[{{ j }}]);
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  Registers → workgroup memory. The sums that zero points need are taken on the way, each lane those of what it moves:
  lanes that read whole rows of the tile for them instead took as long as the product (49.9 against 97 TOP/s at 4096³ on
  an H200).
#}
{% macro put() %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set kk, line = o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i %}
{% if o.across %}
        {{ o.x }}_tile[{{ kk }}][{{ line }} / 4u] = {{ o.x }}_next{{ i }};
{% else %}
{% for j in range(4) %}
        {{ o.x }}_tile[{{ kk }} + {{ j }}u][{{ line }} / 4u][{{ line }} % 4u] = {{ o.x }}_next{{ i }}[{{ j }}];
{% endfor %}
{% endif %}
{% if o.sums %}
        {{ o.x }}_sum{{ i }} += {{ sum_of(o, o.x ~ "_next" ~ i) }};
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# k0 is the first element of the tiles along k: debug shaders say where they are. #}
{% macro multiply(k0="k0") %}
{{ tiles.for_each_kk(step, 0, k0) }}
{% endmacro %}

{% macro step(kk, buffer, k0) %}
{% for i in range(kernel.tm // 4) %}
{% set four %}a_tile[{{ kk }}][{{ tiles.four_rows(i) }}]{% endset %}
            let a_reg{{ i }} = {{ tiles.as_vector(four, operands[0].across, "vec4u") }};
{% endfor %}
{% for j in range(kernel.tn // 4) %}
{% set four %}b_tile[{{ kk }}][{{ tiles.four_columns(j) }}]{% endset %}
            let b_reg{{ j }} = {{ tiles.as_vector(four, operands[1].across, "vec4u") }};
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            acc_{{ r }}_{{ j }} += dots(a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }}, b_reg{{ j }});
{% endfor %}
{% endfor %}
{% set bytes, k = "dbg_i8" if s.signed else "dbg_u8", k0 ~ " + (" ~ kk ~ ") * 4u" %}
{% for r in range(kernel.tm) %}
{% set row %}{{ tiles.first_row(r // 4) }} + {{ r % 4 }}u{% endset %}
{% for j in range(kernel.tn // 4) %}
{% set col = tiles.first_column(j) %}
            {{ bytes }}(SHARED_A, {{ row }}, dbg_col({{ col }}, 4u), {{ k }}, a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }});
{% for c in range(4) %}
            {{ bytes }}(SHARED_B, {{ row }}, {{ col }} + {{ c }}u, {{ k }}, b_reg{{ j }}[{{ c }}]);
{% endfor %}
            dbg_n(ACC, {{ row }}, {{ col }}, {{ k }} + 3u, vec4f(acc_{{ r }}_{{ j }}));
{% endfor %}
{% endfor %}
{% endmacro %}

{# What four words add: each its own line across, all to one along k. #}
{% macro sum_of(o, words) -%}
{% if o.across -%}
dots(0x01010101u, {{ words }})
{%- else -%}
dot(dots(0x01010101u, {{ words }}), vec4i(1))
{%- endif %}
{%- endmacro %}

{# The lanes' sums → workgroup memory, where those of all lanes that move a row or column meet. #}
{% macro share_sums(operands) %}
{% if s.zero_a or s.zero_b %}
{% for o in operands if o.sums %}
{% for i in range(o.summed) %}
{% set line = o.line ~ i %}
{% if o.across %}
{% for j in range(4) %}
    atomicAdd(&{{ o.x }}_sums[{{ line }} + {{ j }}u], {{ o.x }}_sum{{ i }}[{{ j }}]);
{% endfor %}
{% else %}
    atomicAdd(&{{ o.x }}_sums[{{ line }}], {{ o.x }}_sum{{ i }});
{% endif %}
{% endfor %}
{% endfor %}
    workgroupBarrier(); // the sums are complete before anyone reads them
{% endif %}
{% endmacro %}

{% macro store() %}
{% for j in range(kernel.tn // 4) %}
    let columns{{ j }} = {{ quantized.columns_of_tile("(" ~ tiles.four_columns(j) ~ ") * 4u") }};
{% for r in range(kernel.tm) %}
    store_tile4(row0, (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u, columns{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}
