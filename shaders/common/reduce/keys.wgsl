{#
  The partial results of maxima, minima and positions: unsigned integers in the order of the elements, with NaN above
  all. Comparing the bits of floats as integers, no driver can lose a NaN (NVIDIA compiles max() and comparisons of
  floats to an instruction that returns the other operand); this is exact for subnormals, too. Doubles are pairs of
  words, so that the device needs no f64: their keys are pairs, too.

  A key increases with x, or decreases if it `falls`, for minima. For `positions`, -0 and 0 have the same. An operation
  sets both before it imports this file.
#}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% set integers, doubles = elements.integers, elements.doubles %}
{% set key = ["high", "low"] if doubles else ["key"] if positions else [] %}
{% set fields = key + (["at"] if positions else []) %}
{% set types = ["u32", "u32", "u32"] %}
{% set yields = "i32" if positions else elements.number() %}
{% set extreme = "smallest" if falls else "largest" %}

{#
  The type of a partial result and its four functions, for one element or `four`. `f`, `u` and `i` are the types of the
  element, its key and its bits.
#}
{% macro functions(four, f, u, i) %}
{% if fields %}
struct Part{{ four }} {
{% if doubles %}
    high: {{ u }}, // the upper half of the {{ extreme }} element's key
    low: {{ u }}, // the lower half
{% else %}
    key: {{ u }}, // the {{ extreme }} element's
{% endif %}
{% if positions %}
    at: {{ u }}, // where it is
{% endif %}
}

fn none{{ four }}() -> Part{{ four }} {
    return Part{{ four }}({{ u }}(){% if doubles %}, {{ u }}(){% endif %}
{%- if positions %}, {{ u }}(0xffffffffu){% endif %});
}

{% else %}
fn none{{ four }}() -> {{ u }} {
    return {{ u }}();
}

{% endif %}
{% if doubles %}
{{ functions_of_doubles(four, f, u) }}
{% else %}
{{ integer_key(four, f, u) if integers else float_key(four, f, u, i) }}
{% if positions %}
fn lift{{ four }}(x: {{ f }}, at: {{ u }}) -> Part{{ four }} {
    return Part{{ four }}(key{{ four }}(x), at);
}

{% if four and not integers %}
// The {{ extreme }} one of a and of b, whose elements are behind those of a
fn merge_in_order(a: Part4, b: Part4) -> Part4 {
    let other = b.key > a.key;
    return Part4(select(a.key, b.key, other), select(a.at, b.at, other));
}

{% endif %}
// The {{ extreme }} one; of equal ones the first
fn merge{{ four }}(a: Part{{ four }}, b: Part{{ four }}) -> Part{{ four }} {
    let other = (b.key > a.key) | ((b.key == a.key) & (b.at < a.at));
    return Part{{ four }}(select(a.key, b.key, other), select(a.at, b.at, other));
}
{% else %}
fn lift{{ four }}(x: {{ f }}) -> {{ u }} {
    return key{{ four }}(x);
}

fn merge{{ four }}(a: {{ u }}, b: {{ u }}) -> {{ u }} {
    return max(a, b);
}
{% endif %}
{% endif %}
{% endmacro %}

{% macro integer_key(four, f, u) %}
fn key{{ four }}(x: {{ f }}) -> {{ u }} {
    return {{ "~" if falls }}(bitcast<{{ u }}>(x) ^ {{ u }}(0x80000000u));
}

{% endmacro %}

{% macro float_key(four, f, u, i) %}
{% if positions %}
{% if not four %}
const NAN_KEY: u32 = 0xff000002u;

{% endif %}
// 1 for {{ "" if falls else "-" }}∞, so that any element is larger than none; NAN_KEY for NaN
fn key{{ four }}(x: {{ f }}) -> {{ u }} {
    let bits = bitcast<{{ i }}>(x);
    let sign = {{ "~" if falls }}(bits >> {{ u }}(31u));
    let magnitude = bits & {{ i }}(0x7fffffff);
    let signed = (magnitude ^ sign) - sign;
    return select(bitcast<{{ u }}>(signed) + {{ u }}(0x7f800001u), {{ u }}(NAN_KEY), magnitude > {{ i }}(0x7f800000));
}

{% else %}
{% if not four %}
const MOST_KEY: u32 = 0xff000001u; // of {{ "-" if falls }}∞; those of NaN are larger

{% endif %}
// 0 for {{ "" if falls else "-" }}∞
fn key{{ four }}(x: {{ f }}) -> {{ u }} {
    let bits = bitcast<{{ i }}>(x);
    let ordered = bits ^ ((bits >> {{ u }}(31u)) & {{ i }}(0x7fffffff));
    return bitcast<{{ u }}>({{ "~" if falls }}ordered) + {{ u }}(0x7f800001u);
}

{% endif %}
{% endmacro %}

{% macro functions_of_doubles(four, f, u) %}
{% if not four %}
const NAN_KEY: u32 = 0xffffffffu; // both words

{% endif %}
fn lift{{ four }}(x: {{ f }}{% if positions %}, at: {{ u }}{% endif %}) -> Part{{ four }} {
    let upper = {{ "x.high" if four else "x.y" }};
    let lower = {{ "x.low" if four else "x.x" }};
    let magnitude = upper & {{ u }}(0x7fffffffu);
    let is_nan = magnitude + select({{ u }}(1u), {{ u }}(), lower == {{ u }}()) > {{ u }}(0x7ff00000u);
{% set nonzero %} & ((magnitude | lower) != {{ u }}()){% endset %}
    let negative = (upper != magnitude){{ nonzero if positions }};
    let high = {{ "~" if falls }}select(magnitude | {{ u }}(0x80000000u), ~upper, negative);
    let low = {{ "~" if falls }}select(lower, ~lower, negative);
    return Part{{ four }}(
        select(high, {{ u }}(NAN_KEY), is_nan),
        select(low, {{ u }}(NAN_KEY), is_nan),
{% if positions %}
        at,
{% endif %}
    );
}

// The {{ extreme }} one{{ "; of equal ones the first" if positions }}
fn merge{{ four }}(a: Part{{ four }}, b: Part{{ four }}) -> Part{{ four }} {
{% set first %} | ((b.low == a.low) & (b.at < a.at)){% endset %}
    let lower = (b.low > a.low){{ first if positions }};
    let other = (b.high > a.high) | ((b.high == a.high) & lower);
    return Part{{ four }}(
{% for field in fields %}
        select(a.{{ field }}, b.{{ field }}, other),
{% endfor %}
    );
}

{% endmacro %}

{% macro lift(four, x, place) -%}
lift{{ four }}({{ x }}{% if positions %}, {{ place }}{% endif %})
{%- endmacro %}

{# The element whose key is in `part`, or its position. #}
{% macro result() %}
{% if positions %}
    return i32(part.at);
{% elif doubles %}
    let high = {{ "~" if falls }}part.high;
    let low = {{ "~" if falls }}part.low;
    let value = select(~vec2u(low, high), vec2u(low, high & 0x7fffffffu), high >= 0x80000000u);
    return select(value, vec2u(0u, 0x7ff80000u), min(part.high, part.low) == NAN_KEY);
{% elif integers %}
    return bitcast<i32>({{ "~part" if falls else "part" }} ^ 0x80000000u);
{% else %}
    let ordered = {{ "~" if falls }}bitcast<i32>(part - 0x7f800001u);
    let value = ordered ^ ((ordered >> 31u) & 0x7fffffff);
    return bitcast<{{ real }}>(select(value, 0x7fc00000, part > MOST_KEY));
{% endif %}
{% endmacro %}

{# The part of a subgroup, from those of its lanes. #}
{% macro in_subgroup() %}
{% if doubles %}
    let high = subgroupMax(own.high);
    let low = subgroupMax(select(0u, own.low, own.high == high));
{% if positions %}
    let at = subgroupMin(select(0xffffffffu, own.at, (own.high == high) & (own.low == low)));
{% endif %}
    return Part({{ fields | join(", ") }});
{% elif positions %}
    let key = subgroupMax(own.key);
    return Part(key, subgroupMin(select(0xffffffffu, own.at, own.key == key)));
{% else %}
    return subgroupMax(own);
{% endif %}
{% endmacro %}
