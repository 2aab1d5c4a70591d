// Quotients rounded down and their remainders, as in Python, with NumPy's results for special values.
// The remainder of |x| / |y|, for finite numbers and y ≠ 0: exactly, by integers, eight digits at a time.
fn remainder_of_sizes(x: f32, y: f32) -> f32 {
    let size_x = magnitude_bits(x);
    let size_y = magnitude_bits(y);
    let exponent_x = max(size_x >> 23u, 1u);
    let exponent_y = max(size_y >> 23u, 1u);
    let digits_x = (size_x & 0x7fffffu) | select(0u, 0x800000u, size_x >= 0x800000u);
    let digits_y = (size_y & 0x7fffffu) | select(0u, 0x800000u, size_y >= 0x800000u);
    if (size_x < size_y) {
        return abs(x);
    }
    var rest = digits_x % digits_y;
    var left = exponent_x - exponent_y;
    while (left > 0u) {
        let digits = min(left, 8u);
        rest = (rest << digits) % digits_y;
        left -= digits;
    }
    if (rest == 0u) {
        return 0.0;
    }
    // As many places up as y's exponent allows
    let up = min(countLeadingZeros(rest) - 8u, exponent_y - 1u);
    let digits = rest << up;
    return bitcast<f32>(select(digits, ((exponent_y - up) << 23u) | (digits & 0x7fffffu), digits >= 0x800000u));
}

fn remainder_division(x: f32, y: f32) -> f32 {
    if (is_nan_f32(x) || is_nan_f32(y) || isinf_number(x) || magnitude_bits(y) == 0u) {
        return select(nan_of(x), y, is_nan_f32(y));
    }
    let apart = is_negative(x) != is_negative(y);
    if (isinf_number(y)) {
        return select(select(x, y, apart), copysign_number(0.0, y), magnitude_bits(x) == 0u);
    }
    let rest = remainder_of_sizes(x, y);
    return copysign_number(select(rest, abs(y) - rest, apart && magnitude_bits(rest) != 0u), y);
}

fn floor_division(x: f32, y: f32) -> f32 {
    let apart = is_negative(x) != is_negative(y);
    let zero = select(0.0, constant_f32(SIGN_BIT), apart);
    if (is_nan_f32(x) || is_nan_f32(y)) {
        return select(nan_of(x), y, is_nan_f32(y));
    }
    if (magnitude_bits(y) == 0u) {
        return select(select(infinity(), -infinity(), apart), nan_of(x), magnitude_bits(x) == 0u);
    }
    if (isinf_number(x)) {
        return nan_of(x);
    }
    if (isinf_number(y)) {
        return select(zero, -1.0, apart && magnitude_bits(x) != 0u);
    }
    let rest = remainder_of_sizes(x, y);
    let whole = round_number((abs(x) - rest) / abs(y));
    let found = select(whole, -whole - select(0.0, 1.0, magnitude_bits(rest) != 0u), apart);
    return select(found, zero, found == 0.0);
}
