{#
  Activations of float64, from additions and multiplications: engines compute exp and tanh of f64 wrongly, and have no
  erf. They are written for a type `double`: a vec4 of f64 if the engine has f64, otherwise a pair of words
  (double.wgsl). Lists of coefficients start with the highest power.

  All use e^x and e^(z²)·erfc(z) for z ≥ 0. e^x is 4ⁿ·e^r with |r| ≤ ln 2; 18 terms of the Taylor series of e^r are
  exact to 2⁻⁶⁰. e^(z²)·erfc(z) is a polynomial in (z - 3)/(z + 3), divided by 1 + 2z: the Chebyshev expansion of degree
  24, computed from 60 digits of the function (error 8.5e-18 of 1.13).
#}
{% set exponential_terms = [
  2.8114572543455206e-15, 4.779477332387385e-14, 7.647163731819816e-13, 1.1470745597729725e-11,
  1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
  2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
  0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5, 1.0, 1.0
] %}
{% set erfcx_terms = [
  8.393734858690877e-10, 9.862533510345587e-10, -8.217595058711455e-09, -1.3312919661038687e-08,
  4.1064013667940355e-08, 1.0183620603842736e-07, -1.4047654315428462e-07, -6.166011460398726e-07,
  3.5576086684080595e-07, 3.472370944977168e-06, -7.308281468783614e-07, -2.0100542268525612e-05,
  4.949196649968345e-06, 0.0001250993424583729, -0.00010515971958448065, -0.0007798322696543306,
  0.0018886903449991718, 0.0025293918156939696, -0.02377051491717134, 0.0683080273440099, -0.11927366341538638,
  0.1296451587027594, -0.0475622943534492, -0.13562110612458117, 1.2530080582697296
] %}
{# The Taylor series of artanh(z) / z as a polynomial in z²; for |z| < 0.172 these terms are exact to 2⁻⁶⁰. #}
{% set artanh_terms = [
  0.043478260869565216, 0.047619047619047616, 0.05263157894736842, 0.058823529411764705, 0.06666666666666667,
  0.07692307692307693, 0.09090909090909091, 0.1111111111111111, 0.14285714285714285, 0.2, 0.3333333333333333, 1.0
] %}
{% set pair = kernel.integer %}
{% set double, whole = ("vec2u", "i32") if pair else (vec4r, "vec4i") %}

{% macro number(x) -%}
{% if pair %}
{% set low, high = kernel.words(x) %}
vec2u({{ low }}u, {{ high }}u)
{%- else -%}
{{ vec4r }}({{ x }})
{%- endif %}
{%- endmacro %}

{% macro polynomial(name, terms) %}
fn {{ name }}(x: {{ double }}) -> {{ double }} {
{% if pair %}
    var terms = array<vec2u, {{ terms | length }}>(
{% for term in terms %}
        {{ number(term) }},
{% endfor %}
    );
    var sum = terms[0];
    // A loop, so that drivers that inline functions inline add() and multiply() once.
    for (var i = 1u; i < {{ terms | length }}u; i++) {
        sum = add(multiply(sum, x), terms[i]);
    }
{% else %}
    var sum = {{ number(terms[0]) }};
{% for term in terms[1:] %}
    sum = fma(sum, x, {{ number(term) }});
{% endfor %}
{% endif %}
    return sum;
}
{% endmacro %}

{# The arithmetic of vec4 of f64. #}
{% macro native_arithmetic() %}
fn add(x: {{ vec4r }}, y: {{ vec4r }}) -> {{ vec4r }} {
    return x + y;
}

fn multiply(x: {{ vec4r }}, y: {{ vec4r }}) -> {{ vec4r }} {
    return x * y;
}

fn opposite(x: {{ vec4r }}) -> {{ vec4r }} {
    return -x;
}

fn where_negative(x: {{ vec4r }}, yes: {{ vec4r }}, no: {{ vec4r }}) -> {{ vec4r }} {
    return select(no, yes, x < {{ vec4r }}());
}

fn reciprocal(x: {{ vec4r }}) -> {{ vec4r }} {
    return {{ number(1.0) }} / x;
}

// x, limited to ±limit
fn bounded(x: {{ vec4r }}, limit: {{ vec4r }}) -> {{ vec4r }} {
    return select(select(x, limit, x > limit), -limit, x < -limit);
}

fn nearest(x: {{ vec4r }}) -> vec4i {
    return vec4i(x + where_negative(x, {{ number(-0.5) }}, {{ number(0.5) }}));
}

fn of_integer(n: vec4i) -> {{ vec4r }} {
    return {{ vec4r }}(n);
}

// 2ⁿ, |n| < 1024
fn power_of_two(n: vec4i) -> {{ vec4r }} {
    var left = abs(n);
    var factor = select({{ number(2.0) }}, {{ number(0.5) }}, n < vec4i());
    var power = {{ number(1.0) }};
    for (var bit = 0u; bit < 10u; bit++) {
        power = select(power, power * factor, (left & vec4i(1)) == vec4i(1));
        factor *= factor;
        left >>= vec4u(1u);
    }
    return power;
}
{% endmacro %}

{# The arithmetic of pairs of words, besides that of double.wgsl. #}
{% macro word_arithmetic() %}
fn opposite(x: vec2u) -> vec2u {
    return vec2u(x.x, x.y ^ 0x80000000u);
}

fn where_negative(x: vec2u, yes: vec2u, no: vec2u) -> vec2u {
    return select(no, yes, x.y >> 31u == 1u && !is_nan(x));
}

// 2ⁿ, |n| < 1023
fn power_of_two(n: i32) -> vec2u {
    return vec2u(0u, u32(n + 1023) << 20u);
}

// 1/x for x ≥ 1, by Newton's iteration from the result in {{ real }}
fn reciprocal(x: vec2u) -> vec2u {
    if (is_special(x)) {
        return select(vec2u(0u), x, is_nan(x));
    }
    let m = vec2u(x.x, (x.y & 0xfffffu) | 0x3ff00000u); // 1 ≤ m < 2
    let bits = bitcast<u32>(1.0 / (1.0 + {{ real }}(x.y & 0xfffffu) / 1048576.0));
    var r = vec2u(bits << 29u, (bits >> 3u) + (896u << 20u));
    for (var i = 0u; i < 3u; i++) {
        r = multiply(r, add({{ number(2.0) }}, opposite(multiply(m, r))));
    }
    let n = i32(x.y >> 20u) - 1023;
    return multiply(multiply(r, power_of_two(-n / 2)), power_of_two(-n - -n / 2));
}

// x, limited to ±limit, whose low word is 0
fn bounded(x: vec2u, limit: vec2u) -> vec2u {
    let beyond = (x.y & 0x7fffffffu) >= limit.y && !is_nan(x);
    return select(x, vec2u(0u, limit.y | (x.y & 0x80000000u)), beyond);
}

// The integer nearest to x, |x| < 2³⁰
fn nearest(x: vec2u) -> i32 {
    let n = clamp(-2 - exponent(x), 0, 60);
    let quarters = down(vec4u(significand(x), 0u, 0u), u32(n)).x; // the lowest bit is set if others are lost
    let size = i32((quarters + 2u) >> 2u);
    return select(size, -size, x.y >> 31u == 1u);
}

fn of_integer(n: i32) -> vec2u {
    return rounded(select(0u, 0x80000000u, n < 0), vec4u(u32(abs(n)), 0u, 0u, 0u), 0);
}
{% endmacro %}

{# The function exponential(), and the functions that it calls; double.wgsl has add() and multiply() of word pairs. #}
{% macro exponentials() %}
{{ word_arithmetic() if pair else native_arithmetic() }}
{{ polynomial("exponential_series", exponential_terms) }}
// e^x, where x = n·ln 4 + r; the upper part of ln 4 has few enough bits for its product with n to be exact.
fn exponential(given: {{ double }}) -> {{ double }} {
    let x = bounded(given, {{ number(1000.0) }});
    let n = nearest(multiply(x, {{ number(0.7213475204444817) }}));
    let upper = add(x, multiply(of_integer(n), {{ number(-1.3862943607382476) }}));
    let r = add(upper, multiply(of_integer(n), {{ number(-3.8164298585411754e-10) }}));
    let root = power_of_two(n); // of 4ⁿ, which may overflow although the result does not
    return multiply(multiply(exponential_series(r), root), root);
}

{% endmacro %}

{# The function logarithm(), and the polynomial that it calls; for devices with f64. #}
{% macro logarithm() %}
{{ polynomial("artanh_series", artanh_terms) }}
// log x for 1 ≤ x < 2⁶⁴, or NaN. x is 2ⁿ·m with √½ < m ≤ √2, and log m = 2·artanh((m - 1)/(m + 1)).
fn logarithm(x: {{ real }}) -> {{ real }} {
    var m = x;
    var n = {{ real }}();
{% for bits in (32, 16, 8, 4, 2, 1) %}
    if (m >= {{ 2.0 ** bits }}) {
        m *= {{ 0.5 ** bits }};
        n += {{ bits }}.0;
    }
{% endfor %}
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n += 1.0;
    }
    let z = (m - 1.0) / (m + 1.0);
    // The upper part of ln 2 has few enough bits for its product with n to be exact.
    let lower = fma(n, 1.9082149292705877e-10, 2.0 * z * artanh_series({{ vec4r }}(z * z)).x);
    return n * 0.6931471803691238 + lower;
}
{% endmacro %}

{# The function activate(), and the functions that it calls. #}
{% macro activation() %}
{% if s.activation == "relu" %}
{{ word_arithmetic() if pair else native_arithmetic() }}
// max(x, 0), which keeps a NaN
fn activate(x: {{ double }}) -> {{ double }} {
    return where_negative(x, {{ number(0.0) }}, x);
}
{% else %}
{{ exponentials() }}
// 1/(1 + e^-x)
fn sigmoid(x: {{ double }}) -> {{ double }} {
    let small = exponential(where_negative(x, x, opposite(x)));
    let large = reciprocal(add({{ number(1.0) }}, small));
    return where_negative(x, multiply(small, large), large);
}

{% if s.activation == "silu" %}
fn activate(x: {{ double }}) -> {{ double }} {
    return multiply(x, sigmoid(x));
}
{% elif s.activation == "gelu_tanh" %}
// 1 + tanh(u) is 2·sigmoid(2u).
fn activate(x: {{ double }}) -> {{ double }} {
    let cubic = add({{ number(1.0) }}, multiply({{ number(0.044715) }}, multiply(x, x)));
    return multiply(x, sigmoid(multiply(multiply(x, {{ number(1.5957691216057308) }}), cubic)));
}
{% else %}
{{ polynomial("erfcx_polynomial", erfcx_terms) }}
// x·Φ(x): for x < 0, Φ is the tail ½·erfc(|x|/√2); otherwise it is 1 minus the tail.
fn activate(x: {{ double }}) -> {{ double }} {
    let size = bounded(where_negative(x, opposite(x), x), {{ number(40.0) }});
    let z = multiply(size, {{ number(0.7071067811865476) }});
    let place = multiply(add(z, {{ number(-3.0) }}), reciprocal(add(z, {{ number(3.0) }})));
    let scaled = multiply(erfcx_polynomial(place), reciprocal(add({{ number(1.0) }}, add(z, z))));
    // e^(-x²/2) is e^(-u²/2)·e^h with the upper 26 bits u of x, whose square is exact, and |h| < 2⁻¹⁴. Clearing the
    // lowest bit keeps the conversion to an integer and back: without it, lavapipe leaves both out on some CPUs.
{% set two_to_20, two_to_minus_20 = number(1048576.0), number(0.00000095367431640625) %}
    let upper = multiply(of_integer(nearest(multiply(size, {{ two_to_20 }})) & {{ whole }}(-2)), {{ two_to_minus_20 }});
    let h = multiply({{ number(-0.5) }}, multiply(add(size, opposite(upper)), add(size, upper)));
    let cubic = add({{ number(0.5) }}, multiply(h, {{ number(0.16666666666666666) }}));
    let rest = add({{ number(1.0) }}, multiply(h, add({{ number(1.0) }}, multiply(h, cubic))));
    let bell = multiply(exponential(multiply({{ number(-0.5) }}, multiply(upper, upper))), rest);
    let tail = multiply(multiply({{ number(0.5) }}, bell), scaled);
    return multiply(x, where_negative(x, tail, add({{ number(1.0) }}, opposite(tail))));
}
{% endif %}
{% endif %}
{% endmacro %}
