{#
  The partial result of some elements of a row: a number, or a struct `Part`; four of them, one per component, are a
  vec4 or a `Part4`. Every operation has the same four functions:

      none()          the partial result of no elements
      lift(x)         the partial result of the element x; for positions, lift(x, at) with its index along k
      merge(a, b)     the partial result of the elements of both
      result(part)    the value stored in y

  An operation is a file of its own, shaders/reduce/operations/NAME.wgsl, which defines:

      fields                    the members of Part, "at" among them if it has a position; none if it is a number
      types                     the types of these members, or of the number
      yields                    the type of the result
      functions(four, f, u, i)  none(), lift() and merge() for one element or `four`; f, u and i are the types of the
                                element, its key and its bits
      lift(four, x, place)      the call of lift(), or the element itself
      result(), in_subgroup()   the bodies of result(), and of a function that returns the result of a subgroup
      at_once                   whether its macro take() merges all elements of a step; otherwise merge() does
#}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% import "reduce/operations/" ~ s.operation ~ ".wgsl" as operation with context %}
{% set fields = operation.fields %}
{% set vectors = {"u32": "vec4u", "i32": "vec4i", real: vec4r} %}

{# The types of one element and of four, of their keys and of their bits. #}
{% set widths = [("", elements.number(), "u32", "i32"), ("4", elements.number("4"), "vec4u", "vec4i")] %}

{# The type of a partial result, and of four. #}
{% macro part(four="") -%}
{{ "Part" ~ four if fields else vectors[operation.types[0]] if four else operation.types[0] }}
{%- endmacro %}

{# The functions of partial results; with `vector`, those of four, too. #}
{% macro functions(vector=true) %}
{% if vector %}
{{ elements.declarations() }}
{% endif %}
{% for four, f, u, i in (widths if vector else widths[:1]) %}
{{ operation.functions(four, f, u, i) }}
{% endfor %}
{% if vector %}
fn component(four: {{ part("4") }}, i: u32) -> {{ part() }} {
{% if fields %}
    return Part({% for field in fields %}four.{{ field }}[i]{{ ", " if not loop.last }}{% endfor %});
{% else %}
    return four[i];
{% endif %}
}

{% endif %}
fn result(part: {{ part() }}) -> {{ operation.yields }} {
{{ operation.result() }}
}
{% endmacro %}

{# Between two dispatches: vec4u for doubles and more than two values, vec2 of f64, or vec2u. #}
{% set wide = elements.doubles or fields | length > 2 %}

{% macro pack(part) -%}
{% set words = [] %}
{% for field in fields or [""] %}
{% set value = part ~ ("." ~ field if field else "") %}
{% set as_bits = operation.types[loop.index0] != "u32" and not elements.native %}
{% set _ = words.append("bitcast<u32>(" ~ value ~ ")" if as_bits else value) %}
{% endfor %}
{% for _ in range(words | length, 4 if wide else 2) %}
{% set _ = words.append("0.0" if elements.native else "0u") %}
{% endfor %}
{{ "vec4u" if wide else vec2r if elements.native else "vec2u" }}({{ words | join(", ") }})
{%- endmacro %}

{% macro unpack(pair) -%}
{% set values = [] %}
{% for c in "xyzw"[:fields | length or 1] %}
{% set value = pair ~ "." ~ c %}
{% set as_bits = operation.types[loop.index0] != "u32" and not elements.native %}
{% set type = operation.types[loop.index0] %}
{% set _ = values.append("bitcast<" ~ type ~ ">(" ~ value ~ ")" if as_bits else value) %}
{% endfor %}
{{ "Part(" ~ values | join(", ") ~ ")" if fields else values[0] }}
{%- endmacro %}
