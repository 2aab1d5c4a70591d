// bfloat16, the upper half of an f32. WGSL has no such type: a u32 holds two elements, the even one in the lower half.
fn bf16_at(word: u32, index: u32) -> f32 {
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, index % 2u == 1u));
}

fn bf16_vec4(words: vec2u) -> vec4f {
    return bitcast<vec4f>(vec4u(words.x << 16u, words.x & 0xffff0000u, words.y << 16u, words.y & 0xffff0000u));
}

// Rounds to nearest even; a NaN stays a NaN.
fn bf16_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

fn bf16_words(value: vec4f) -> vec2u {
    return vec2u(
        bf16_bits(value.x) | (bf16_bits(value.y) << 16u),
        bf16_bits(value.z) | (bf16_bits(value.w) << 16u),
    );
}
