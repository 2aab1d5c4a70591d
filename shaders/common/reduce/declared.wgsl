{#
  An operation from a declaration (webmm/wgsl/reductions.py), whose expressions are in `state`, as WGSL:

      names, fields, types, identity    of the values of a partial result
      map, combine                      for each of them, of x, y and i, and of a_NAME and b_NAME
      finish, yields, count             of v_NAME and, if `count`, of n; its type
      functions                         the files of elementwise/ whose functions they call

  y is the element of a second array, which lift() loads itself: in the stages that have one, `other_base` is the index
  of its first element along k; for four, it may be a vec4u.

  Expressions are of single elements, so that four of them are computed one by one, as GPUs do anyway.
#}
{% import "common/stored.wgsl" as stored with context %}
{% set fields, types, at_once, yields = state.fields, state.types, false, state.yields %}

{% macro functions(four, f, u, i) %}
{% if four %}
{{ of_four(f) }}
{% else %}
{{ of_one(f) }}
{% endif %}
{% endmacro %}

{% macro of_one(f) %}
{% for file in state.functions %}
{% include "elementwise/" ~ file ~ ".wgsl" %}

{% endfor %}
struct Part {
{% for field in fields %}
    {{ field }}: {{ types[loop.index0] }},
{% endfor %}
}

fn none() -> Part {
    return Part({{ state.identity | join(", ") }});
}

{% if kernel.reads == "x" %}
// The partial result of element x at position `at`{% if s.edge %}; of none beyond the end{% endif %}

fn lift(x: {{ f }}, at: u32{{ ", base: u32" if s.other }}) -> Part {
    let i = i32(at);
{% if s.edge %}
    if (at >= params.length) {
        return none();
    }
{% endif %}
{% if s.other %}
    let y = {{ stored.load(s.other, "other", "base + at * params.other_stride") }};
{% endif %}
    return Part({{ state.map | join(", ") }});
}
{% endif %}

fn merge(a: Part, b: Part) -> Part {
{% for name in state.names %}
    let a_{{ name }} = a.of_{{ name }};
    let b_{{ name }} = b.of_{{ name }};
{% endfor %}
    return Part({{ state.combine | join(", ") }});
}

{% endmacro %}

{% macro of_four(f) %}
struct Part4 {
{% for field in fields %}
    {{ field }}: vec4<{{ types[loop.index0] }}>,
{% endfor %}
}

fn four_of(x: Part, y: Part, z: Part, w: Part) -> Part4 {
    return Part4(
{% for field in fields %}
        vec4(x.{{ field }}, y.{{ field }}, z.{{ field }}, w.{{ field }}),
{% endfor %}
    );
}

fn none4() -> Part4 {
    return four_of(none(), none(), none(), none());
}

fn lift4(x: {{ f }}, at: vec4u{{ ", base: vec4u" if s.other }}) -> Part4 {
    return four_of(
{% for c in "xyzw" %}
        lift(x.{{ c }}, at.{{ c }}{{ ", base." ~ c if s.other }}),
{% endfor %}
    );
}

fn merge4(a: Part4, b: Part4) -> Part4 {
    return four_of(
{% for c in range(4) %}
        merge(component(a, {{ c }}u), component(b, {{ c }}u)),
{% endfor %}
    );
}

{% endmacro %}

{% macro lift(four, x, place) -%}
{% set of_other = ", vec4u(other_base)" if four else ", other_base" %}
lift{{ four }}({{ x }}, {{ place }}{{ of_other if s.other }})
{%- endmacro %}

{% macro result() %}
{% for name in state.names %}
    let v_{{ name }} = part.of_{{ name }};
{% endfor %}
{% if state.count %}
    let n = f32(params.length);
{% endif %}
    return {{ state.finish }};
{% endmacro %}

{# WGSL has no subgroup operation for `merge`: lanes exchange parts at growing distances. #}
{% macro in_subgroup() %}
    let lanes = {{ kernel.lanes ~ "u" if kernel.combine == "alone" else "subgroupAdd(1u)" }};
    var all = own;
{% set far = namespace(lanes=1) %}
{% for _ in range(7) if far.lanes < kernel.lanes %}
    {
        let other = Part(
{% for field in fields %}
            subgroupShuffleXor(all.{{ field }}, {{ far.lanes }}u),
{% endfor %}
        );
        if ({{ far.lanes }}u < lanes) {
            all = merge(all, other);
        }
    }
{% set far.lanes = far.lanes * 2 %}
{% endfor %}
    return all;
{% endmacro %}
