// x·sigmoid(x)
fn activate(x: vec4f) -> vec4f {
    return x / (1.0 + exp(-x));
}
