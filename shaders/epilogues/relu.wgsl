// max(x, 0); a NaN stays one, which max() would not promise.
fn activate(x: vec4f) -> vec4f {
    return select(x, vec4f(), x < vec4f());
}
