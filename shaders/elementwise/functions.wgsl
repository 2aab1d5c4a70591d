{#
  None calls another one, so that products, which store by the third level of calls, need no fourth: see `statements()`
  in webmm/wgsl/functions.py.
#}
{% macro is_nan(x) -%}
(bitcast<u32>({{ x }}) & 0x7fffffffu) > 0x7f800000u
{%- endmacro %}
{# max(x, y), or min(x, y) with the sign "<" #}
{% macro larger(x, y, sign) -%}
select(select(select({{ y }}, {{ x }}, {{ x }} {{ sign }} {{ y }}), {{ y }}, {{ is_nan(y) }}), {{ x }}, {{ is_nan(x) }})
{%- endmacro %}
{# Above 10, tanh is 1 in f32 although its exponentials overflow; near 0 their difference would cancel, hence a series. #}
{% macro tanh(x) %}
    let square = {{ x }} * {{ x }};
    let small = {{ x }} * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * 17.0 / 315.0)));
    let limited = select(tanh(clamp({{ x }}, -10.0, 10.0)), small, abs({{ x }}) < 0.1);
    let result = select(limited, {{ x }}, {{ is_nan(x) }});
{% endmacro %}
// Functions with NumPy's results where WGSL leaves them undefined, and for NaN, which drivers lose in max() and exp().
fn is_nan_f32(x: f32) -> bool {
    return {{ is_nan("x") }};
}

// A number that WGSL has no literal for, or that compilers must not know
fn constant_f32(bits: u32) -> f32 {
    return bitcast<f32>(bits ^ params.zero);
}

fn hidden_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ params.zero);
}

fn exp_f32(x: f32) -> f32 {
    return select(exp(x), x, {{ is_nan("x") }});
}

// Drivers return log(2⁻¹²⁶) for 0 and subnormals; those are scaled by 2²⁴ first.
fn log_f32(x: f32) -> f32 {
    let small = abs(x) < 0x1p-126f;
    let scaled = select(x, x * 0x1p24f, small);
    let finite = log(scaled) - select(0.0, 16.635532, small);
    let real = select(finite, bitcast<f32>(0xff800000u ^ params.zero), scaled == 0.0);
    return select(real, bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u), {{ is_nan("x") }} || x < 0.0);
}

fn sqrt_f32(x: f32) -> f32 {
    return select(sqrt(x), bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u), {{ is_nan("x") }} || x < 0.0);
}

fn tanh_f32(x: f32) -> f32 {
{{ tanh("x") }}
    return result;
}

fn maximum_f32(x: f32, y: f32) -> f32 {
    return {{ larger("x", "y", ">") }};
}

fn minimum_f32(x: f32, y: f32) -> f32 {
    return {{ larger("x", "y", "<") }};
}

// Rounds towards 0; numbers out of range become the nearest integer, NaN becomes 0.
fn int32_f32(x: f32) -> i32 {
    return select(select(i32(x), 2147483647, x >= 0x1p31f), 0, {{ is_nan("x") }});
}

// By the bits, since drivers may take subnormals for 0
fn bool_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}

fn sigmoid_f32(x: f32) -> f32 {
    return 1.0 / (1.0 + select(exp(-x), x, {{ is_nan("x") }}));
}

fn silu_f32(x: f32) -> f32 {
    return x / (1.0 + select(exp(-x), x, {{ is_nan("x") }}));
}

fn relu_f32(x: f32) -> f32 {
    return select(max(x, 0.0), x, {{ is_nan("x") }});
}

// The same formulas as in epilogues/gelu.wgsl and gelu_tanh.wgsl
fn gelu_f32(x: f32) -> f32 {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let tail = poly * exp(-z * z); // 1 - erf(z)
    return select(x * (1.0 - 0.5 * tail), 0.5 * x * tail, x < 0.0);
}

fn gelu_tanh_f32(x: f32) -> f32 {
    let z = 0.7978845608 * (x + 0.044715 * x * x * x);
{{ tanh("z") }}
    return 0.5 * x * (1.0 + result);
}
