// Functions with NumPy's results where WGSL leaves them undefined, and for NaN, which drivers lose in max() and exp().
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn nan_of(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

fn exp_f32(x: f32) -> f32 {
    return select(exp(x), x, is_nan(x));
}

fn log_f32(x: f32) -> f32 {
    return select(log(x), nan_of(x), is_nan(x) || x < 0.0);
}

fn sqrt_f32(x: f32) -> f32 {
    return select(sqrt(x), nan_of(x), is_nan(x) || x < 0.0);
}

// Above 10, tanh is 1 in f32 although its exponentials overflow; near 0 their difference would cancel, hence a series.
fn tanh_f32(x: f32) -> f32 {
    let square = x * x;
    let small = x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * 17.0 / 315.0)));
    return select(select(tanh(clamp(x, -10.0, 10.0)), small, abs(x) < 0.1), x, is_nan(x));
}

fn maximum_f32(x: f32, y: f32) -> f32 {
    return select(select(select(y, x, x > y), y, is_nan(y)), x, is_nan(x));
}

fn minimum_f32(x: f32, y: f32) -> f32 {
    return select(select(select(y, x, x < y), y, is_nan(y)), x, is_nan(x));
}
