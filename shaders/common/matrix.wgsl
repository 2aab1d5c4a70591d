{#
  Access to A, B and C. Each load or store macro writes one WGSL function; a guarded function reads zero outside the
  matrix, and writes nothing there. `base` is the index of the first element of this batch entry's matrix.
  With `select_k`, a load beyond k selects zero rather than branch.
#}
{% import "common/stored.wgsl" as stored with context %}

{% macro bases(batch="workgroup.z", c=true) %}
    let a_base = params.a_offset + {{ batch }} * params.a_batch_stride;
    let b_base = params.b_offset + {{ batch }} * params.b_batch_stride;
{% if c %}
    let c_base = params.c_offset + {{ batch }} * params.c_batch_stride;
{% endif %}
{% endmacro %}

{# Element `index` of the operand x → f32. #}
{% macro element(x, index) -%}
{{ stored.load(s.dtype, x, index) }}
{%- endmacro %}

{# Four consecutive elements → vec4f; `element` is an element of a binding by vec4. #}
{% macro as_vec4f(element) -%}
{{ stored.load4(s.dtype, element) }}
{%- endmacro %}

{# The condition that a position is outside a matrix; `pairs` are (is it guarded?, position, size). #}
{% macro guards(pairs) -%}
{%- set conditions = [] -%}
{%- for guarded, position, size in pairs if guarded -%}
{%- set _ = conditions.append(position ~ " >= params." ~ size) -%}
{%- endfor -%}
{{ conditions | join(" || ") }}
{%- endmacro %}

{# `value`, or `zero` beyond k if `select_k`. #}
{% macro below_k(value, zero, select_k) -%}
{{ "select(" ~ value ~ ", " ~ zero ~ ", k >= params.k)" if select_k else value }}
{%- endmacro %}

{% macro load_a(row=false, k=false, select_k=false) %}
{% set outside = guards([(row, "row", "m"), (k, "k", "k")]) %}
// A[row, k]{% if outside %}, zero outside the matrix{% elif select_k %}, zero beyond k{% endif %}

fn load_a(base: u32, row: u32, k: u32) -> {{ real }} {
{% if outside %}
    if ({{ outside }}) {
        return 0.0;
    }
{% endif %}
{% set index = "base + k * params.lda + row" if s.trans_a else "base + row * params.lda + k" %}
    return {{ below_k(element("a", index), "0.0", select_k) }};
}
{% endmacro %}

{% macro load_b(k=false, col=false, select_k=false) %}
{% set outside = guards([(k, "k", "k"), (col, "col", "n")]) %}
// B[k, col]{% if outside %}, zero outside the matrix{% elif select_k %}, zero beyond k{% endif %}

fn load_b(base: u32, k: u32, col: u32) -> {{ real }} {
{% if outside %}
    if ({{ outside }}) {
        return 0.0;
    }
{% endif %}
{% set index = "base + col * params.ldb + k" if s.trans_b else "base + k * params.ldb + col" %}
    return {{ below_k(element("b", index), "0.0", select_k) }};
}
{% endmacro %}

{#
  result = activation(alpha·value + bias) + beta·C, with the terms that the problem has. `width` is 4 for a vec4 of
  consecutive columns, 1 for a single element; `old` is the element of C before.
#}
{% macro epilogue(width, old) %}
{% if s.terms or s.bias or s.activation %}
    var result = value;
{% if "alpha" in s.terms %}
    result *= params.alpha;
{% endif %}
{% if s.bias == "matrix" %}
    let at = params.bias_offset + row * params.n + col;
{% if width == 4 %}
    result += {{ vec4r }}(bias[at], bias[at + 1u], bias[at + 2u], bias[at + 3u]);
{% else %}
    result += bias[at];
{% endif %}
{% elif s.bias == "row" %}
    result += {{ element("bias", "params.bias_offset + row") }};
{% elif s.bias == "column" and width == 4 %}
    result += {{ vec4r }}(
{% for j in range(4) %}
        {{ element("bias", "params.bias_offset + col + " ~ j ~ "u") }},
{% endfor %}
    );
{% elif s.bias == "column" %}
    result += {{ element("bias", "params.bias_offset + col") }};
{% endif %}
{% for type in s.operands %}
{{ operand("y" ~ loop.index0, type, width) }}
{% endfor %}
{% if s.inlined %}
{% include "epilogues/" ~ s.activation ~ "/" ~ width ~ ".wgsl" %}

{% elif s.activation %}
    result = {{ "activate(result)" if width == 4 else "activate(" ~ vec4r ~ "(result)).x" }};
{% endif %}
{% if "beta" in s.terms %}
    result += params.beta * {{ old }};
{% endif %}
{% else %}
    let result = value;
{% endif %}
{% endmacro %}

{#
  Elements of an operand of the function, as a vec4: those of consecutive columns, or a single one. On an H100 under
  Dawn, x * y took 3 % of a product of float16 at 4096³, of which 2.4 % are y's bytes, and 4 % with single loads.
#}
{% macro operand(y, type, width) %}
{% set matrix = " + (base - params.c_offset) / params.c_batch_stride * params." ~ y ~ ".y" if s.batched else "" %}
{% set along = "" if s.vec_y else " * params." ~ y ~ ".w" %}
    let {{ y }}_at = params.{{ y }}.x{{ matrix }} + row * params.{{ y }}.z + col{{ along }};
{% if s.vec_y %}
    let {{ y }}_four = {{ y }}[{{ y }}_at / 4u];
    let {{ y }}_reg = {{ stored.each4(type, y ~ "_four") }};
{% else %}
    let {{ y }}_reg = vec4(
{% for j in range(width) %}
        {{ stored.load(type, y, y ~ "_at" ~ (" + " ~ j ~ "u * params." ~ y ~ ".w" if j else "")) }},
{% endfor %}
    );
{% endif %}
{% endmacro %}

{# The function activate(), if the problem has an activation. #}
{% macro activation() %}
{% if s.activation and s.dtype.itemsize == 8 %}
{% import "common/double_activations.wgsl" as doubles with context %}
{{ doubles.activation() }}
{% elif s.activation %}
{% include "epilogues/" ~ s.activation ~ ".wgsl" %}

{% endif %}
{% endmacro %}

{% macro store_c(row=false, col=false) %}
{{ activation() }}
{{ store_element(row, col) }}
{% endmacro %}

{% macro store_element(row=false, col=false) %}
{% set outside = guards([(row, "row", "m"), (col, "col", "n")]) %}
{% set place = "base + row * params.ldc + col" %}
// C[row, col] ← value{% if outside %}, nothing outside the matrix{% endif %}

fn store_c(base: u32, row: u32, col: u32, value: {{ real }}) {
{% if outside %}
    if ({{ outside }}) {
        return;
    }
{% endif %}
{{ epilogue(1, stored.load_shared(s.out_dtype, "c", place)) }}
{% if s.out_dtype.packed %}
    // Other invocations write to the same word.
    let place = {{ place }};
    let shift = {{ stored.shift(s.out_dtype) }};
    {{ stored.put(s.out_dtype, "c", "result", "shift") }}
{% else %}
    {{ stored.store(s.out_dtype, "c", place, "result") }}
{% endif %}
}
{% endmacro %}

{% macro load_a4(row=false, k=false, select_k=false) %}
{% set outside = guards([(row, "row", "m"), (k, "k", "k")]) %}
{% set along_m = kernel.a_vector_axis == "m" %}
{% set elements = "A[row..row+3, k]" if along_m else "A[row, k..k+3]" %}
{% if s.vec_a %}
// {{ elements }}{% if outside %}, zero outside the matrix{% elif select_k %}, zero beyond k{% endif %}

fn load_a4(base: u32, row: u32, k: u32) -> {{ vec4r }} {
{% if outside %}
    if ({{ outside }}) {
        return {{ vec4r }}();
    }
{% endif %}
{% set index = "base + k * params.lda + row" if along_m else "base + row * params.lda + k" %}
    return {{ below_k(as_vec4f("a[(" ~ index ~ ") / 4u]"), vec4r ~ "()", select_k) }};
}
{% else %}
{{ load_a(row, k, select_k) }}
// {{ elements }}, loaded one by one: not contiguous in storage, or not aligned
fn load_a4(base: u32, row: u32, k: u32) -> {{ vec4r }} {
    return {{ vec4r }}(
{% for i in range(4) %}
        load_a(base, {{ "row + " ~ i ~ "u, k" if along_m else "row, k + " ~ i ~ "u" }}),
{% endfor %}
    );
}
{% endif %}
{% endmacro %}

{% macro load_b4(k=false, col=false, select_k=false) %}
{% set outside = guards([(k, "k", "k"), (col, "col", "n")]) %}
{% if s.vec_b %}
// B[k, col..col+3]{% if outside %}, zero outside the matrix{% elif select_k %}, zero beyond k{% endif %}

fn load_b4(base: u32, k: u32, col: u32) -> {{ vec4r }} {
{% if outside %}
    if ({{ outside }}) {
        return {{ vec4r }}();
    }
{% endif %}
    return {{ below_k(as_vec4f("b[(base + k * params.ldb + col) / 4u]"), vec4r ~ "()", select_k) }};
}
{% else %}
{{ load_b(k, col, select_k) }}
// B[k, col..col+3], loaded one by one: not contiguous in storage, or not aligned
fn load_b4(base: u32, k: u32, col: u32) -> {{ vec4r }} {
    return {{ vec4r }}(
{% for i in range(4) %}
        load_b(base, k, col + {{ i }}u),
{% endfor %}
    );
}
{% endif %}
{% endmacro %}

{% macro store_c4(row=false, col=false) %}
{% set outside = guards([(row, "row", "m"), (col, "col", "n")]) %}
{% set element = "c[(base + row * params.ldc + col) / 4u]" %}
{{ activation() }}
{% if s.vec_c %}
// C[row, col..col+3] ← value{% if outside %}, nothing outside the matrix{% endif %}

fn store_c4(base: u32, row: u32, col: u32, value: {{ vec4r }}) {
{% if outside %}
    if ({{ outside }}) {
        return;
    }
{% endif %}
{{ epilogue(4, stored.load4(s.out_dtype, element)) }}
    {{ element }} = {{ stored.store4(s.out_dtype, "result") }};
}
{% else %}
{{ store_element(row, col) }}
// C[row, col..col+3] ← value, stored one by one: C's row length is not a multiple of 4
fn store_c4(base: u32, row: u32, col: u32, value: {{ vec4r }}) {
    store_c(base, row, col, value.x);
    store_c(base, row, col + 1u, value.y);
    store_c(base, row, col + 2u, value.z);
    store_c(base, row, col + 3u, value.w);
}
{% endif %}
{% endmacro %}

{#
  for (k = 0; k < K; k++). If that takes more iterations than lavapipe allows, each iteration does 16 steps: Mesa
  releases up to 22.3 silently leave a loop once the loops of an invocation, nested or not, have run 65,535 times in
  total.
#}
{% macro k_loop() %}
{% if s.long_k %}
    for (var k0 = 0u; k0 < params.k; k0 += 16u) { // by 16, since some drivers leave a loop after 65,535 iterations
{% for i in range(16) %}
        if (k0 + {{ i }}u < params.k) {
        let k = k0 + {{ i }}u;
{{ caller() }}
        }
{% endfor %}
    }
{% else %}
    for (var k = 0u; k < params.k; k++) {
{{ caller() }}
    }
{% endif %}
{% endmacro %}

{# The origin of this workgroup's bm × bn tile of C; surplus workgroups of a folded grid return. #}
{% macro tile_origin(bm, bn) %}
    let tile = workgroup.x + workgroup.y * grid.x;
    let tiles_n = (params.n + {{ bn }} - 1u) / {{ bn }};
    let row0 = tile / tiles_n * {{ bm }};
    let col0 = tile % tiles_n * {{ bn }};
    if (row0 >= params.m) {
        return;
    }
{% endmacro %}
