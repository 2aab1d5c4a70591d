{% set wide, short = ("a", "b") if s.wide == "a" else ("b", "a") %}
{% set i_size, j_size = ("m", "n") if s.wide == "a" else ("n", "m") %}
{# Whether neighbouring lanes load consecutive k; the four k of a step of a lane are then LANES apart. #}
{% set interleaved = s.along_k and not s.short_along_k %}
{% set parts = kernel.lanes if s.along_k else kernel.groups %}
{% set many_parts = parts > 32 %}
// gemv: C = A·B for a C of few rows or few columns, which is bound by memory bandwidth, not by arithmetic.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; accumulation in {{ real }}.
//
// The wide operand, {{ wide | upper }}, is the large matrix; the short operand, {{ short | upper }}, has few rows or
// columns. i is the index along the axis of C that comes from the wide operand, up to params.{{ i_size }}; j is the
// index along the other axis, up to params.{{ j_size }}. A workgroup computes TJ values of j.
{% if s.along_k %}
// The wide operand is contiguous along k: LANES invocations (lanes) read consecutive vec4 of it, for TI values of i;
// each of GROUPS groups of them computes other values of i.
{% if interleaved %}
// The short operand is contiguous along j: a vec4 of it holds four j at one k. Neighbouring invocations load
// consecutive k, so that they read consecutive vec4 of it, too. With four consecutive k per invocation, 8 columns took
// 78 µs instead of 32 (4096×8×4096 on an H200).
{% endif %}
{% else %}
// The wide operand is contiguous along i: LANES invocations (lanes) read consecutive vec4 of it, and each of GROUPS
// groups of them computes every GROUPS-th step along k.
{% endif %}
// In a step, each invocation multiplies at four k. It (1) issues the loads of UNROLL steps of both operands, (2)
// multiplies them and adds to its sums, and after the last step (3) writes its sums, each a part of an element of C, to
// workgroup memory. Then (4) the workgroup adds up the parts and stores C.
//
// Changed from split_k: each element of the wide operand is used once, so no tile is kept in workgroup memory.
// On an H200, which copies at 4.27 TB/s: 4.4 TB/s for one vector and a matrix of 16384², in both layouts; 2.8 TB/s at
// 4096², where 64 MiB take 23 µs and the overhead of a dispatch shows; cuBLAS reaches 2.7 there for one column, 3.2 for
// one row.
{% if many_parts %}
// With this many parts of each element, (4) has two passes: a single one would take longer than a loop over a short k.
{% endif %}
{#
  How many loads are in flight decides for one row (H200, µs, cuBLAS in parentheses): B transposed, 1×1536×8192 20.8
  with 32 lanes per row of B, 13.4 with 128 (13.2); 1×896×5120 8.0, and 6.0 with 64 (5.7). Not transposed, 1×768×1024:
  5.5 with 32 groups along k, 4.4 with 128 (3.7).
#}
// The wide operand is read again for every TJ values of j. Workgroup memory: at most TI·TJ·16 bytes per
// invocation.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const WORKGROUP = LANES * GROUPS; // invocations
{% if s.along_k %}
const TILE_I = GROUPS * TI; // values of i per workgroup
const OUTPUTS = GROUPS * TI * TJ; // elements of C per workgroup
const PARTS = LANES; // partial sums of each element
var<workgroup> sums: array<array<{{ real }}, OUTPUTS>, PARTS>; // [part][output]
{% else %}
const TILE_I = LANES * TI * 4u; // values of i per workgroup
const OUTPUTS = LANES * TI * TJ; // four elements of C each
const PARTS = GROUPS; // partial sums of each element
var<workgroup> sums: array<array<{{ vec4r }}, OUTPUTS>, PARTS>; // [part][output]
{% endif %}
{% if many_parts %}
const SHARES = 8u; // partial sums of each element after the first pass of (4)
{% endif %}

{#
  The function `name`, which loads four elements of the operand `x`, along k or along its other axis (here `i` for both
  operands); zero beyond the end of k. Elements loaded from beyond the last i or j only reach sums that are never
  stored, and the engine keeps such loads within the binding.

  The function has no branch, so that all loads are in flight at once: a row times 4097 × 4095 takes 31 µs on an H200,
  37 if each load is guarded.
#}
{% macro load_function(x, name, along_k) %}
{% set is_vec4 = s.vec_a if x == "a" else s.vec_b %}
{% set contiguous_along_k = not s.trans_a if x == "a" else s.trans_b %}
{% set is_interleaved = interleaved and along_k %}
{% set distance = " * LANES" if is_interleaved else "" %}
{% set index = "base + i * params.ld" ~ x ~ " + k" if contiguous_along_k else "base + k * params.ld" ~ x ~ " + i" %}
// {{ x | upper }}: four elements along {{ "k" if along_k else "i" }}, the first at (i, k)
{%- if is_interleaved %}, LANES apart{% endif %}{% if s.edge_k %}, zero beyond the end of k{% endif %}

fn {{ name }}(base: u32, i: u32, k: u32) -> {{ vec4r }} {
{% if is_vec4 %}
    let value = {{ matrix.as_vec4f(x ~ "[(" ~ index ~ ") / 4u]") }};
{% else %}
{% set stride = distance if along_k == contiguous_along_k else distance ~ " * params.ld" ~ x %}
    let value = {{ vec4r }}(
{% for e in range(4) %}
        {{ matrix.element(x, index ~ " + " ~ e ~ "u" ~ stride) }},
{% endfor %}
    );
{% endif %}
{% if not s.edge_k %}
    return value;
{% elif along_k and not is_vec4 %}
    return select({{ vec4r }}(), value, vec4u(k
{%- for e in (1, 2, 3) %}, k + {{ e }}u{{ distance }}{% endfor %}) < vec4u(params.k));
{% else %}
    return select({{ vec4r }}(), value, k < params.k);
{% endif %}
}
{% endmacro %}
{{ load_function(wide, "load_wide4", s.along_k) }}
{{ load_function(short, "load_short4", s.short_along_k) }}
{% set edge_row, edge_col = (s.edge_i, s.edge_j) if wide == "a" else (s.edge_j, s.edge_i) %}
{{ matrix.store_c(row=edge_row, col=edge_col) }}
{# i and j as the row and column of C. #}
{% macro row_and_col(i, j) %}{{ i ~ ", " ~ j if wide == "a" else j ~ ", " ~ i }}{% endmacro %}

{# A position along an axis; if the tile may be partial (`edge`), those beyond the end repeat the last one's loads. #}
{% macro clamped(place, size, edge) -%}
{{ "min(" ~ place ~ ", params." ~ size ~ " - 1u)" if edge else place }}
{%- endmacro %}

{# `part_count` lanes or groups take the steps along k in turn; `part` is this invocation's number among these. #}
{% set part, part_count = ("lane", "LANES") if s.along_k else ("group", "GROUPS") %}

{# The first k of step `u`, one of the UNROLL steps of an iteration; the k of element `e`, one of the four of a step. #}
{% macro k_of_step(u) %}k{% if u %} + {{ 4 * u }}u * {{ part_count }}{% endif %}{% endmacro %}
{% macro k_of(u, e) %}{{ k_of_step(u) }} + {{ e }}u{{ " * LANES" if interleaved }}{% endmacro %}

{# (1) Load step `u` of the wide operand, for each t < TI: w_U_T holds its four k, or w_U_T_E four i at its k E. #}
{% macro load_wide(u) %}
{% for t in range(kernel.ti) %}
{% if s.along_k %}
        let w_{{ u }}_{{ t }} = load_wide4({{ wide }}_base, i_{{ t }}, {{ k_of_step(u) }});
{% else %}
{% for e in range(4) %}
        let w_{{ u }}_{{ t }}_{{ e }} = load_wide4({{ wide }}_base, i_{{ t }}, {{ k_of(u, e) if e else k_of_step(u) }});
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{# (1) Load step `u` of the short operand, if a vec4 holds four j: v_U_E_J, at k E of the step, from j J on. #}
{% macro load_short_across_k(u) %}
{% for e in range(4) %}
{% for j in range(0, kernel.tj, 4) %}
{% set k = k_of(u, e) if e else k_of_step(u) %}
        let v_{{ u }}_{{ e }}_{{ j }} = load_short4({{ short }}_base, j_{{ j }}, {{ k }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# (1) Load step `u` of the short operand for one j, if a vec4 holds four k: v_U_J. #}
{% macro load_short_along_k(u, j) %}
        let v_{{ u }}_{{ j }} = load_short4({{ short }}_base, j_{{ j }}, {{ k_of_step(u) }});
{% endmacro %}

{# Element `e` of a step: of the wide operand an element, or a vec4 along i; of the short operand an element. #}
{% macro wide_value(u, t, e) %}w_{{ u }}_{{ t }}{{ "." ~ "xyzw"[e] if s.along_k else "_" ~ e }}{% endmacro %}
{% macro short_value(u, j, e) -%}
v_{{ u }}_{{ j ~ "." ~ "xyzw"[e] if s.short_along_k else e ~ "_" ~ j // 4 * 4 ~ "." ~ "xyzw"[j % 4] }}
{%- endmacro %}

{# (2) One multiply-add for element `e` of a step, and its debug records: see common/debug.wgsl. #}
{% macro multiply_add(u, t, j, e) %}
{% set w, v = wide_value(u, t, e), short_value(u, j, e) %}
        acc_{{ t }}_{{ j }} = fma({{ w }}, {{ v if s.along_k else vec4r ~ "(" ~ v ~ ")" }}, acc_{{ t }}_{{ j }});
{% set dbg = "dbg" if s.along_k else "dbg_m" if wide == "a" else "dbg_n" %}
{% set i, j_in_c = "i_" ~ t, "j0 + " ~ j ~ "u" %}
{% set i_watched = i if s.along_k else ("dbg_row(" if wide == "a" else "dbg_col(") ~ i ~ ", 4u)" %}
{% set place, k = row_and_col(i, j_in_c), k_of(u, e) %}
        {{ dbg }}(LOADED_{{ wide | upper }}, {{ place }}, {{ k }}, {{ w }});
        dbg(LOADED_{{ short | upper }}, {{ row_and_col(i_watched, j_in_c) }}, {{ k }}, {{ v }});
        {{ dbg }}(ACC, {{ place }}, {{ k }}, acc_{{ t }}_{{ j }});
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
    let tile = workgroup.x + workgroup.y * grid.x;
    let tiles_i = (params.{{ i_size }} + TILE_I - 1u) / TILE_I;
    let i0 = tile % tiles_i * TILE_I;
    let j0 = tile / tiles_i * TJ;
    if (j0 >= params.{{ j_size }}) {
        return;
    }
    let lane = local_index % LANES; // position along the contiguous axis of the wide operand
    let group = local_index / LANES;
{{ matrix.bases() }}
{% for j in range(0, kernel.tj, 1 if s.short_along_k else 4) %}
    let j_{{ j }} = {{ clamped("j0 + " ~ j ~ "u", j_size, s.edge_j and s.short_along_k) }};
{% endfor %}
{% for t in range(kernel.ti) %}
{% if s.along_k %}
    let i_{{ t }} = {{ clamped("i0 + group * TI + " ~ t ~ "u", i_size, s.edge_i) }};
{% else %}
    let i_{{ t }} = i0 + ({{ t }}u * LANES + lane) * 4u;
{% endif %}
{% for j in range(kernel.tj) %}
    var acc_{{ t }}_{{ j }} = {{ (real if s.along_k else vec4r) ~ "()" }};
{% endfor %}
{% endfor %}
    //# inner
    for (var k = {{ part }}{{ " * 4u" if not interleaved }}; k < params.k; k += {{ part_count }} * UNROLL * 4u) {
{% for u in range(kernel.unroll) %}
{{ load_wide(u) }}
{%- endfor %}
{% for u in range(kernel.unroll) %}
{{ load_short_across_k(u) if not s.short_along_k }}
{%- for j in range(kernel.tj) %}
{{ load_short_along_k(u, j) if s.short_along_k }}
{%- for t in range(kernel.ti) %}
{% for e in range(4) %}
{{ multiply_add(u, t, j, e) }}
{%- endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
    }
    //# end
    //# sums
    // (3) The sums of this invocation → workgroup memory
{% for t in range(kernel.ti) %}
{% for j in range(kernel.tj) %}
{% if s.along_k %}
    sums[lane][(group * TI + {{ t }}u) * TJ + {{ j }}u] = acc_{{ t }}_{{ j }};
{% else %}
    sums[group][({{ t }}u * TJ + {{ j }}u) * LANES + lane] = acc_{{ t }}_{{ j }};
{% endif %}
{% endfor %}
{% endfor %}
    workgroupBarrier(); // all sums are complete before they are added
{% if many_parts %}
    for (var index = local_index; index < OUTPUTS * SHARES; index += WORKGROUP) {
        let o = index % OUTPUTS;
        let share = index / OUTPUTS;
        var sum = sums[share][o];
        for (var part = share + SHARES; part < PARTS; part += SHARES) {
            sum += sums[part][o];
        }
        sums[share][o] = sum;
    }
    workgroupBarrier(); // the sums of the first pass are complete before they are added
{% endif %}
    // (4) The sums of all parts → C
    for (var o = local_index; o < OUTPUTS; o += WORKGROUP) {
        var sum = sums[0][o];
        for (var part = 1u; part < {{ "SHARES" if many_parts else "PARTS" }}; part++) {
            sum += sums[part][o];
        }
{% if s.along_k %}
        let i = i0 + o / TJ;
        let j = j0 + o % TJ;
        store_c(c_base, {{ row_and_col("i", "j") }}, sum);
{% else %}
        let i = i0 + (o / (TJ * LANES) * LANES + o % LANES) * 4u;
        let j = j0 + o / LANES % TJ;
{% for e in range(4) %}
        store_c(c_base, {{ row_and_col("i + " ~ e ~ "u", "j") }}, sum.{{ "xyzw"[e] }});
{% endfor %}
{% endif %}
    }
    //# end
}
