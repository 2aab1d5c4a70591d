// Powers, with NumPy's results for special values.
// Powers with whole exponents of up to 64 are products, which are exact while they are whole and below 2²⁴.
fn real_power(x: f32, y: f32) -> f32 {
    let a = abs(x);
    let whole = floor_number(y) == y;
    let odd = whole && abs(y) < 0x1p24f && (i32(clamp(y, -0x1p24f, 0x1p24f)) & 1) == 1;
    // Near 1, where log2() may err by more than its value
    let exponent = select(log2_number(a), log1p_number(a - 1.0) * 1.4426950409, abs(a - 1.0) < 0.4);
    var size = exp2_number(y * exponent);
    if (whole && abs(y) <= 64.0) {
        var factor = a;
        var product = 1.0;
        for (var left = u32(abs(y)); left > 0u; left >>= 1u) {
            product = select(product, product * factor, (left & 1u) == 1u);
            factor *= factor;
        }
        size = select(product, 1.0 / hidden_f32(product), y < 0.0);
    }
    let up = y > 0.0;
    let infinite_x = select(0.0, infinity(), up);
    let infinite_y = select(select(0.0, infinity(), up == (a > 1.0)), 1.0, a == 1.0);
    size = select(size, select(infinity(), 0.0, up), magnitude_bits(x) == 0u);
    size = select(size, infinite_x, isinf_number(x));
    size = select(size, infinite_y, isinf_number(y));
    let signed = select(size, -size, odd && is_negative(x));
    let undefined = x < 0.0 && isfinite_number(x) && isfinite_number(y) && !whole;
    let number = select(signed, nan_of(x), undefined || is_nan_f32(x) || is_nan_f32(y));
    return select(number, 1.0, magnitude_bits(y) == 0u || x == 1.0);
}
