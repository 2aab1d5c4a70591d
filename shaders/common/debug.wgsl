{#
  What the lines `dbg…(…);` of a template call in a debug shader; every other shader is rendered without those lines.

  They tell what an invocation holds for C[row, col] at inner step k: LOADED from storage, SHARED by its workgroup's
  tiles or its subgroup's lanes, or summed up to and including k in ACC; a tag of any other name is a column of its own.
  Results that have one number have it as row, and col 0. Only what concerns the watched element is recorded. Where one
  value serves several elements, dbg_row and dbg_col say for which.
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

// Four neighbours along m, n or k.
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

// Four values along k that are `far` apart
fn dbg_far(tag: u32, row: u32, col: u32, k: u32, far: u32, value: vec4f) {
    for (var i = 0u; i < 4u; i++) {
        dbg(tag, row, col, k + i * far, value[i]);
    }
}

// Four bytes of a word, which are neighbours along k
fn dbg_i8(tag: u32, row: u32, col: u32, k: u32, word: u32) {
    dbg_k(tag, row, col, k, vec4f(bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u)));
}

fn dbg_u8(tag: u32, row: u32, col: u32, k: u32, word: u32) {
    dbg_k(tag, row, col, k, vec4f((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(0xffu)));
}

{% if "SHARED_A" in tags and "SHARED_B" in tags %}
// One inner step of a 4 × 4 fragment, whose rows are c0 to c3.
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
// The watched row or column if it is one of `count` from `first` on, else another.
fn dbg_row(first: u32, count: u32) -> u32 {
    return clamp(debug.watch.row, first, first + count - 1u);
}

fn dbg_col(first: u32, count: u32) -> u32 {
    return clamp(debug.watch.col, first, first + count - 1u);
}
