{#
  32-bit sums of products of 8-bit integers → elements of C: bias, requantisation or dequantisation, and the store.
  webmm/quantization.py defines the result; here it is computed without 64-bit integers.
#}

{#
  The per-column values of four consecutive columns, loaded once by an invocation that stores several rows. With `sums`,
  they include the sums of B's columns, which zero points of A need.
#}
{% set terms = (["x"] if s.zero_b == "each" else []) + (["y"] if s.scaled_columns else [])
    + (["z"] if s.scaled_columns and s.requantised else []) + (["w"] if s.bias else []) %}
{% macro column_terms(sums) %}
struct Columns {
    first: u32,
{% for term in terms %}
    {{ term }}: vec4i, // of each column's terms
{% endfor %}
{% if sums and s.zero_a %}
    sum: vec4i, // of each column's bytes in B
{% endif %}
}

fn columns_from(col: u32{{ ", tile_col: u32" if sums and s.zero_a }}) -> Columns {
{% if terms %}
{% for j in range(4) %}
{% set place %}col{% if j %} + {{ j }}u{% endif %}{% endset %}
    let terms{{ j }} = column_terms[{{ place if s.vec_c or not j else "min(" ~ place ~ ", params.n - 1u)" }}];
{% endfor %}
{% endif %}
    return Columns(
        col,
{% for term in terms %}
        vec4i(terms0.{{ term }}, terms1.{{ term }}, terms2.{{ term }}, terms3.{{ term }}),
{% endfor %}
{% if sums and s.zero_a %}
        vec4i(
{% for j in range(4) %}
            atomicLoad(&b_sums[tile_col{{ " + " ~ j ~ "u" if j }}]),
{% endfor %}
        ),
{% endif %}
    );
}
{% endmacro %}

{# The zero points; `flip` if u8 elements are converted to i8 by subtracting 128. #}
{% macro zero_of_a(flip=false) -%}
{{ "row_terms[row].x" if s.zero_a == "each" else "params.zero_a" }}{{ " - 128" if flip }}
{%- endmacro %}

{% macro zeros_of_b(flip=false) -%}
{{ "columns.x" if s.zero_b == "each" else "vec4i(params.zero_b)" }}{{ " - 128" if flip }}
{%- endmacro %}

{# Return if (row, col) is outside C. #}
{% macro return_outside(col) %}
{% set outside = (["row >= params.m"] if s.edge_m else []) + ([col ~ " >= params.n"] if s.edge_n else []) %}
{% if outside %}
    if ({{ outside | join(" || ") }}) {
        return;
    }
{% endif %}
{% endmacro %}

{% macro store_c4() %}
{% if s.requantised %}
{{ fixed_point() }}
{% endif %}
{% if s.requantised and not s.vec_c %}
// C[row, col] ← value, by atomics, since other invocations may write to the same word
fn store_byte(row: u32, col: u32, value: i32) {
    let i = row * params.n + col;
    let shift = i % 4u * 8u;
    atomicAnd(&c[i / 4u], ~(0xffu << shift));
    atomicOr(&c[i / 4u], (u32(value) & 0xffu) << shift);
}

{% endif %}
{% set how = {"int32": "plus the bias", "float32": "dequantised"}.get(s.out_dtype.name, "requantised") %}
// C[row, col..col+3] ← sums, {{ how }}
fn store_c4(row: u32, columns: Columns, sums: vec4i) {
    let col = columns.first;
{% if s.bias %}
    let total = sums + columns.w;
{% else %}
    let total = sums;
{% endif %}
{% if s.requantised %}
{{ requantise() }}
{% if s.vec_c %}
    let bytes = bitcast<vec4u>(value) & vec4u(0xffu);
    c[(row * params.n + col) / 4u] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
{% endif %}
{% elif s.out_dtype.name == "float32" %}
{{ dequantise() }}
{% else %}
    let value = total;
{% endif %}
{% if s.vec_c and not s.requantised %}
    c[(row * params.n + col) / 4u] = value;
{% elif not s.vec_c %}
{% for j in range(4) %}
{% if s.requantised %}
{% set store %}store_byte(row, col + {{ j }}u, value[{{ j }}]);{% endset %}
{% else %}
{% set store %}c[row * params.n + col + {{ j }}u] = value[{{ j }}];{% endset %}
{% endif %}
{% if j %}
    if (col + {{ j }}u < params.n) {
        {{ store }}
    }
{% else %}
    {{ store }}
{% endif %}
{% endfor %}
{% endif %}
}
{% endmacro %}

{#
  The same for sums of products of bytes without zero points, which are applied with `a_sums` and `b_sums`. If k is
  `divided`, the sums of `part` are stored as they are, and the first part has the whole term of both zero points.
#}
{% macro store_tile4(divided=false) %}
{{ column_terms(sums=true) }}
{% if not divided %}
{{ store_c4() }}
{% endif %}
// {{ "The partial sums of C" if divided else "C" }}[row0 + row, columns] ← dots
fn store_tile4({{ "part: u32, " if divided }}row0: u32, tile_row: u32, columns: Columns, dots: vec4i) {
    let row = row0 + tile_row;
{{ return_outside("columns.first") }}
    var sums = dots;
{% if s.zero_a %}
    let zero_a = {{ zero_of_a(s.flip_a) }};
    sums -= zero_a * columns.sum;
{% endif %}
{% if s.zero_b %}
{% set k = "select(0, i32(params.k), part == 0u)" if divided else "i32(params.k)" %}
    let zero_b = {{ zeros_of_b(s.flip_b) }};
    sums -= zero_b * (atomicLoad(&a_sums[tile_row]){{ " - " ~ k ~ " * zero_a" if s.zero_a }});
{% endif %}
{% if divided %}
    partial[(part * params.m + row) * ((params.n + 3u) / 4u) + columns.first / 4u] = sums;
{% else %}
    store_c4(row, columns, sums);
{% endif %}
}
{% endmacro %}

{# The per-column values of the four columns from `col` of the tile on. #}
{% macro columns_of_tile(col) -%}
columns_from(col0 + {{ col }}{{ ", " ~ col if s.zero_a }})
{%- endmacro %}

{% macro dequantise() %}
{% set row = "bitcast<f32>(row_terms[row].y)" %}
{% set column = "bitcast<vec4f>(columns.y)" %}
{% if s.scaled_rows and s.scaled_columns %}
    let value = vec4f(total) * ({{ row }} * {{ column }});
{% elif s.scaled_rows %}
    let value = vec4f(total) * {{ row }};
{% elif s.scaled_columns %}
    let value = vec4f(total) * {{ column }};
{% else %}
    let value = vec4f(total) * bitcast<f32>(params.multiplier.x);
{% endif %}
{% endmacro %}

{% macro requantise() %}
{% if s.scaled_rows and s.scaled_columns %}
    let multiplier = fixed_product(row_terms[row].yz, columns.y, columns.z);
{% elif s.scaled_rows %}
    let multiplier = Fixed(vec4u(u32(row_terms[row].y)), vec4i(row_terms[row].z));
{% elif s.scaled_columns %}
    let multiplier = Fixed(bitcast<vec4u>(columns.y), columns.z);
{% else %}
    let multiplier = Fixed(vec4u(u32(params.multiplier.x)), vec4i(params.multiplier.y));
{% endif %}
    // Saturate before adding zero_c, so that nothing overflows.
    let bottom = vec4i({{ s.limits[0] }} - params.zero_c);
    let top = vec4i({{ s.limits[1] }} - params.zero_c);
    // The error of floats is below 2^-13 here: 3·2^-23 of at most 257 from conversions and products, and 2^-16 from the
    // sum. Results that are that close to a rounding boundary are computed again, exactly.
    let factor = vec4f(multiplier.mantissa) * bitcast<vec4f>((127 - multiplier.shift) << vec4u(23u));
    let near = clamp(vec4f(total) * factor + 0.5, vec4f(bottom) - 0.5, vec4f(top) + 1.5);
    let whole = floor(near);
    var rounded = vec4i(whole);
    if (any(abs(near - whole - 0.5) > vec4f(0.5 - 0x1p-12))) {
        rounded = scaled(total, multiplier);
    }
    let value = clamp(rounded, bottom, top) + params.zero_c;
{% endmacro %}

{% macro fixed_point() %}
// Numbers mantissa·2^-shift
struct Fixed {
    mantissa: vec4u, // of 31 bits
    shift: vec4i, // from 1 to 62
}

// Integers of 64 bits
struct Wide {
    high: vec4u,
    low: vec4u,
}

fn product(x: vec4u, y: vec4u) -> Wide {
    let x0 = x & vec4u(0xffffu);
    let x1 = x >> vec4u(16u);
    let y0 = y & vec4u(0xffffu);
    let y1 = y >> vec4u(16u);
    let middle = x1 * y0 + ((x0 * y0) >> vec4u(16u)); // no sum here exceeds 32 bits
    let other = x0 * y1 + (middle & vec4u(0xffffu));
    return Wide(x1 * y1 + (middle >> vec4u(16u)) + (other >> vec4u(16u)), x * y);
}

// floor(x·y + 1/2), saturated to 32 bits
fn scaled(x: vec4i, y: Fixed) -> vec4i {
    let wide = product(bitcast<vec4u>(x), y.mantissa);
    // A negative x, taken as unsigned, is 2³² too large.
    var high = wide.high - select(vec4u(), y.mantissa, x < vec4i());
    let places = bitcast<vec4u>(y.shift);
    let beyond = places > vec4u(32u); // half of the last place is in the high word
    let half = vec4u(1u) << ((places - 1u) & vec4u(31u));
    let low = wide.low + select(half, vec4u(), beyond);
    high += select(select(vec4u(), vec4u(1u), low < wide.low), half, beyond);
    let top = bitcast<vec4i>(high);
    // Shifts are modulo 32: `far` is for 32 places or more, which leave only bits of the high word.
    let far = top >> ((places - 32u) & vec4u(31u));
    let near = bitcast<vec4i>((high << ((32u - places) & vec4u(31u))) | (low >> (places & vec4u(31u))));
    let sign = top >> vec4u(31u);
    let fits = (top >> ((places - 1u) & vec4u(31u))) == sign;
    return select(select(sign ^ vec4i(0x7fffffff), near, fits), far, places >= vec4u(32u));
}
{% if s.scaled_rows and s.scaled_columns %}

// The multipliers of four elements: the row's mantissa and shift times the columns', rounded to 31 bits, halves up.
fn fixed_product(row: vec2i, mantissas: vec4i, shifts: vec4i) -> Fixed {
    let wide = product(vec4u(u32(row.x)), bitcast<vec4u>(mantissas));
    let large = wide.high >= vec4u(0x20000000u); // 62 bits, else 61
    let low = wide.low + select(vec4u(0x20000000u), vec4u(0x40000000u), large);
    let high = wide.high + select(vec4u(), vec4u(1u), low < wide.low);
    let rounded = select((high << vec4u(2u)) | (low >> vec4u(30u)), (high << vec4u(1u)) | (low >> vec4u(31u)), large);
    // A mantissa rounded up to 2^31 is as good as 2^30 with a shift less by one.
    let shift = row.y + shifts - select(vec4i(30), vec4i(31), large);
    // A multiplier below 2^-32 makes any sum 0; one above 2^30 makes any but 0 overflow, as 2^29 does.
    return Fixed(select(rounded, vec4u(), shift > vec4i(62)), clamp(shift, vec4i(1), vec4i(62)));
}
{% endif %}
{% endmacro %}

{# The functions dot4 and dots, of words of four bytes. #}
{% macro dot_functions() %}
{% if kernel.dot == "builtin" %}
// Needs the language feature packed_4x8_integer_dot_product; dot=emulated does not.
fn dot4(x: u32, y: u32) -> i32 {
    return {{ "dot4I8Packed(x, y)" if s.signed else "i32(dot4U8Packed(x, y))" }};
}
{% else %}
fn bytes(x: u32) -> vec4i {
{% if s.signed %}
    return bitcast<vec4i>(vec4u(x) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
{% else %}
    return bitcast<vec4i>((vec4u(x) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(0xffu));
{% endif %}
}

fn dot4(x: u32, y: u32) -> i32 {
    return dot(bytes(x), bytes(y));
}
{% endif %}

fn dots(x: u32, y: vec4u) -> vec4i {
    return vec4i(dot4(x, y.x), dot4(x, y.y), dot4(x, y.z), dot4(x, y.w));
}
{% endmacro %}
