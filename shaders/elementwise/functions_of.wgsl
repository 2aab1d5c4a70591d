{#
  The functions of expressions, for elements of type `f`: f32, or vec4f for four elements at once, which NVIDIA's driver
  compiles better: of scalars, select() can become a branch, which took 22 % of a product at 4096³ on an H100.

  None calls another one, so that products, which store by the third level of calls, need no fourth: see `statements()`
  in webmm/wgsl/functions.py.
#}
{% set four = f == "vec4f" %}
{% set u, i, b = ("vec4u", "vec4i", "vec4<bool>") if four else ("u32", "i32", "bool") %}
{% macro is_nan(x) -%}
(bitcast<{{ u }}>({{ x }}) & {{ u }}(0x7fffffffu)) > {{ u }}(0x7f800000u)
{%- endmacro %}
{% macro positive(x) -%}
(bitcast<{{ i }}>({{ x }}) > {{ i }}()) & (bitcast<{{ i }}>({{ x }}) <= {{ i }}(0x7f800000))
{%- endmacro %}
{# max(x, y), or min(x, y) with the sign "<" #}
{% macro larger(x, y, sign) -%}
select(select(select({{ y }}, {{ x }}, {{ x }} {{ sign }} {{ y }}), {{ y }}, {{ is_nan(y) }}), {{ x }}, {{ is_nan(x) }})
{%- endmacro %}
{# Above 10, tanh is 1 although its exponentials overflow; near 0 their difference would cancel, hence a series. #}
{% macro tanh(x) %}
    let square = {{ x }} * {{ x }};
    let small = {{ x }} * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * 17.0 / 315.0)));
    let limited = select(tanh(clamp({{ x }}, {{ f }}(-10.0), {{ f }}(10.0))), small, abs({{ x }}) < {{ f }}(0.1));
    let result = select(limited, {{ x }}, {{ is_nan(x) }});
{% endmacro %}
fn is_nan_{{ f }}(x: {{ f }}) -> {{ b }} {
    return {{ is_nan("x") }};
}

// Comparisons are false for NaN by its bits. Of where(x < 1, 1, x), which is NaN for NaN, NVIDIA's driver makes a
// maximum, which loses it.
fn less_{{ f }}(x: {{ f }}, y: {{ f }}) -> {{ b }} {
    return (x < y) & !(({{ is_nan("x") }}) | ({{ is_nan("y") }}));
}

fn at_most_{{ f }}(x: {{ f }}, y: {{ f }}) -> {{ b }} {
    return (x <= y) & !(({{ is_nan("x") }}) | ({{ is_nan("y") }}));
}

// With 0, the bits alone: a selection by x > 0 of floats took 6 % of a product at 4096³ on an H100 under wgpu, this
// 2 %; less_vec4f() took 4 % of one of float16 under Dawn, this 1 %. Of one of float16 under wgpu this would take 3 %,
// and `in_two` comparisons, which take 6 % of one of float32, take 1 %.
fn above_zero_{{ f }}(x: {{ f }}) -> {{ b }} {
{% if in_two %}
    return {{ positive("x") }};
{% else %}
    return (bitcast<{{ u }}>(x) - {{ u }}(1u)) < {{ u }}(0x7f800000u);
{% endif %}
}

fn below_zero_{{ f }}(x: {{ f }}) -> {{ b }} {
{% if in_two %}
    return {{ positive("-x") }};
{% else %}
    return (bitcast<{{ u }}>(x) - {{ u }}(0x80000001u)) < {{ u }}(0x7f800000u);
{% endif %}
}

fn from_zero_{{ f }}(x: {{ f }}) -> {{ b }} {
    let bits = bitcast<{{ u }}>(x);
    return (bits <= {{ u }}(0x7f800000u)) | (bits == {{ u }}(0x80000000u));
}

