{#
  float64 by integer arithmetic, for engines without f64: a double is a vec2u, the low word first, as it is stored.
  Results are rounded to nearest even, with subnormals, infinities and NaN, as in IEEE 754.
#}
{% macro arithmetic() %}
const INFINITY: u32 = 0x7ff00000u; // the high word; any other significand bits make it a NaN
const NOT_A_NUMBER = vec2u(0u, 0x7ff80000u);

fn is_special(x: vec2u) -> bool {
    return (x.y & INFINITY) == INFINITY;
}

fn is_nan(x: vec2u) -> bool {
    return is_special(x) && ((x.y & 0xfffffu) | x.x) != 0u;
}

// A finite |x| is significand(x)·2^exponent(x).
fn significand(x: vec2u) -> vec2u {
    return vec2u(x.x, (x.y & 0xfffffu) | select(0u, 0x100000u, (x.y & INFINITY) != 0u));
}

fn exponent(x: vec2u) -> i32 {
    return i32(max((x.y >> 20u) & 0x7ffu, 1u)) - 1075;
}

// m·2ⁿ of 128 bits, the lowest word first; n < 32
fn up(m: vec4u, n: u32) -> vec4u {
    if (n == 0u) {
        return m;
    }
    return (m << vec4u(n)) | (vec4u(0u, m.xyz) >> vec4u(32u - n));
}

// m/2ⁿ; the lowest bit is set if any bits are lost
fn down(m: vec4u, n: u32) -> vec4u {
    var v = m;
    var left = min(n, 128u);
    var lost = 0u;
    if (left == 128u) {
        return vec4u(select(0u, 1u, any(v != vec4u(0u))), 0u, 0u, 0u);
    }
    if (left >= 64u) {
        lost |= v.x | v.y;
        v = vec4u(v.zw, 0u, 0u);
        left -= 64u;
    }
    if (left >= 32u) {
        lost |= v.x;
        v = vec4u(v.yzw, 0u);
        left -= 32u;
    }
    if (left > 0u) {
        lost |= v.x << (32u - left);
        v = (v >> vec4u(left)) | (vec4u(v.yzw, 0u) << vec4u(32u - left));
    }
    v.x |= select(0u, 1u, lost != 0u);
    return v;
}

fn plus(a: vec4u, b: vec4u) -> vec4u {
    var s = a + b;
    var carry = select(vec4u(0u), vec4u(1u), s < a);
    s.y += carry.x;
    carry.y |= select(0u, 1u, s.y < carry.x);
    s.z += carry.y;
    carry.z |= select(0u, 1u, s.z < carry.y);
    s.w += carry.z;
    return s;
}

fn negated(a: vec4u) -> vec4u {
    return plus(~a, vec4u(1u, 0u, 0u, 0u));
}

// The double nearest to m·2^e; the highest bit of `sign` is its sign
fn rounded(sign: u32, m: vec4u, e: i32) -> vec2u {
    var v = m;
    var unit = e;
    if (v.z == 0u && v.w == 0u) {
        v = vec4u(0u, 0u, v.xy);
        unit -= 64;
    }
    if (v.w == 0u) {
        v = vec4u(0u, v.xyz);
        unit -= 32;
    }
    if (v.w == 0u) {
        return vec2u(0u, sign);
    }
    let zeros = countLeadingZeros(v.w);
    v = up(v, zeros);
    let field = unit - i32(zeros) + 127 + 1023; // of the exponent
    if (field >= 2047) {
        return vec2u(0u, sign | INFINITY);
    }
    // Keep 53 bits, fewer for a subnormal, then a rounding bit and a bit for all lower ones.
    let kept = down(v, u32(73 + clamp(1 - field, 0, 55)));
    var q = vec2u((kept.x >> 2u) | (kept.y << 30u), kept.y >> 2u);
    if ((kept.x & 2u) != 0u && (kept.x & 5u) != 0u) {
        q.x += 1u;
        q.y += select(0u, 1u, q.x == 0u);
    }
    q.y += u32(max(field, 1) - 1) << 20u; // the significand's highest bit adds 1 to the exponent
    return vec2u(q.x, q.y | sign);
}

fn add(x: vec2u, y: vec2u) -> vec2u {
    if (is_special(x) || is_special(y)) {
        if (is_nan(x) || is_nan(y) || (is_special(x) && is_special(y) && x.y != y.y)) {
            return NOT_A_NUMBER;
        }
        return select(y, x, is_special(x));
    }
    let x_is_larger = exponent(x) >= exponent(y);
    let large = select(y, x, x_is_larger);
    let small = select(x, y, x_is_larger);
    let distance = u32(exponent(large) - exponent(small));
    let other = down(vec4u(0u, 0u, significand(small)), distance);
    let same_sign = (x.y ^ y.y) >> 31u == 0u;
    var sum = plus(vec4u(0u, 0u, significand(large)), select(negated(other), other, vec4<bool>(same_sign)));
    var sign = large.y & 0x80000000u;
    if (!same_sign && sum.w >> 31u == 1u) {
        sum = negated(sum);
        sign ^= 0x80000000u;
    }
    if (!same_sign && all(sum == vec4u(0u))) {
        return vec2u(0u);
    }
    return rounded(sign, sum, exponent(large) - 64);
}

fn product_of_words(a: u32, b: u32) -> vec2u {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let middle = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
    return vec2u((low & 0xffffu) | (middle << 16u), (a >> 16u) * (b >> 16u) + (cross >> 16u) + (middle >> 16u));
}

fn multiply(x: vec2u, y: vec2u) -> vec2u {
    let sign = (x.y ^ y.y) & 0x80000000u;
    let a = significand(x);
    let b = significand(y);
    if (is_special(x) || is_special(y)) {
        if (is_nan(x) || is_nan(y) || all(a == vec2u(0u)) || all(b == vec2u(0u))) {
            return NOT_A_NUMBER;
        }
        return vec2u(0u, sign | INFINITY);
    }
    var m = vec4u(product_of_words(a.x, b.x), product_of_words(a.y, b.y));
    m = plus(m, vec4u(0u, product_of_words(a.x, b.y), 0u));
    m = plus(m, vec4u(0u, product_of_words(a.y, b.x), 0u));
    return rounded(sign, m, exponent(x) + exponent(y));
}
{% endmacro %}

{# The function dot_of: A[row, :]·B[:, col], term by term. #}
{% macro dot() %}
{% import "common/matrix.wgsl" as matrix with context %}
fn dot_of(a_base: u32, b_base: u32, row: u32, col: u32) -> vec2u {
    var sum = vec2u(0u, 0x80000000u); // -0, the neutral element of addition
{% call matrix.k_loop() %}
        let a_reg = a[{{ "a_base + k * params.lda + row" if s.trans_a else "a_base + row * params.lda + k" }}];
        let b_reg = b[{{ "b_base + col * params.ldb + k" if s.trans_b else "b_base + k * params.ldb + col" }}];
        sum = add(sum, multiply(a_reg, b_reg));
{% endcall %}
    return sum;
}
{% endmacro %}

{# The function store_c: C[row, col] ← the epilogue of `value`. #}
{% macro store() %}
{% import "common/matrix.wgsl" as matrix with context %}
{{ matrix.activation() }}
fn store_c(base: u32, row: u32, col: u32, value: vec2u) {
    let place = base + row * params.ldc + col;
    var result = value;
{% if "alpha" in s.terms %}
    result = multiply(params.alpha, result);
{% endif %}
{% if s.bias == "matrix" %}
    result = add(result, bias[params.bias_offset + row * params.n + col]);
{% elif s.bias %}
    result = add(result, bias[params.bias_offset + {{ "row" if s.bias == "row" else "col" }}]);
{% endif %}
{% if s.activation %}
    result = activate(result);
{% endif %}
{% if "beta" in s.terms %}
    result = add(result, multiply(params.beta, c[place]));
{% endif %}
    c[place] = result;
}
{% endmacro %}
