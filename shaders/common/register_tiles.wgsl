{#
  What the register-tiled stages share. A workgroup of WY × WX invocations owns BM × BN of C; invocation (ly, lx) owns
  TM/4 × TN/4 fragments of 4 × 4, spread over the tile so that neighbouring lanes read neighbouring vec4:

                lx = 0 1 2 …   0 1 2 …         rows    (ly + i*WY)*4 .. +3,  i < TM/4
        ly = 0     ■ □ □       ■ □ □           columns (lx + j*WX)*4 .. +3,  j < TN/4
             1     □ □ □       □ □ □
             0     ■ □ □       ■ □ □           a contiguous TM × TN costs bank conflicts: 37.6 against 44.7 TFLOP/s
             1     □ □ □       □ □ □           measured at 4096³ on an H200

  Everything of an invocation is a named variable, written out here: an indexed array would live in memory.

  A vec4 of workgroup memory is always written whole and by one invocation. WGSL lets a store to one component write
  all four (Metal and D3D do), so lanes that fill different components of one vec4 would race.
#}
{% import "common/matrix.wgsl" as matrix with context %}

{% macro declarations(buffers=1) %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

// Nested, so that the engine's bounds checks are hoisted out of the inner loop: only the lane is no constant there.
{% for buffer in range(buffers) %}
var<workgroup> a_tile{{ buffer or "" }}: array<array<vec4f, BM / 4u + PAD>, BK>; // [kk][row/4], four rows of A each
var<workgroup> b_tile{{ buffer or "" }}: array<array<vec4f, BN / 4u + PAD>, BK>; // [kk][col/4], four columns of B each
{% endfor %}

{{ matrix.load_a4(row=s.edge_m, k=s.edge_k) }}
{{ matrix.load_b4(k=s.edge_k, col=s.edge_n) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endmacro %}

{# Tile number → its first row and column. Tiles are walked down GROUP rows, then along N, to share B in cache. #}
{% macro tile_count() %}
    let tiles_m = (params.m + BM - 1u) / BM;
    let tiles_n = (params.n + BN - 1u) / BN;
{% endmacro %}

{% macro tile_position() %}
    let first = tile / (GROUP * tiles_n) * GROUP;
    let rows = min(tiles_m - first, GROUP);
    let row0 = (first + tile % (GROUP * tiles_n) % rows) * BM;
    let col0 = tile % (GROUP * tiles_n) / rows * BN;
{% endmacro %}

{% macro lanes() %}
    let lx = lane % WX;
    let ly = lane / WX;
{% endmacro %}

{# Where in a tile the i-th vec4 lies that this lane moves: neighbouring lanes read neighbouring elements of storage. #}
{% macro positions() %}
{% for i in range(kernel.a_loads) %}
    let a_at{{ i }} = lane + {{ i * kernel.invocations }}u;
    let a_kk{{ i }} = a_at{{ i }} {{ "/ (BM / 4u)" if s.trans_a else "% BK" }};
    let a_row{{ i }} = a_at{{ i }} {{ "% (BM / 4u)" if s.trans_a else "/ BK" }};
{% endfor %}
{% for i in range(kernel.b_loads) %}
    let b_at{{ i }} = lane + {{ i * kernel.invocations }}u;
    let b_kk{{ i }} = b_at{{ i }} {{ "% BK" if s.trans_b else "/ (BN / 4u)" }};
    let b_col{{ i }} = b_at{{ i }} {{ "/ BK" if s.trans_b else "% (BN / 4u)" }};
{% endfor %}
{% endmacro %}

{% macro accumulators() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro registers() %}
{% for i in range(kernel.a_loads) %}
    var a_next{{ i }}: vec4f;
{% endfor %}
{% for i in range(kernel.b_loads) %}
    var b_next{{ i }}: vec4f;
{% endfor %}
{% endmacro %}

{# storage → registers #}
{% macro fetch(k0) %}
{% for i in range(kernel.a_loads) %}
        a_next{{ i }} = load_a4(a_base, row0 + a_row{{ i }} * 4u, {{ k0 }} + a_kk{{ i }});
{% endfor %}
{% for i in range(kernel.b_loads) %}
        b_next{{ i }} = load_b4(b_base, {{ k0 }} + b_kk{{ i }}, col0 + b_col{{ i }} * 4u);
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(buffer=0) %}
{% for i in range(kernel.a_loads) %}
        a_tile{{ buffer or "" }}[a_kk{{ i }}][a_row{{ i }}] = a_next{{ i }};
{% endfor %}
{% for i in range(kernel.b_loads) %}
        b_tile{{ buffer or "" }}[b_kk{{ i }}][b_col{{ i }}] = b_next{{ i }};
{% endfor %}
{% endmacro %}

{% macro step(kk, buffer) %}
{% for i in range(kernel.tm // 4) %}
            let a_reg{{ i }} = a_tile{{ buffer or "" }}[{{ kk }}][ly + {{ i }}u * WY];
{% endfor %}
{% for j in range(kernel.tn // 4) %}
            let b_reg{{ j }} = b_tile{{ buffer or "" }}[{{ kk }}][lx + {{ j }}u * WX];
{% endfor %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
            acc_{{ r }}_{{ j }} = fma(vec4f(a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }}), b_reg{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# acc += A tile · B tile. UNROLL steps are written out: engines guard loops, which keeps drivers from unrolling them. #}
{% macro multiply(buffer=0) %}
{% if kernel.unroll == kernel.bk %}
{% for kk in range(kernel.bk) %}
        {
{{ step("%du" % kk, buffer) }}
        }
{% endfor %}
{% else %}
        for (var kk = 0u; kk < BK; kk += UNROLL) {
{% for u in range(kernel.unroll) %}
            {
{{ step("kk + %du" % u if u else "kk", buffer) }}
            }
{% endfor %}
        }
{% endif %}
{% endmacro %}

{% macro store() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    store_c4(c_base, row0 + (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u, col0 + (lx + {{ j }}u * WX) * 4u, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}
