{#
  Functions of gemm/matrix_unit_high: elements split into high and low parts in float16, and sums of their products
  that are multiplied by the scales of their lines, or marked as in doubt. `float`, `bits` and `integer` are the types
  of the elements of C that are stored at once, `bias` and `mantissa_bits` constants of these types.
#}
{% import "common/matrix.wgsl" as matrix with context %}
struct Eight { // consecutive elements of storage
    first: vec4f,
    last: vec4f,
}

{% for x, vec in (("a", s.vec_a), ("b", s.vec_b)) %}
// Eight elements of {{ x | upper }}, contiguous in storage, from `index` on
fn load_{{ x }}8(index: u32) -> Eight {
{% if vec %}
    let at = index / 4u;
    return Eight({{ x }}[at], {{ x }}[at + 1u]);
{% else %}
    return Eight(
{% for first in (0, 4) %}
        vec4f({% for j in range(first, first + 4) %}{{ x }}[index + {{ j }}u]{{ ", " if not loop.last }}{% endfor %}),
{% endfor %}
    );
{% endif %}
}

{% endfor %}
fn scaled(x: Eight, scale: Eight) -> Eight {
    return Eight(x.first * scale.first, x.last * scale.last);
}

{% if s.edge_k %}
// `x` with zeros beyond the end of k; `first` and `last` are the k of its elements
fn before_end(x: Eight, first: vec4u, last: vec4u) -> Eight {
    return Eight(
        select(vec4f(), x.first, first < vec4u(params.k)),
        select(vec4f(), x.last, last < vec4u(params.k)),
    );
}

{% endif %}
//# split
// Rounded to the eleven bits of a float16's significand: to the nearest, or away from zero. This uses integers, since a
// driver may optimise away packing and unpacking.
fn nearest(x: vec4f) -> vec4f {
    return bitcast<vec4f>((bitcast<vec4u>(x) + vec4u(0x1000u)) & vec4u(0xffffe000u));
}

fn away_from_zero(x: vec4f) -> vec4f {
    return bitcast<vec4f>((bitcast<vec4u>(x) + vec4u(0x1fffu)) & vec4u(0xffffe000u));
}
//# end

fn packed(x: Eight) -> vec4<u32> {
    return vec4<u32>(
        pack2x16float(x.first.xy), pack2x16float(x.first.zw), pack2x16float(x.last.xy), pack2x16float(x.last.zw),
    );
}

fn power_of_two(exponent: {{ integer }}) -> {{ float }} {
    return bitcast<{{ float }}>((exponent + {{ bias }}) << {{ mantissa_bits }});
}

{{ matrix.store_c4() if s.vec_c else matrix.store_c() }}
// C[row, col{{ "..col+3" if s.vec_c }}] ← `value` without its scales, or if it is in doubt, sets its bit in `doubts`
fn finish(base: u32, batch: u32, row: u32, col: u32, value: {{ float }}) {
{% set outside = matrix.guards([(s.edge_m, "row", "m"), (s.edge_n, "col", "n")]) %}
{% if outside %}
    if ({{ outside }}) {
        return;
    }
{% endif %}
    let first = batch * (params.m + params.n);
    let line = lines[first + row];
{% if s.vec_c %}
{% for j in range(4) %}
    let column{{ j }} = lines[first + params.m + col + {{ j }}u];
{% endfor %}
    let scale = vec4f(column0.x, column1.x, column2.x, column3.x);
    let least = line.y + vec4f(column0.y, column1.y, column2.y, column3.y);
    if (any((abs(value) < least) | (least > vec4f(1e38)))) {
{% else %}
    let column = lines[first + params.m + col];
    let scale = column.x;
    let least = line.y + column.y;
    if (abs(value) < least || least > 1e38) {
{% endif %}
{% set word %}doubts[(batch * params.m + row) * ((params.n + 31u) / 32u) + col / 32u]{% endset %}
        atomicOr(&{{ word }}, {{ "15u" if s.vec_c else "1u" }} << (col % 32u));
        return;
    }
    // Two factors undo the scales of row and column, since a single 2ᵉ may exceed float32's range.
{% set row_exponent %}{{ integer }}(254 - i32(bitcast<u32>(line.x) >> 23u)){% endset %}
    let e = {{ row_exponent }} - {{ integer }}(bitcast<{{ bits }}>(scale) >> {{ mantissa_bits }});
    store_c{{ "4" if s.vec_c }}(base, row, col, value * power_of_two(e / 2) * power_of_two(e - e / 2));
}
