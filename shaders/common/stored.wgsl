{#
  From what is stored to f32, and back, for each element type: as WGSL has it, or packed in words, whose functions are
  those of a file of the type's name, NAME.wgsl beside this one:

      NAME_at(word, index)    element `index` of its buffer, out of the word that holds it
      NAME_vec4(words)        four neighbours
      NAME_bits(value)        the lowest bits of a word that stand for `value`
      NAME_words(values)      four neighbours
#}

{# x[index] as f32. #}
{% macro load(type, x, index) -%}
{% if type.packed -%}
{{ type.wgsl }}_at({{ x }}[({{ index }}) / {{ type.per_word }}u], {{ index }})
{%- else -%}
{% set element %}{{ x }}[{{ index }}]{% endset %}
{{ "f32(" ~ element ~ ")" if type.converted else element }}
{%- endif %}
{%- endmacro %}

{# The same where other invocations write to the word. #}
{% macro load_shared(type, x, index) -%}
{% if type.packed -%}
{{ type.wgsl }}_at(atomicLoad(&{{ x }}[({{ index }}) / {{ type.per_word }}u]), {{ index }})
{%- else -%}
f32({{ x }}[{{ index }}])
{%- endif %}
{%- endmacro %}

{# Four neighbours, as they are bound where that is by fours, as vec4f. #}
{% macro load4(type, element) -%}
{% if type.packed -%}
{{ type.wgsl }}_vec4({{ element }})
{%- else -%}
{{ "vec4f(" ~ element ~ ")" if type.converted else element }}
{%- endif %}
{%- endmacro %}

{# What becomes of a vec4f where it is bound by fours. #}
{% macro store4(type, value) -%}
{% if type.packed -%}
{{ type.wgsl }}_words({{ value }})
{%- else -%}
{{ "vec4<" ~ type.wgsl ~ ">(" ~ value ~ ")" if type.converted else value }}
{%- endif %}
{%- endmacro %}

{# x[place] ← an f32, or an i32 where that is x's type; of what is not packed. #}
{% macro store(type, x, place, value) -%}
{{ x }}[{{ place }}] = {{ type.wgsl ~ "(" ~ value ~ ")" if type.converted else value }};
{%- endmacro %}

{# Of what is packed: where in its word element `place` begins, … #}
{% macro shift(type) -%}
place % {{ type.per_word }}u * {{ 8 * type.itemsize }}u
{%- endmacro %}

{# … and x[place] ← an f32, atomically, as its neighbours in the word may be written by others. #}
{% macro put(type, x, value, shift) -%}
{% set word %}&{{ x }}[place / {{ type.per_word }}u]{% endset %}
atomicAnd({{ word }}, {{ "0xffff0000u >> " ~ shift if type.itemsize == 2 else "~(0xffu << " ~ shift ~ ")" }});
atomicOr({{ word }}, {{ type.wgsl }}_bits({{ value }}) << {{ shift }});
{%- endmacro %}
