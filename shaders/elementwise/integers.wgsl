// Integers, which wrap around: a quotient by 0 is 0, as is the remainder; 2 to the power of -1 is rounded to 0.
fn sign_i32(x: i32) -> i32 {
    return sign(x);
}

fn floor_divide_i32(x: i32, y: i32) -> i32 {
    if (y == 0) {
        return 0;
    }
    if (y == -1) {
        return -x;
    }
    let quotient = x / y;
    return quotient - select(0, 1, quotient * y != x && (x < 0) != (y < 0));
}

fn remainder_i32(x: i32, y: i32) -> i32 {
    return select(x - floor_divide_i32(x, y) * y, 0, y == 0);
}

fn power_i32(x: i32, y: i32) -> i32 {
    let inverse = select(select(0, select(1, -1, (y & 1) == 1), x == -1), 1, x == 1);
    var factor = x;
    var product = 1;
    for (var left = u32(max(y, 0)); left > 0u; left >>= 1u) {
        product = select(product, product * factor, (left & 1u) == 1u);
        factor *= factor;
    }
    return select(product, inverse, y < 0);
}

// By 32 places or more, and by negative numbers of them, nothing but the sign is left.
fn left_shift_i32(x: i32, y: i32) -> i32 {
    return select(0, x << (u32(y) & 31u), y >= 0 && y < 32);
}

fn right_shift_i32(x: i32, y: i32) -> i32 {
    return x >> select(31u, u32(y), y >= 0 && y < 32);
}
