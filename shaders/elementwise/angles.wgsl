// Trigonometric functions, with NumPy's results for special values. WGSL leaves to drivers how accurate theirs are, and
// sin(x) beyond π; these have the polynomials of the library Cephes, and take quarter turns from x exactly.
// 2/π in binary, 32 digits in each word, after a word of zeros
fn two_over_pi(word: u32) -> u32 {
    switch word {
        case 1u: { return 0xa2f9836eu; }
        case 2u: { return 0x4e441529u; }
        case 3u: { return 0xfc2757d1u; }
        case 4u: { return 0xf534ddc0u; }
        case 5u: { return 0xdb629599u; }
        case 6u: { return 0x3c439041u; }
        case 7u: { return 0xfe5163abu; }
        default: { return 0u; }
    }
}

// The upper word of a product
fn multiplied_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let left = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let right = (a & 0xffffu) * (b >> 16u) + (left & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (left >> 16u) + (right >> 16u);
}

// How many quarter turns |x| is, and how far it is from the nearest whole number of them, in radians: exactly, by
// integers, with the 96 digits of 2/π that matter for its exponent (Payne and Hanek).
struct Turned {
    quarters: u32,
    rest: f32,
}

fn turned(x: f32) -> Turned {
    let size = magnitude_bits(x);
    if (size < 0x3f490fdbu) {
        return Turned(0u, abs(x));
    }
    let digits = (size & 0x7fffffu) | 0x800000u;
    let first = (size >> 23u) - 120u; // of the digits of 2/π: the one that stands for two quarter turns
    let word = first / 32u;
    let shift = first % 32u;
    var window = array<u32, 3>();
    for (var i = 0u; i < 3u; i++) {
        let next = select(two_over_pi(word + i + 1u) >> (32u - max(shift, 1u)), 0u, shift == 0u);
        window[i] = (two_over_pi(word + i) << shift) | next;
    }
    let middle = digits * window[1];
    let low = middle + multiplied_high(digits, window[2]);
    let high = digits * window[0] + multiplied_high(digits, window[1]) + select(0u, 1u, low < middle);
    let quarters = (high + 0x20000000u) >> 30u;
    let upper = (high << 2u) | (low >> 30u);
    let below = upper >= SIGN_BIT;
    let lower = low << 2u;
    let fraction = f32(select(upper, ~upper, below)) * 0x1p-32f + f32(select(lower, ~lower, below)) * 0x1p-64f;
    return Turned(quarters & 3u, select(fraction, -fraction, below) * 1.5707963268);
}

fn sine_near(x: f32) -> f32 {
    let q = x * x;
    return x + x * q * (-1.6666654611e-1 + q * (8.3321608736e-3 - q * 1.9515295891e-4));
}

fn cosine_near(x: f32) -> f32 {
    let q = x * x;
    return 1.0 - 0.5 * q + q * q * (4.166664568298827e-2 + q * (-1.388731625493765e-3 + q * 2.443315711809948e-5));
}

fn sin_angle(x: f32) -> f32 {
    let t = turned(x);
    let found = select(sine_near(t.rest), cosine_near(t.rest), (t.quarters & 1u) == 1u);
    let positive = (t.quarters < 2u) != is_negative(x);
    return select(select(-found, found, positive), nan_of(x), !isfinite_number(x));
}

fn cos_angle(x: f32) -> f32 {
    let t = turned(x);
    let found = select(cosine_near(t.rest), sine_near(t.rest), (t.quarters & 1u) == 1u);
    let positive = t.quarters == 0u || t.quarters == 3u;
    return select(select(-found, found, positive), nan_of(x), !isfinite_number(x));
}

fn tan_angle(x: f32) -> f32 {
    let t = turned(x);
    let s = sine_near(t.rest);
    let c = cosine_near(t.rest);
    let found = select(s / c, -c / s, (t.quarters & 1u) == 1u);
    return select(select(found, -found, is_negative(x)), nan_of(x), !isfinite_number(x));
}

fn atan_angle(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 2.414213562;
    let middle = a > 0.4142135624;
    let y = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / a, far);
    let q = y * y;
    let series = q * (-3.33329491539e-1 + q * (1.99777106478e-1 + q * (-1.38776856032e-1 + q * 8.05374449538e-2)));
    let found = select(select(0.0, 0.7853981634, middle), 1.5707963268, far) + y + y * series;
    let finite = select(found, 1.5707963268, magnitude_bits(x) == INFINITY_BITS);
    return select(copysign_number(finite, x), x, is_nan_f32(x) || a < 0x1p-24f);
}

fn arcsine_near(x: f32) -> f32 {
    let q = x * x;
    let far = 7.4953002686e-2 + q * (4.5470025998e-2 + q * (2.4181311049e-2 + q * 4.2163199048e-2));
    return x + x * q * (1.6666752422e-1 + q * far);
}

fn asin_angle(x: f32) -> f32 {
    let a = abs(x);
    let near_one = 1.5707963268 - 2.0 * arcsine_near(sqrt(max(0.5 * (1.0 - a), 0.0)));
    let found = copysign_number(select(arcsine_near(a), near_one, a > 0.5), x);
    return select(select(found, x, a < 0x1p-24f), nan_of(x), is_nan_f32(x) || a > 1.0);
}

fn acos_angle(x: f32) -> f32 {
    let a = abs(x);
    let near_one = 2.0 * arcsine_near(sqrt(max(0.5 * (1.0 - a), 0.0)));
    let found = select(1.5707963268 - arcsine_near(x), select(near_one, 3.1415926536 - near_one, x < 0.0), a > 0.5);
    return select(found, nan_of(x), is_nan_f32(x) || a > 1.0);
}

fn atan2_angle(y: f32, x: f32) -> f32 {
    let size_x = magnitude_bits(x);
    let size_y = magnitude_bits(y);
    let steep = size_y > size_x;
    // Quotients of two zeros and of two infinities are those of two ones, but that 0/0 is 0.
    let alike = size_x == size_y;
    let quotient = abs(select(y, x, steep)) / hidden_f32(abs(select(x, y, steep)));
    let ratio = select(quotient, select(1.0, 0.0, size_x == 0u), alike);
    let first = select(atan_angle(ratio), 1.5707963268 - atan_angle(ratio), steep);
    let angle = select(first, 3.1415926536 - first, is_negative(x));
    let nan = select(nan_of(y), nan_of(x), is_nan_f32(x));
    return select(copysign_number(angle, y), nan, is_nan_f32(x) || is_nan_f32(y));
}
