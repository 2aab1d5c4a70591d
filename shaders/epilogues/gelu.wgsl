// GELU: x·Φ(x). The error function by Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, to 1.5e-7.
fn activate(x: vec4f) -> vec4f {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let tail = poly * exp(-z * z); // 1 - erf(z)
    return select(x * (1.0 - 0.5 * tail), 0.5 * x * tail, x < vec4f());
}
