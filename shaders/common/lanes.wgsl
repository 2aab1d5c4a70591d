{#
  What the stages made for CPUs share. A workgroup is one subgroup: LANES invocations, which such a driver runs as the
  elements of its vector registers. It owns TM rows and LANES × TN columns of C, each lane every LANES-th vec4:

        lane = 0 1 2 … 0 1 2 …
        row0   ■ □ □   ■ □ □       columns (lane + j*LANES)*4 .. +3,  j < TN/4
             + TM rows

  Four inner elements are multiplied per iteration. Every lane fetches four elements of one row of A, or of every
  LANES-th row, and the rows reach the others by subgroupBroadcast: a shuffle of registers in place of a load per lane.
  The rows stand outermost, so that an accumulator takes four FMAs in a row: a CPU has 16 or 32 vector registers, the
  other accumulators wait in its first-level cache.

  Edges: rows beyond m and columns beyond n are loaded without a check, as whatever the buffer holds there reaches only
  elements of C that are not stored; beyond k, loads select zero. With a branch per load, SwiftShader takes more than
  four minutes to compile tiles of 8 × 32; without, two seconds for 16 × 64.
#}
{% import "common/matrix.wgsl" as matrix with context %}

{% macro accumulators() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  acc += A[row0.., k..k+3] · B[k..k+3, col..]; `a` writes a load of A[row, k..k+3], `b` one of B[k + kk, the j-th four
  columns].
#}
{% macro multiply(a, b) %}
{% for i in range(kernel.a_loads) %}
        let a_reg{{ i }} = {{ a("row + " ~ (i * kernel.lanes) ~ "u" if i else "row") }};
        dbg_k(LOADED_A, row + {{ i * kernel.lanes }}u, dbg_col(col0, LANES * TN), k, a_reg{{ i }});
{% endfor %}
{% for kk in range(4) %}
{% for j in range(kernel.tn // 4) %}
        let b_reg{{ kk }}_{{ j }} = {{ b(kk, j) }};
        dbg_n(LOADED_B, dbg_row(row0, TM), col + {{ j }}u * 4u * LANES, k + {{ kk }}u, b_reg{{ kk }}_{{ j }});
{% endfor %}
{% endfor %}
{% for r in range(kernel.tm) %}
        let a_row{{ r }} = subgroupBroadcast(a_reg{{ r // kernel.lanes }}, {{ r % kernel.lanes }}u);
{% for j in range(kernel.tn // 4) %}
{% for kk in range(4) %}
        acc_{{ r }}_{{ j }} = fma(vec4f(a_row{{ r }}.{{ "xyzw"[kk] }}), b_reg{{ kk }}_{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
        dbg_k(SHARED_A, row0 + {{ r }}u, dbg_col(col + {{ j }}u * 4u * LANES, 4u), k, a_row{{ r }});
        dbg_n(ACC, row0 + {{ r }}u, col + {{ j }}u * 4u * LANES, k + 3u, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  Written out, guards and all, which takes most of the time to compile: 1.7 s of it on Mesa 22.3.6 for 32 × 8 that hang
  over an edge, 0.4 s for whole tiles. A loop over an array of the accumulators takes longer still (3.9 and 3.8 s): the
  driver turns its index into a tree of selects. A check of the row before each row in place of one in each store saves
  SwiftShader a third of the time.
#}
{% macro store() %}
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
