{#
  Reducing the elements of a row that belong to an invocation.

  Sums have levels: after CHAIN additions at a level, the result is added to the next level and the sum restarts, so
  that the rounding error grows with the logarithm of the number of elements, as in a pairwise sum.
#}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "reduce/operations/" ~ s.operation ~ ".wgsl" as operation with context %}

{# The accumulators of an invocation, one per level. #}
{% macro accumulators(four) %}
{% for level in range(s.levels) %}
    var acc{{ level }} = none{{ four }}();
{% endfor %}
{% if s.levels > 1 %}
    var steps = 0u;
{% endif %}
{% endmacro %}

{# After an iteration: add the sums of full levels to the next level. #}
{% macro carry(four) %}
{% if s.levels > 1 %}
        steps++;
{{ carry_level(four, 1) }}
{% endif %}
{% endmacro %}

{% macro carry_level(four, level) %}
{% if level < s.levels %}
        if (steps % {{ kernel.chain ** level }}u == 0u) {
            acc{{ level }} = merge{{ four }}(acc{{ level }}, acc{{ level - 1 }});
            acc{{ level - 1 }} = none{{ four }}();
{{ carry_level(four, level + 1) }}
        }
{% endif %}
{% endmacro %}

{% macro all_levels(four, level=0) -%}
{%- if level + 1 == s.levels -%}
acc{{ level }}
{%- else -%}
merge{{ four }}(acc{{ level }}, {{ all_levels(four, level + 1) }})
{%- endif -%}
{%- endmacro %}

{# Merges four elements at a time with those that follow them. #}
{% set of_floats = not (elements.integers or elements.doubles) %}
{% set in_order = "merge_in_order" if "at" in operation.fields and of_floats else "merge4" %}

{% macro tree(terms) -%}
{%- if terms | length == 1 -%}
{{ terms[0] }}
{%- else -%}
{%- set half = (terms | length) // 2 -%}
{{ in_order }}({{ tree(terms[:half]) }}, {{ tree(terms[half:]) }})
{%- endif -%}
{%- endmacro %}

{# Merge the vec4 x0, x1 … at positions place(u) into acc0. #}
{% macro take(unroll, place) %}
{% if operation.at_once %}
{{ operation.take(unroll) }}
{% else %}
{% set terms = [] %}
{% for u in range(unroll) %}
{% set _ = terms.append(operation.lift("4", "x" ~ u, place(u))) %}
{% endfor %}
        acc0 = {{ in_order }}(acc0, {{ tree(terms) }});
{% endif %}
{% endmacro %}

{#
  Reduce the elements of x[begin..end] of a row that belong to invocation `lane` of `lanes`. `load(u, k, end, inside)`
  is vec4 number `u` of the step that begins at k, and needs no check if all of it is `inside`. With `once`, a row takes
  a single step, and k is declared. `tag` and `acc` are the names under which debug shaders record the elements and
  their partial result.
#}
{% macro walk(lanes, begin="0u", end="params.length", load=loads.element4, once=false, tag="LOADED", acc="ACC") %}
{% macro k(u) %}k{{ " + " ~ (4 * lanes * u) ~ "u" if u }}{% endmacro %}
{{ accumulators("4") }}
{% if once %}
{% for u in range(kernel.unroll) %}
    let x{{ u }} = {{ load(u, k(u), end, loads.inside(u)) }};
{% endfor %}
{% else %}
    for (var k0 = {{ begin }}; k0 < {{ end }}; k0 += {{ 4 * lanes * kernel.unroll }}u) {
        let k = k0{{ " + " ~ loads.first(lanes) if lanes > 1 }};
{% for u in range(kernel.unroll) %}
        var x{{ u }}: {{ elements.number("4") }};
{% endfor %}
{% for whole in ([true, false] if s.edge else [true]) %}
{% if s.edge %}
        {{ "if (k0 + " ~ (4 * lanes * kernel.unroll) ~ "u <= " ~ end ~ ")" if whole else "else" }} {
{% endif %}
{% for u in range(kernel.unroll) %}
            x{{ u }} = {{ load(u, k(u), end, whole) }};
{% endfor %}
{% if s.edge %}
        }
{% endif %}
{% endfor %}
{% endif %}
{% macro place(u) -%}
vec4u(k) + vec4u(0u, 1u, 2u, 3u)
{%- if not s.vec %} * {{ lanes }}u{% endif %}
{%- if u %} + {{ 4 * lanes * u }}u{% endif %}
{%- endmacro %}
{{ take(kernel.unroll, place) }}
{{ carry("4") }}
{% set far = 1 if s.vec else lanes %}
{% for u in range(kernel.unroll) %}
        dbg_far({{ tag }}, row, 0u, k + {{ 4 * lanes * u }}u, {{ far }}u, vec4f(x{{ u }}));
{% endfor %}
        dbg({{ acc }}, row, 0u, k + {{ 4 * lanes * (kernel.unroll - 1) + 3 * far }}u, {{ merged(all_levels("4")) }});
{% if not once %}
    }
{% endif %}
    let four = {{ all_levels("4") }};
    let own = merge(merge(component(four, 0u), component(four, 1u)), merge(component(four, 2u), component(four, 3u)));
{% endmacro %}

{# The result of the four components of an invocation, as a float. #}
{% macro merged(four) -%}
{% set first %}merge(component({{ four }}, 0u), component({{ four }}, 1u)){% endset %}
{% set last %}merge(component({{ four }}, 2u), component({{ four }}, 3u)){% endset %}
{{ real }}(result(merge({{ first }}, {{ last }})))
{%- endmacro %}
