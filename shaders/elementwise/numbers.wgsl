// Rounding, signs, exponentials, logarithms and hyperbolic functions, with NumPy's results for special values. They are
// computed from exp(), log(), exp2(), log2() and sqrt(), and by series near 0, where differences would cancel.
const INFINITY_BITS = 0x7f800000u;
const SIGN_BIT = 0x80000000u;

fn magnitude_bits(x: f32) -> u32 {
    return bitcast<u32>(x) & 0x7fffffffu;
}

fn is_negative(x: f32) -> bool {
    return bitcast<u32>(x) >= SIGN_BIT;
}

fn nan_of(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

// x with the sign of y; drivers that take subnormals for 0 keep these bits
fn copysign_number(x: f32, y: f32) -> f32 {
    return bitcast<f32>(magnitude_bits(x) | (bitcast<u32>(y) & SIGN_BIT));
}

fn infinity() -> f32 {
    return constant_f32(INFINITY_BITS);
}

fn signbit_number(x: f32) -> bool {
    return is_negative(x);
}

fn isinf_number(x: f32) -> bool {
    return magnitude_bits(x) == INFINITY_BITS;
}

fn isfinite_number(x: f32) -> bool {
    return magnitude_bits(x) < INFINITY_BITS;
}

fn sign_number(x: f32) -> f32 {
    return select(select(copysign_number(1.0, x), 0.0, magnitude_bits(x) == 0u), x, is_nan_f32(x));
}

// Numbers from 2²³ on are whole, and drivers may lose larger ones, infinities and NaN.
fn is_whole_already(x: f32) -> bool {
    return magnitude_bits(x) >= 0x4b000000u;
}

fn floor_number(x: f32) -> f32 {
    return select(copysign_number(floor(x), x), x, is_whole_already(x));
}

fn ceil_number(x: f32) -> f32 {
    return select(copysign_number(ceil(x), x), x, is_whole_already(x));
}

fn trunc_number(x: f32) -> f32 {
    return select(copysign_number(trunc(x), x), x, is_whole_already(x));
}

fn round_number(x: f32) -> f32 {
    return select(copysign_number(round(x), x), x, is_whole_already(x));
}

fn exp2_number(x: f32) -> f32 {
    let finite = select(exp2(x), 0.0, x < -150.0);
    return select(select(finite, infinity(), x >= 128.0), x, is_nan_f32(x));
}

fn log2_number(x: f32) -> f32 {
    let small = abs(x) < 0x1p-126f;
    let scaled = select(x, x * 0x1p24f, small);
    let finite = log2(scaled) - select(0.0, 24.0, small);
    let limit = select(select(finite, infinity(), magnitude_bits(x) == INFINITY_BITS), -infinity(), scaled == 0.0);
    return select(limit, nan_of(x), is_nan_f32(x) || x < 0.0);
}

fn log10_number(x: f32) -> f32 {
    return log_f32(x) * 0.4342944819;
}

fn expm1_number(x: f32) -> f32 {
    let near = 1.0 / 24.0 + x * (1.0 / 120.0 + x * (1.0 / 720.0 + x * (1.0 / 5040.0 + x / 40320.0)));
    let small = x + x * x * (0.5 + x * (1.0 / 6.0 + x * near));
    return select(select(exp_f32(x) - 1.0, small, abs(x) < 0.35), x, abs(x) < 0x1p-24f);
}

fn log1p_number(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let q = s * s;
    let small = 2.0 * s * (1.0 + q * (1.0 / 3.0 + q * (0.2 + q * (1.0 / 7.0 + q * (1.0 / 9.0 + q / 11.0)))));
    let tiny = abs(x) < 0x1p-24f; // the quotient of subnormals would be 0
    return select(select(log_f32(1.0 + x), small, abs(x) < 0.4), x, tiny);
}

fn sinh_number(x: f32) -> f32 {
    let a = abs(x);
    let half = exp_f32(0.5 * a); // e^a itself may overflow
    let large = (0.5 * half) * half - 0.5 / (half * half);
    let q = x * x;
    let series = 1.0 + q * (1.0 / 6.0 + q * (1.0 / 120.0 + q * (1.0 / 5040.0 + q / 362880.0)));
    return select(copysign_number(large, x), x * series, a < 1.0);
}

fn cosh_number(x: f32) -> f32 {
    let half = exp_f32(0.5 * abs(x));
    return (0.5 * half) * half + 0.5 / (half * half);
}

fn asinh_number(x: f32) -> f32 {
    let a = abs(x);
    let near = log1p_number(a + a * a / (1.0 + sqrt(1.0 + a * a)));
    let found = select(near, log_f32(a) + 0.6931471806, a > 1e4);
    return select(copysign_number(found, x), x, is_nan_f32(x) || a < 0x1p-24f);
}

fn acosh_number(x: f32) -> f32 {
    let t = x - 1.0;
    let near = log1p_number(t + sqrt(2.0 * t + t * t));
    return select(select(near, log_f32(x) + 0.6931471806, x > 1e4), nan_of(x), is_nan_f32(x) || x < 1.0);
}

fn atanh_number(x: f32) -> f32 {
    let a = abs(x);
    let found = select(0.5 * log1p_number(2.0 * a / (1.0 - a)), infinity(), a == 1.0);
    let inside = select(copysign_number(found, x), x, a < 0x1p-24f);
    return select(inside, nan_of(x), is_nan_f32(x) || a > 1.0);
}

fn hypot_number(x: f32, y: f32) -> f32 {
    let large = max(abs(x), abs(y));
    let ratio = min(abs(x), abs(y)) / hidden_f32(large);
    let finite = select(large * sqrt(1.0 + ratio * ratio), large, large == 0.0);
    let number = select(finite, nan_of(x + y), is_nan_f32(x) || is_nan_f32(y));
    return select(number, infinity(), isinf_number(x) || isinf_number(y));
}

fn logaddexp_number(x: f32, y: f32) -> f32 {
    let large = maximum_f32(x, y);
    let apart = -abs(x - y);
    let finite = large + log1p_number(exp_f32(apart));
    let equal = bitcast<u32>(x) == bitcast<u32>(y); // also infinities, whose difference is none
    let number = select(finite, large, isinf_number(x) || isinf_number(y));
    return select(select(number, large + 0.6931471806, equal && isfinite_number(x)), large, is_nan_f32(large));
}

fn nextafter_number(x: f32, y: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let up = (x < y) != is_negative(x);
    let moved = bitcast<f32>(select(bits - 1u, bits + 1u, up));
    let from_zero = copysign_number(bitcast<f32>(1u ^ params.zero), y);
    let next = select(moved, from_zero, magnitude_bits(x) == 0u);
    let same = bits == bitcast<u32>(y) || (magnitude_bits(x) | magnitude_bits(y)) == 0u;
    return select(select(next, y, same), select(nan_of(y), nan_of(x), is_nan_f32(x)), is_nan_f32(x) || is_nan_f32(y));
}
