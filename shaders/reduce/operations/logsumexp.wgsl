{# log Σ exp(x), also for softmax. A partial result is relative to the largest element, so that nothing overflows. #}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% set fields, types, at_once = ["top", "sum"], [elements.number(), elements.number()], true %}
{% set yields = elements.number() %}
{% set native = elements.native %}

{% macro constants() %}
{% if native %}
{% import "common/double_activations.wgsl" as native_doubles with context %}
{% set why = "with a finite maximum, infinities are not subtracted" %}
const MOST: {{ real }} = 1.7976931348623157e308; // the largest double: {{ why }}

{{ native_doubles.exponentials() }}
{{ native_doubles.logarithm() }}
{% else %}
const MOST: {{ real }} = 0x1.fffffep+127f; // the largest float: with a finite maximum, infinities are not subtracted

{% endif %}
{% endmacro %}

{% macro functions(four, f, u, i) %}
{{ constants() if not four }}
struct Part{{ four }} {
    top: {{ f }}, // the largest element
    sum: {{ f }}, // Σ exp(x - top)
}

fn none{{ four }}() -> Part{{ four }} {
    return Part{{ four }}({{ f }}(-MOST), {{ f }}());
}

{% if native %}
fn power{{ four }}(x: {{ f }}) -> {{ f }} {
    return {{ "exponential(x)" if four else "exponential(" ~ vec4r ~ "(x)).x" }};
}
{% else %}
fn is_nan{{ four }}(x: {{ f }}) -> {{ "vec4<bool>" if four else "bool" }} {
    return (bitcast<{{ u }}>(x) & {{ u }}(0x7fffffffu)) > {{ u }}(0x7f800000u);
}

// exp(x); some drivers return a number for NaN
fn power{{ four }}(x: {{ f }}) -> {{ f }} {
    return select(exp(x), x, is_nan{{ four }}(x));
}
{% endif %}

fn lift{{ four }}(x: {{ f }}) -> Part{{ four }} {
    let top = clamp(x, {{ f }}(-MOST), {{ f }}(MOST));
    return Part{{ four }}(top, power{{ four }}(x - top));
}

fn merge{{ four }}(a: Part{{ four }}, b: Part{{ four }}) -> Part{{ four }} {
    let top = max(a.top, b.top);
    return Part{{ four }}(top, a.sum * power{{ four }}(a.top - top) + b.sum * power{{ four }}(b.top - top));
}

{% endmacro %}

{% macro lift(four, x, place) -%}
lift{{ four }}({{ x }})
{%- endmacro %}

{% macro result() %}
{% if native %}
    if (part.sum > MOST) {
        return part.sum; // infinity
    }
    return select(part.top + logarithm(part.sum), params.outside, part.sum == 0.0); // -∞ if there are only -∞
{% else %}
    let value = select(part.top + log(part.sum), params.outside, part.sum == 0.0); // -∞ if there are only -∞
    return select(value, part.sum, is_nan(part.sum));
{% endif %}
{% endmacro %}

{% macro in_subgroup() %}
    let top = subgroupMax(own.top);
    return Part(top, subgroupAdd(own.sum * power(own.top - top)));
{% endmacro %}

{# Merge the vec4 x0, x1 … into acc0, with a single exponential for each element, powers0, powers1 …. #}
{% macro take(unroll) %}
{% set tops = ["acc0.top"] %}
{% for u in range(unroll) %}
{% set _ = tops.append("x" ~ u) %}
{% endfor %}
        let top = {{ top(tops) }};
{% for u in range(unroll) %}
        let powers{{ u }} = power4(x{{ u }} - top);
{% endfor %}
        acc0 = Part4(top, acc0.sum * power4(acc0.top - top) + {{ added("powers", unroll) }});
{% endmacro %}

{# The maximum of some vec4 by component, clamped as in a Part. #}
{% macro top(terms) -%}
clamp({{ maximum(terms) }}, {{ vec4r }}(-MOST), {{ vec4r }}(MOST))
{%- endmacro %}

{% macro maximum(terms) -%}
{{ terms[0] if terms | length == 1 else "max(" ~ terms[0] ~ ", " ~ maximum(terms[1:]) ~ ")" }}
{%- endmacro %}

{# The sum of `count` numbered terms, by halves. #}
{% macro added(term, count, first=0) -%}
{%- if count == 1 -%}
{{ term ~ first }}
{%- else -%}
({{ added(term, count // 2, first) }} + {{ added(term, count - count // 2, first + count // 2) }})
{%- endif -%}
{%- endmacro %}
