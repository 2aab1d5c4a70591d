// Booleans of one byte each, as in NumPy: four to a u32, the first one in the lowest byte.
fn bool8_at(word: u32, index: u32) -> bool {
    return ((word >> (index % 4u * 8u)) & 0xffu) != 0u;
}

fn bool8_vec4(word: u32) -> vec4<bool> {
    return ((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(0xffu)) != vec4u();
}

fn bool8_bits(value: bool) -> u32 {
    return u32(value);
}

fn bool8_words(values: vec4<bool>) -> u32 {
    let bytes = vec4u(values) << vec4u(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}
