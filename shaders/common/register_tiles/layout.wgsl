{#
  Where a workgroup and its invocations compute, for products with register tiles: `blocked` and the stages that build
  on it.

  A workgroup computes a BM × BN tile of C and advances along k in steps of BK. In each step it loads a tile of A
  (BM × BK) and one of B (BK × BN) from storage into registers, writes both to workgroup memory, and multiplies them;
  the sums stay in registers until the end. A stage calls these macros in this order:

    load.declarations()                                     the tiles, and functions that load from storage
    layout.assign_tile(), invocation_position()              this workgroup's tile of C; an invocation's position in it
    load.plan_loads()                                       the elements that this invocation loads in every step
    layout.declare_sums(), load.declare_registers()         registers for sums, and between storage and the tiles
    load.load_next(k0)                                      storage → registers a_next…, b_next…
    load.write_tiles()                                      registers → workgroup memory
    multiply.multiply_tiles()                               sums += tile of A · tile of B
    store.store_sums()                                      sums → C

  The tile of C consists of fragments of 4 × 4 elements, which the WY × WX invocations of a workgroup share: invocation
  (ly, lx) computes TM/4 × TN/4 of them, spread over the tile so that neighbouring invocations read consecutive vec4:

                lx = 0 1 2 …   0 1 2 …         rows    (ly + i*WY)*4 .. +3,  i < TM/4
        ly = 0     ■ □ □       ■ □ □           columns (lx + j*WX)*4 .. +3,  j < TN/4
             1     □ □ □       □ □ □
             0     ■ □ □       ■ □ □           With a contiguous TM × TN per invocation, bank conflicts cost
             1     □ □ □       □ □ □           37.6 against 44.7 TFLOP/s (4096³ on an H200).

  The sums of an invocation are separate variables, acc_R_J for row R and vec4 J of columns, since drivers may keep an
  indexed array in memory instead of registers.
#}

{# The tiles of C along M and N. #}
{% macro count_tiles() %}
    let tiles_m = (params.m + BM - 1u) / BM;
    let tiles_n = (params.n + BN - 1u) / BN;
{% endmacro %}

{#
  Tile number → first row and column. Tiles are numbered down GROUP tile rows (`rows`, fewer in the last group), then
  along N, so that workgroups that run at the same time share tiles of B in cache.
#}
{% macro locate_tile() %}
    let first = tile / (GROUP * tiles_n) * GROUP;
    let rows = min(tiles_m - first, GROUP);
    let row0 = (first + tile % (GROUP * tiles_n) % rows) * BM;
    let col0 = tile % (GROUP * tiles_n) / rows * BN;
{% endmacro %}

{# This workgroup's tile of C; surplus workgroups of a folded grid return. #}
{% macro assign_tile() %}
    //# tiles
    let tile = workgroup.x + workgroup.y * grid.x;
{{ count_tiles() }}
    if (tile >= tiles_m * tiles_n) {
        return;
    }
{{ locate_tile() }}
    //# end
{% endmacro %}

{#
  The invocation's position in the tile; `index` is its number among the WY × WX that share the tile. If `interleaved`,
  of 32 consecutive invocations, neighbours share columns, and every second one rows.
#}
{% macro invocation_position(index="local_index", interleaved=false) %}
{% if interleaved %}
    let lane = {{ index }} % 32u;
    let lx = {{ index }} / 32u % (WX / 8u) * 8u + lane / 2u % 8u;
    let ly = {{ index }} / 32u / (WX / 8u) * 4u + lane / 16u * 2u + lane % 2u;
{% else %}
    let lx = {{ index }} % WX;
    let ly = {{ index }} / WX;
{% endif %}
{% endmacro %}

{# Variables for the sums of an invocation. #}
{% macro declare_sums() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = {{ vec4r }}();
{% endfor %}
{% endfor %}
{% endmacro %}

{# An element of a tile, vec4 or array of four, as a vector. #}
{% macro as_vector(four, is_vector, vector=vec4r) -%}
{% if is_vector -%}
{{ four }}
{%- else -%}
{{ vector }}({{ four }}[0], {{ four }}[1], {{ four }}[2], {{ four }}[3])
{%- endif %}
{%- endmacro %}

{# An invocation's `i`-th four rows and `j`-th four columns, as vec4 indices in the tiles of A and B. #}
{% macro row_vec4(i, ly="ly") %}{{ ly }} + {{ i }}u * WY{% endmacro %}
{% macro col_vec4(j) %}lx + {{ j }}u * WX{% endmacro %}

{# The first row of C of these four rows, the first column of these four columns. #}
{% macro first_row(i, ly="ly") %}row0 + ({{ row_vec4(i, ly) }}) * 4u{% endmacro %}
{% macro first_column(j) %}col0 + ({{ col_vec4(j) }}) * 4u{% endmacro %}

{#
  The macro `step` for every kk, UNROLL of them per iteration: engines add a guard to each loop, which keeps drivers
  from unrolling it.
#}
{% macro for_each_kk(step, buffer=0, k0="k0") %}
{% if kernel.unroll == kernel.bk %}
{% for kk in range(kernel.bk) %}
        { // kk = {{ kk }}
{{ step(kk ~ "u", buffer, k0) }}
        }
{% endfor %}
{% else %}
        for (var kk = 0u; kk < BK; kk += UNROLL) {
{% for u in range(kernel.unroll) %}
            {
{{ step("kk + " ~ u ~ "u" if u else "kk", buffer, k0) }}
            }
{% endfor %}
        }
{% endif %}
{% endmacro %}
