{#
  Quantised weights, stored by columns of B, PER_WORD neighbours along k to a word, each column padded to whole blocks:
  what a word or four weights stand for, `i` being the place of the first among all weights.
#}
{% macro constants() %}
const BITS: u32 = {{ s.bits }}u; // of a weight
const BLOCK: u32 = {{ s.block }}u; // neighbours along k that share a scale and a zero point
const PER_WORD: u32 = 32u / BITS; // weights in a word
{% endmacro %}

{% macro four() %}
// Weights i to i+3, which lie in one word
fn weights4(i: u32) -> vec4f {
    let word = b[i / PER_WORD] >> (i % PER_WORD * BITS);
    let q = (vec4u(word) >> vec4u(0u, BITS, 2u * BITS, 3u * BITS)) & vec4u((1u << BITS) - 1u);
    let block = i / BLOCK;
    let zero = (zeros[block / 4u] >> (block % 4u * 8u)) & 0xffu;
    return scales[block] * (vec4f(q) - f32(zero));
}
{% endmacro %}
