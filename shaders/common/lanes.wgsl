{#
  The macros of the stages for CPU adapters. A workgroup is one subgroup of LANES invocations, which CPU drivers run as
  the elements of vector registers. It computes a tile of TM rows and LANES × TN columns of C, each lane every LANES-th
  vec4 of a row:

        lane = 0 1 2 … 0 1 2 …
        row0   ■ □ □   ■ □ □       columns (lane + j*LANES)*4 .. +3,  j < TN/4
             + TM rows

  Each iteration multiplies four inner elements. Every lane loads four elements of one row of A, or of every LANES-th
  row, and subgroupBroadcast sends them to the other lanes: a shuffle of registers instead of a load per lane. The outer
  loop is over rows, so that each accumulator takes four consecutive FMAs: a CPU has 16 or 32 vector registers, and the
  other accumulators are in its first-level cache.

  Edges: elements beyond the last row or column are loaded without a check, since they only reach sums that are not
  stored; beyond the end of k, loads select zero. With a branch per load, SwiftShader takes more than four minutes to
  compile tiles of 8 × 32; without, two seconds for 16 × 64.
#}
{% import "common/matrix.wgsl" as matrix with context %}

{# Variables for the sums of a lane. #}
{% macro declare_sums() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = {{ vec4r }}();
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  sums += A[row0.., k..k+3] · B[k..k+3, col..]. The macro `load_a` writes a load of A[row, k..k+3], `load_b` one of
  B[k + kk, the j-th four columns].
#}
{% macro multiply_step(load_a, load_b) %}
{% for i in range(kernel.a_loads) %}
        let a_reg{{ i }} = {{ load_a("row + " ~ (i * kernel.lanes) ~ "u" if i else "row") }};
        dbg_k(LOADED_A, row + {{ i * kernel.lanes }}u, dbg_col(col0, LANES * TN), k, a_reg{{ i }});
{% endfor %}
{% for kk in range(4) %}
{% for j in range(kernel.tn // 4) %}
        let b_reg{{ kk }}_{{ j }} = {{ load_b(kk, j) }};
        dbg_n(LOADED_B, dbg_row(row0, TM), col + {{ j }}u * 4u * LANES, k + {{ kk }}u, b_reg{{ kk }}_{{ j }});
{% endfor %}
{% endfor %}
{% for r in range(kernel.tm) %}
        let a_row{{ r }} = subgroupBroadcast(a_reg{{ r // kernel.lanes }}, {{ r % kernel.lanes }}u);
{% for j in range(kernel.tn // 4) %}
{% for kk in range(4) %}
{% set acc, a_element = "acc_" ~ r ~ "_" ~ j, "a_row" ~ r ~ "." ~ "xyzw"[kk] %}
        {{ acc }} = fma({{ vec4r }}({{ a_element }}), b_reg{{ kk }}_{{ j }}, {{ acc }});
{% endfor %}
        dbg_k(SHARED_A, row0 + {{ r }}u, dbg_col(col + {{ j }}u * 4u * LANES, 4u), k, a_row{{ r }});
        dbg_n(ACC, row0 + {{ r }}u, col + {{ j }}u * 4u * LANES, k + 3u, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  The sums → C. The unrolled stores and their guards take most of the compile time: 1.7 s on Mesa 22.3.6 for partial
  tiles of 32 × 8, 0.4 s for whole ones. A loop over an array of accumulators takes longer (3.9 and 3.8 s), since the
  driver compiles its index to a tree of selects. One check of the row per row, instead of one per store, saves
  SwiftShader a third of the compile time.
#}
{% macro store_sums() %}
{% for r in range(kernel.tm) %}
{% if s.edge_m %}
    if (row0 + {{ r }}u >= params.m) {
        return;
    }
{% endif %}
{% for j in range(kernel.tn // 4) %}
    store_c4(c_base, row0 + {{ r }}u, col + {{ j }}u * 4u * LANES, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}
