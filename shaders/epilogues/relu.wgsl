// max(x, 0), by the bits of x: those of negative numbers are between those of -0 and -infinity. Neither max() nor a
// comparison of floats keeps a NaN on every driver (NVIDIA compiles both to one instruction that returns 0).
fn activate(x: vec4f) -> vec4f {
    let bits = bitcast<vec4u>(x);
    return select(x, vec4f(), (bits >= vec4u(0x80000000u)) & (bits <= vec4u(0xff800000u)));
}
