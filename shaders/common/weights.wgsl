{#
  Quantised weights, stored column by column of B, PER_WORD consecutive weights along k to a word. Each column is padded
  to whole blocks, so weight number i is in word i / PER_WORD and in block i / BLOCK. Its value is scale·(q - zero).
#}
{% macro constants() %}
const BITS: u32 = {{ s.bits }}u; // of a weight
const BLOCK: u32 = {{ s.block }}u; // consecutive weights along k that share a scale and a zero point
const PER_WORD: u32 = 32u / BITS; // weights in a word
{% endmacro %}

{% macro unpack_functions() %}
// The four lowest weights of a word, as integers
fn integers4(word: u32) -> vec4f {
    return vec4f((vec4u(word) >> vec4u(0u, BITS, 2u * BITS, 3u * BITS)) & vec4u((1u << BITS) - 1u));
}

{{ zero_function() }}
{% endmacro %}

{% macro zero_function() %}
fn zero_of(block: u32) -> f32 {
    return f32((zeros[block / 4u] >> (block % 4u * 8u)) & 0xffu);
}
{% endmacro %}
