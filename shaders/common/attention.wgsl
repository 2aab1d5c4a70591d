{#
  What the attention kernels share: places, loads, the range of keys that a query sees, and scores.

  Scores are multiplied by log2(e), so that weights are powers of 2. A row of scores begins with the maximum FLOOR, and
  a hidden key has the score HIDDEN, so far below FLOOR that its weight is 0: no weight needs a test, and a query that
  sees no key has the sum 0, and zeros as its result.
#}
{% import "common/stored.wgsl" as stored with context %}

{% macro constants() %}
const HIDDEN: f32 = -0x1.fffffep127; // the score of a key that a query does not see
const FLOOR: f32 = -0x1p126; // the maximum of no scores
const LOG2E: f32 = 1.44269504;
{% endmacro %}

{# The head, the entry of the batch and the first row of a tile of `rows` queries; surplus workgroups return. #}
{% macro tile_of(rows, across="") %}
    let tile = workgroup.x + workgroup.y * grid.x;
    let down = (params.queries + {{ rows }} - 1u) / {{ rows }};
{% if across %}
    let count = down * {{ across }};
{% else %}
    let count = down;
{% endif %}
    let pair = tile / count;
    if (pair >= params.entries * params.heads) {
        return;
    }
    let entry = pair / params.heads;
    let head = pair % params.heads;
    let start = tile % down * {{ rows }};
{% endmacro %}

{# The first element of this head of x. #}
{% macro base(x) -%}
{% set number = "head" if x in ("q", "o", "mask") else "head / params.group" -%}
params.{{ x }}_offset + entry * params.{{ x }}_strides.x + {{ number }} * params.{{ x }}_strides.y
{%- endmacro %}

{# load_X4(base, token, column): four columns as vec4f, zeros beyond the last one if `edge`. If `rows`, it is
   load_X4(place, column), of the row that begins at `place`. #}
{% macro load4(x, edge, rows=false) %}
{% set columns = "width" if x in "qk" else "value_width" %}
// Four columns of {{ x }}, from `column` on{{ "; zeros beyond the last one" if edge }}
{% if rows %}
fn load_{{ x }}4(place: u32, column: u32) -> vec4f {
{% else %}
fn load_{{ x }}4(base: u32, token: u32, column: u32) -> vec4f {
    let place = base + token * params.{{ x }}_strides.z;
{% endif %}
{% if s["vec_" ~ x] %}
{% if edge %}
    let at = min(column, params.{{ columns }} - 4u);
    return select({{ stored.load4(s.dtype, x ~ "[(place + at) / 4u]") }}, vec4f(), column >= params.{{ columns }});
{% else %}
    return {{ stored.load4(s.dtype, x ~ "[(place + column) / 4u]") }};
{% endif %}
{% else %}
    let columns = vec4u(column) + vec4u(0u, 1u, 2u, 3u);
{% set within = "min(columns, vec4u(params." ~ columns ~ " - 1u))" if edge else "columns" %}
    let at = vec4u(place) + {{ within }} * params.{{ x }}_strides.w;
    let found = vec4f(
{% for c in "xyzw" %}
        {{ stored.load(s.dtype, x, "at." ~ c) }},
{% endfor %}
    );
    return {{ "select(found, vec4f(), columns >= vec4u(params." ~ columns ~ "))" if edge else "found" }};
{% endif %}
}

{% endmacro %}

{# load_X8(base, token, column): eight columns of two bytes, as they are stored in a vec4<u32>; … #}
{% macro load8(x, edge) %}
{% set columns = "width" if x in "qk" else "value_width" %}
// Eight columns of {{ x }} as they are stored, from `column` on{{ "; zeros beyond the last one" if edge }}
fn load_{{ x }}8(base: u32, token: u32, column: u32) -> vec4u {
    let place = base + token * params.{{ x }}_strides.z;
{% if edge %}
    let at = min(column, params.{{ columns }} - 8u);
    return select({{ x }}[(place + at) / 8u], vec4u(), column >= params.{{ columns }});
{% else %}
    return {{ x }}[(place + column) / 8u];
{% endif %}
}

{% endmacro %}

{# … and four of them, from two of these words, as vec4f. #}
{% macro four(words) -%}
{% if s.dtype.packed -%}
{{ stored.load4(s.dtype, words) }}
{%- else -%}
vec4f(unpack2x16float({{ words }}.x), unpack2x16float({{ words }}.y))
{%- endif %}
{%- endmacro %}

{# store_o4(base, row, column, value): four columns of o; none beyond the last one. #}
{% macro store4() %}
fn store_o4(base: u32, row: u32, column: u32, value: vec4f) {
    let line = base + row * params.o_strides.z;
{% if s.vec_o %}
    if (column < params.value_width) {
        o[(line + column) / 4u] = {{ stored.store4(s.out_dtype, "value") }};
    }
{% else %}
{% for c in "xyzw" %}
    if (column + {{ loop.index0 }}u < params.value_width) {
        let place = line + (column + {{ loop.index0 }}u) * params.o_strides.w;
{% if s.out_dtype.packed %}
        {{ stored.put(s.out_dtype, "o", "value." ~ c, "(" ~ stored.shift(s.out_dtype) ~ ")") }}
{% else %}
        {{ stored.store(s.out_dtype, "o", "place", "value." ~ c) }}
{% endif %}
    }
{% endfor %}
{% endif %}
}

{% endmacro %}

{# keys_of(entry, row): the range of keys that a query sees, apart from a mask. #}
{% macro range() %}
// The keys that a query sees, but for a mask: from x to before y
fn keys_of(entry: u32, row: u32) -> vec2u {
    let keys = i32(params.keys);
{% if s.lengths %}
    let length = lengths[params.lengths_offset + entry] - i32(params.first_key);
    var end = clamp(length, 0, keys);
{% else %}
    var end = keys;
{% endif %}
    var begin = 0;
{% if s.left or s.right %}
    let position = i32(row) + params.shift{{ " + lengths[params.lengths_offset + entry]" if s.from_end }};
{% endif %}
{% if s.right %}
    end = clamp(position + params.right + 1, 0, end);
{% endif %}
{% if s.left %}
    begin = clamp(position - params.left, 0, end);
{% endif %}
    return vec2u(vec2i(begin, end));
}

{% endmacro %}

{# scored(product, base, row, key): the score of a key, from q·k; `base` is the first element of this head's mask. #}
{% macro score() %}
// The score of a key, from q·k
fn scored(product: f32, base: u32, row: u32, key: u32) -> f32 {
    var score = product * params.factor;
{% if s.softcap %}
    let small = exp(-2.0 * abs(score));
    score = params.cap * sign(score) * (1.0 - small) / (1.0 + small);
{% endif %}
{% if s.mask %}
    let place = base + row * params.mask_strides.z + key * params.mask_strides.w;
{% set element = stored.load(s.mask, "mask", "place") %}
{% if s.mask.name == "bool" %}
    score = select(HIDDEN, score, {{ element }});
{% else %}
    score += {{ element }} * LOG2E;
{% endif %}
{% endif %}
    return score;
}

{% endmacro %}

{#
  scored4(product, base, row, key, last): the scores of four keys from `key` on, of which those after `last` repeat its
  mask.
#}
{% macro score4() %}
// The scores of four keys, from q·k; keys after `last` have its mask
fn scored4(product: vec4f, base: u32, row: u32, key: u32, last: u32) -> vec4f {
    var score = product * params.factor;
{% if s.softcap %}
    let small = exp(-2.0 * abs(score));
    score = params.cap * sign(score) * (1.0 - small) / (1.0 + small);
{% endif %}
{% if s.mask %}
    let keys = min(vec4u(key) + vec4u(0u, 1u, 2u, 3u), vec4u(last));
    let places = vec4u(base + row * params.mask_strides.z) + keys * params.mask_strides.w;
    let mask4 = vec4(
{% for c in "xyzw" %}
        {{ stored.load(s.mask, "mask", "places." ~ c) }},
{% endfor %}
    );
{% if s.mask.name == "bool" %}
    score = select(vec4f(HIDDEN), score, mask4);
{% else %}
    score += mask4 * LOG2E;
{% endif %}
{% endif %}
    return score;
}

{% endmacro %}

{# The first element of this head's mask, or 0. #}
{% macro mask_base() -%}
{{ base("mask") if s.mask else "0u" }}
{%- endmacro %}

{# The first elements of this head. #}
{% macro bases() %}
{% for x in "qkvo" %}
    let {{ x }}_base = {{ base(x) }};
{% endfor %}
    let mask_base = {{ mask_base() }};
{% endmacro %}
