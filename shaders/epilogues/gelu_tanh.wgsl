// GELU's tanh approximation. The argument is clamped, since tanh overflows on drivers that compute it from exp.
fn activate(x: vec4f) -> vec4f {
    let t = tanh(clamp(0.7978845608 * (x + 0.044715 * x * x * x), vec4f(-15.0), vec4f(15.0)));
    return 0.5 * x * (1.0 + t);
}
