{#
  The functions that the lines `dbg…(…);` of a template call in a debug shader; all other shaders are rendered without
  these lines.

  A line records a value that an invocation uses for C[row, col] at inner step k: LOADED from storage, SHARED through
  workgroup memory or from another lane, or in ACC the sum up to and including step k; any other tag becomes an extra
  column. Results with a single index have it as row, and col 0. Only values of the watched element are recorded. If one
  value is used for several elements, dbg_row and dbg_col select the watched one among them.
#}

{{ watch_struct }}

struct Debug {
    watch: Watch,
    values: array<array<f32, TAGS>>, // [k][tag]
}

{% for tag in tags %}
const {{ tag }} = {{ loop.index0 }}u;
{% endfor %}
const TAGS = {{ tags | length }}u;

fn dbg(tag: u32, row: u32, col: u32, k: u32, value: f32) {
    let watch = debug.watch;
    if (row == watch.row && col == watch.col && k < watch.steps) {
        debug.values[k][tag] = value;
    }
}

// Four consecutive elements along m, n or k
fn dbg_m(tag: u32, row: u32, col: u32, k: u32, value: vec4f) {
    let i = debug.watch.row - row;
    if (i < 4u) {
        dbg(tag, row + i, col, k, value[i]);
    }
}

fn dbg_n(tag: u32, row: u32, col: u32, k: u32, value: vec4f) {
    let j = debug.watch.col - col;
    if (j < 4u) {
        dbg(tag, row, col + j, k, value[j]);
    }
}

fn dbg_k(tag: u32, row: u32, col: u32, k: u32, value: vec4f) {
    for (var i = 0u; i < 4u; i++) {
        dbg(tag, row, col, k + i, value[i]);
    }
}

// Four values at a distance of `far` along k
fn dbg_far(tag: u32, row: u32, col: u32, k: u32, far: u32, value: vec4f) {
    for (var i = 0u; i < 4u; i++) {
        dbg(tag, row, col, k + i * far, value[i]);
    }
}

// The four bytes of a word, consecutive along k
fn dbg_i8(tag: u32, row: u32, col: u32, k: u32, word: u32) {
    dbg_k(tag, row, col, k, vec4f(bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u)));
}

fn dbg_u8(tag: u32, row: u32, col: u32, k: u32, word: u32) {
    dbg_k(tag, row, col, k, vec4f((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(0xffu)));
}

{% if "SHARED_A" in tags and "SHARED_B" in tags %}
// One inner step of a 4 × 4 fragment with rows c0 to c3
fn dbg_fragment(row: u32, col: u32, k: u32, a: vec4f, b: vec4f, c0: vec4f, c1: vec4f, c2: vec4f, c3: vec4f) {
    let i = debug.watch.row - row;
    let j = debug.watch.col - col;
    if (i < 4u && j < 4u) {
        dbg(SHARED_A, row + i, col + j, k, a[i]);
        dbg(SHARED_B, row + i, col + j, k, b[j]);
        dbg(ACC, row + i, col + j, k, mat4x4f(c0, c1, c2, c3)[i][j]);
    }
}

{% endif %}
// The watched row or column if it is one of the `count` that start at `first`, otherwise one of these
fn dbg_row(first: u32, count: u32) -> u32 {
    return clamp(debug.watch.row, first, first + count - 1u);
}

fn dbg_col(first: u32, count: u32) -> u32 {
    return clamp(debug.watch.col, first, first + count - 1u);
}