fn to_zero_{{ f }}(x: {{ f }}) -> {{ b }} {
    let bits = bitcast<{{ u }}>(x);
    return (bits - {{ u }}(0x80000000u) <= {{ u }}(0x7f800000u)) | (bits == {{ u }}());
}

// A number that WGSL has no literal for, or that compilers must not know
fn constant_{{ f }}(bits: u32) -> {{ f }} {
    return {{ f }}(bitcast<f32>(bits ^ params.zero));
}

fn hidden_{{ f }}(x: {{ f }}) -> {{ f }} {
    return bitcast<{{ f }}>(bitcast<{{ u }}>(x) ^ {{ u }}(params.zero));
}

fn exp_{{ f }}(x: {{ f }}) -> {{ f }} {
    return select(exp(x), x, {{ is_nan("x") }});
}

// Drivers return log(2⁻¹²⁶) for 0 and subnormals; those are scaled by 2²⁴ first.
fn log_{{ f }}(x: {{ f }}) -> {{ f }} {
    let small = abs(x) < {{ f }}(0x1p-126f);
    let finite = log(select(x, x * 0x1p24f, small)) - select({{ f }}(), {{ f }}(16.635532), small);
    let infinite = select(x, x * 0x1p24f, small) == {{ f }}();
    let real = select(finite, {{ f }}(bitcast<f32>(0xff800000u ^ params.zero)), infinite);
    let undefined = bitcast<{{ f }}>(bitcast<{{ u }}>(x) | {{ u }}(0x7fc00000u));
    return select(real, undefined, ({{ is_nan("x") }}) | (x < {{ f }}()));
}

fn sqrt_{{ f }}(x: {{ f }}) -> {{ f }} {
    let undefined = bitcast<{{ f }}>(bitcast<{{ u }}>(x) | {{ u }}(0x7fc00000u));
    return select(sqrt(x), undefined, ({{ is_nan("x") }}) | (x < {{ f }}()));
}

fn tanh_{{ f }}(x: {{ f }}) -> {{ f }} {
{{ tanh("x") }}
    return result;
}

fn maximum_{{ f }}(x: {{ f }}, y: {{ f }}) -> {{ f }} {
    return {{ larger("x", "y", ">") }};
}

fn minimum_{{ f }}(x: {{ f }}, y: {{ f }}) -> {{ f }} {
    return {{ larger("x", "y", "<") }};
}

// Rounds towards 0; numbers out of range become the nearest integer, NaN becomes 0.
fn int32_{{ f }}(x: {{ f }}) -> {{ i }} {
    return select(select({{ i }}(x), {{ i }}(2147483647), x >= {{ f }}(0x1p31f)), {{ i }}(), {{ is_nan("x") }});
}

// By the bits, since drivers may take subnormals for 0
fn bool_{{ f }}(x: {{ f }}) -> {{ b }} {
    return (bitcast<{{ u }}>(x) & {{ u }}(0x7fffffffu)) != {{ u }}();
}

fn sigmoid_{{ f }}(x: {{ f }}) -> {{ f }} {
    return 1.0 / (1.0 + select(exp(-x), x, {{ is_nan("x") }}));
}

fn silu_{{ f }}(x: {{ f }}) -> {{ f }} {
    return x / (1.0 + select(exp(-x), x, {{ is_nan("x") }}));
}

fn relu_{{ f }}(x: {{ f }}) -> {{ f }} {
    return {{ larger("x", f ~ "()", ">") }};
}

// The same formulas as in epilogues/gelu.wgsl and gelu_tanh.wgsl
fn gelu_{{ f }}(x: {{ f }}) -> {{ f }} {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let tail = poly * exp(-z * z); // 1 - erf(z)
    return select(x * (1.0 - 0.5 * tail), 0.5 * x * tail, x < {{ f }}());
}

fn gelu_tanh_{{ f }}(x: {{ f }}) -> {{ f }} {
    let z = 0.7978845608 * (x + 0.044715 * x * x * x);
{{ tanh("z") }}
    return 0.5 * x * (1.0 + result);
}
