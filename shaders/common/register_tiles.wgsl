{#
  What the register-tiled stages share. A workgroup of WY × WX invocations owns BM × BN of C; invocation (ly, lx) owns
  TM/4 × TN/4 fragments of 4 × 4, spread over the tile so that neighbouring lanes read neighbouring vec4:

                lx = 0 1 2 …   0 1 2 …         rows    (ly + i*WY)*4 .. +3,  i < TM/4
        ly = 0     ■ □ □       ■ □ □           columns (lx + j*WX)*4 .. +3,  j < TN/4
             1     □ □ □       □ □ □
             0     ■ □ □       ■ □ □           a contiguous TM × TN costs bank conflicts: 37.6 against 44.7 TFLOP/s
             1     □ □ □       □ □ □           at 4096³ on an H200

  Everything of an invocation is a named variable, written out here: an indexed array would live in memory.

  Both tiles are stored k-major, so that fragments are read four elements at a time. Where storage runs along the
  fragment (B as (k, n), A transposed) a vec4 goes straight in ("direct"). Where it runs along k, its four elements go to
  four rows of the tile, which is then an array of f32 by fours: WGSL lets a store to one component of a vec4 write all
  four (Metal and D3D do), so lanes that fill different components of one vec4 would race. Drivers read the four f32 as
  one vector all the same: 48.2 TFLOP/s at 4096³ on an H200, against 46.1 with lanes that gather four rows of A into a
  whole vec4, and 42 with lanes that transpose 4 × 4 blocks in registers.

  What no vec4 fits is moved one by one ("spread"): neighbouring lanes read neighbours in storage, and rows of the tile
  are a vec4 longer, so that those which run along k fall into different banks of workgroup memory.

  No load hangs on a condition. What is read beyond the last row or column goes into sums that nobody stores, and an
  engine keeps such reads within the binding; what is read beyond the end of k is replaced by zero.

  A vec4 of float64 lies in two halves, each beside the same half of its neighbours: a lane reads 16 bytes at once, and
  where lanes read them 32 bytes apart, every other one waits for a bank of workgroup memory: 20.7 against 17.7 TFLOP/s at
  4096³ with tiles of 64 × 128 × 8. To let lanes fetch from neighbouring lines, so that what runs along k meets in no bank as
  it is stored, costs more than it brings (−3 %).

  Measured there, too, and left out: padding the rows of tiles of vec4 (−2 %), lanes in 8 × 4 per subgroup (−1 %).
#}
{% import "common/matrix.wgsl" as matrix with context %}

{% set operands = [
  {"x": "a", "at": "row", "tile": "BM", "length": kernel.bm, "vec": s.vec_a, "direct": s.trans_a,
   "spread": s.vec_a is false, "loads": kernel.a_loads},
  {"x": "b", "at": "col", "tile": "BN", "length": kernel.bn, "vec": s.vec_b, "direct": not s.trans_b,
   "spread": s.vec_b is false and kernel.b_vector_axis != "", "loads": kernel.b_loads},
] %}

{% set halves = s.dtype is defined and s.dtype.itemsize == 8 %}

{% macro declarations(buffers=1, slices=1, load_b4="") %}
{{ inputs(buffers, slices, load_b4) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endmacro %}

{#
  The tiles, for each of `slices` groups of invocations, and the loads that fill them; `load_b4`, where given, stands in
  for that of B.
#}
{% macro inputs(buffers=1, slices=1, load_b4="") %}
{% set of, each = ("array<", ", SLICES>") if slices > 1 else ("", "") %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

// Nested, so that the engine's bounds checks are hoisted out of the inner loop: only the lane is no constant there.
{% for buffer in range(buffers) %}
{% for o in operands %}
var<workgroup> {{ o.x }}_tile{{ buffer or "" }}: {{ of }}array<{{ "array<" if halves }}array<{{ tile_vector(o) }}, {{ o.tile }} / 4u{{ " + 1u" if o.spread }}>{{ ", 2>" if halves }}, BK>{{ each }}; // {{ "[slice]" if slices > 1 }}[kk]{{ "[half]" if halves }}[{{ o.at }}/4]
{% endfor %}
{% endfor %}

{{ load4(operands[0]) }}
{{ load_b4 or load4(operands[1]) }}
{% endmacro %}

{# What a tile holds: neighbours that are stored at once, or one by one. #}
{% macro tile_vector(o) -%}
{% set width = 2 if halves else 4 %}
{{ ("vec%df" if o.direct and not o.spread else "array<f32, %d>") % width }}
{%- endmacro %}

{# Element `at`, an expression, of a row of a tile; … #}
{% macro in_tile(row, at) -%}
{{ "%s[%s %% 4u / 2u][%s / 4u][%s %% 2u]" % (row, at, at, at) if halves else "%s[%s / 4u][%s %% 4u]" % (row, at, at) }}
{%- endmacro %}

{# … and element `i`, a number, of one of its vec4. #}
{% macro of_four(row, four, i) -%}
{{ "%s[%d][%s][%d]" % (row, i // 2, four, i % 2) if halves else "%s[%s][%d]" % (row, four, i) }}
{%- endmacro %}

{# Four neighbours in storage, where they are bound so; `index` counts what the binding holds. #}
{% macro load4(o) %}
{% if o.vec %}
{% set at, k = (o.at ~ "..+3", "k") if o.direct else (o.at, "k..+3") %}
// Four neighbours in storage, {{ "A[%s, %s]" % (at, k) if o.x == "a" else "B[%s, %s]" % (k, at) }}{% if s.edge_k %}, zero beyond the end of k{% endif %}

fn load_{{ o.x }}4(index: u32, {{ o.at }}: u32, k: u32) -> vec4f {
    let value = {{ matrix.as_vec4f(o.x ~ "[index]") }};
    return {{ "select(vec4f(), value, k < params.k)" if s.edge_k else "value" }};
}
{% else %}
// An element of {{ o.x | upper }} in storage{% if s.edge_k %}, zero beyond the end of k{% endif %}

fn load_{{ o.x }}(index: u32, k: u32) -> f32 {
    let value = {{ matrix.element(o.x, "index") }};
    return {{ "select(0.0, value, k < params.k)" if s.edge_k else "value" }};
}
{% endif %}
{% endmacro %}

{% macro tile_count() %}
    let tiles_m = (params.m + BM - 1u) / BM;
    let tiles_n = (params.n + BN - 1u) / BN;
{% endmacro %}

{# Tile number → its first row and column. Tiles are walked down GROUP rows, then along N, to share B in cache. #}
{% macro tile_position() %}
    let first = tile / (GROUP * tiles_n) * GROUP;
    let rows = min(tiles_m - first, GROUP);
    let row0 = (first + tile % (GROUP * tiles_n) % rows) * BM;
    let col0 = tile % (GROUP * tiles_n) / rows * BN;
{% endmacro %}

{# The tile of this workgroup; surplus workgroups of a folded grid leave at once. #}
{% macro own_tile() %}
    let tile = workgroup.x + workgroup.y * grid.x;
{{ tile_count() }}
    if (tile >= tiles_m * tiles_n) {
        return;
    }
{{ tile_position() }}
{% endmacro %}

{% macro lanes() %}
    let lx = lane % WX;
    let ly = lane / WX;
{% endmacro %}

{#
  Which vec4 this lane moves: its place in the tile, and where it starts in storage. Neighbouring lanes read neighbours
  in storage. The starts are worked out once, so that a load in the loop costs one addition.

  What is spread has but one place and start; steps() says how far each element lies from it.
#}
{% macro positions() %}
{% for o in operands %}
{% for i in range(1 if o.spread else o.loads) %}
{% set each = 1 if o.spread else 4 %}
{% set times = " * 4u" if each == 4 %}
{% set among = (" / %du" % each if each > 1 else "") %}
    let {{ o.x }}_at{{ i }} = lane + {{ i * kernel.sharers }}u;
{% if o.direct %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_at{{ i }} / ({{ o.tile }}{{ among }});
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.x }}_at{{ i }} % ({{ o.tile }}{{ among }}){{ times }};
    let {{ o.x }}_start{{ i }} = ({{ o.x }}_base + {{ o.x }}_kk{{ i }} * params.ld{{ o.x }} + {{ o.at }}0 + {{ o.x }}_{{ o.at }}{{ i }}){{ " / 4u" if o.vec }};
{% else %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_at{{ i }} % (BK{{ among }}){{ times }};
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.x }}_at{{ i }} / (BK{{ among }});
    let {{ o.x }}_start{{ i }} = ({{ o.x }}_base + ({{ o.at }}0 + {{ o.x }}_{{ o.at }}{{ i }}) * params.ld{{ o.x }} + {{ o.x }}_kk{{ i }}){{ " / 4u" if o.vec }};
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  How far element `i` of what this lane moves one by one lies from its first: "kk row". Lanes fill lines of the tile,
  which run along k or across it, from one end to the other: several lines at once, or several times a part of one.
#}
{% macro steps(o, i) -%}
{% set line = o.length if o.direct else kernel.bk %}
{% set lines = i * kernel.sharers // line %}
{% set along = i * kernel.sharers % line %}
{{ "%d %d" % ((lines, along) if o.direct else (along, lines)) }}
{%- endmacro %}

{% macro accumulators() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro registers() %}
{% for o in operands %}
{% for i in range(4 * o.loads if o.spread else o.loads) %}
    var {{ o.x }}_next{{ i }}: {{ "f32" if o.spread else "vec4f" }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers #}
{% macro fetch(k0) %}
{% for o in operands %}
{% for i in range(4 * o.loads if o.spread else o.loads) %}
{% if o.spread %}
{% set kk, at = steps(o, i).split() %}
{% set k, at = "%s + %su" % (k0, kk), at ~ "u" %}
{% set step = "(%s) * params.ld%s + %s" % (k, o.x, at) if o.direct else "%s * params.ld%s + %s" % (at, o.x, k) %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}({{ o.x }}_start0 + {{ step }}, {{ k }} + {{ o.x }}_kk0);
{% if o.x == "a" %}
        dbg(LOADED_A, row0 + a_row0 + {{ at }}, dbg_col(col0, BN), {{ k }} + a_kk0, a_next{{ i }});
{% else %}
        dbg(LOADED_B, dbg_row(row0, BM), col0 + b_col0 + {{ at }}, {{ k }} + b_kk0, b_next{{ i }});
{% endif %}
{% else %}
{% set step = k0 ~ " * params.ld" ~ o.x if o.direct else k0 %}
{% set step = "(%s / 4u)" % step if o.vec and not o.direct else "%s * (params.ld%s / 4u)" % (k0, o.x) if o.vec else step %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i }} + {{ step }}, {{ o.at }}0 + {{ o.x }}_{{ o.at }}{{ i }}, {{ k0 }} + {{ o.x }}_kk{{ i }});
{% if o.x == "a" %}
        dbg_{{ "m" if o.direct else "k" }}(LOADED_A, row0 + a_row{{ i }}, dbg_col(col0, BN), {{ k0 }} + a_kk{{ i }}, a_next{{ i }});
{% else %}
        dbg_{{ "n" if o.direct else "k" }}(LOADED_B, dbg_row(row0, BM), col0 + b_col{{ i }}, {{ k0 }} + b_kk{{ i }}, b_next{{ i }});
{% endif %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(buffer=0) %}
{% for o in operands %}
{% for i in range(4 * o.loads if o.spread else o.loads) %}
{% set tile = o.x ~ "_tile" ~ (buffer or "") %}
{% if o.spread %}
{% set kk, at = steps(o, i).split() %}
{% set at = "(%s_%s0 + %su)" % (o.x, o.at, at) %}
        {{ in_tile("%s[%s_kk0 + %su]" % (tile, o.x, kk), at) }} = {{ o.x }}_next{{ i }};
{% elif o.direct and halves %}
{% for half in range(2) %}
        {{ tile }}[{{ o.x }}_kk{{ i }}][{{ half }}][{{ o.x }}_{{ o.at }}{{ i }} / 4u] = {{ o.x }}_next{{ i }}.{{ ("xy", "zw")[half] }};
{% endfor %}
{% elif o.direct %}
        {{ tile }}[{{ o.x }}_kk{{ i }}][{{ o.x }}_{{ o.at }}{{ i }} / 4u] = {{ o.x }}_next{{ i }};
{% else %}
{% set at = "%s_%s%d" % (o.x, o.at, i) %}
{% for j in range(4) %}
        {{ in_tile("%s[%s_kk%d + %du]" % (tile, o.x, i, j), at) }} = {{ o.x }}_next{{ i }}[{{ j }}];
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro fragment(name, element, direct, vector="vec4f") %}
{% if direct %}
            let {{ name }} = {{ element }};
{% else %}
            let {{ name }} = {{ vector }}({{ element }}[0], {{ element }}[1], {{ element }}[2], {{ element }}[3]);
{% endif %}
{% endmacro %}

{% macro from_tile(name, row, four, o) %}
{% if halves and o.direct and not o.spread %}
            let {{ name }} = vec4f({{ row }}[0][{{ four }}], {{ row }}[1][{{ four }}]);
{% elif halves %}
            let {{ name }} = vec4f({% for i in range(4) %}{{ of_four(row, four, i) }}{{ ", " if i < 3 }}{% endfor %});
{% else %}
{{ fragment(name, "%s[%s]" % (row, four), o.direct and not o.spread) }}
{%- endif %}
{% endmacro %}

{#
  One kk: an outer product of TM rows and TN columns. In serpentine order the columns alternate in direction from row to
  row, so that neighbouring FMAs share an operand: 50.3 against 49.7 TFLOP/s at 8192³ on an H200. With tiles of 128 × 128
  the driver allots registers otherwise, and plain rows win: 48.8 against 47.1 at 4096³. Column by column loses by 6 %.
#}
{% macro step(kk, buffer, k0) %}
{% for i in range(kernel.tm // 4) %}
{{ from_tile("a_reg%d" % i, "a_tile%s[%s]" % (buffer or "", kk), "ly + %du * WY" % i, operands[0]) }}
{%- endfor %}
{% for j in range(kernel.tn // 4) %}
{{ from_tile("b_reg%d" % j, "b_tile%s[%s]" % (buffer or "", kk), "lx + %du * WX" % j, operands[1]) }}
{%- endfor %}
{% for r in range(kernel.tm) %}
{% set columns = range(kernel.tn // 4) | list %}
{% for j in (columns | reverse if kernel.order == "serpentine" and r % 2 else columns) %}
            acc_{{ r }}_{{ j }} = fma(vec4f(a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }}), b_reg{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% for i in range(kernel.tm // 4) %}
{% for j in range(kernel.tn // 4) %}
            dbg_fragment(row0 + (ly + {{ i }}u * WY) * 4u, col0 + (lx + {{ j }}u * WX) * 4u, {{ k0 }} + {{ kk }}, a_reg{{ i }}, b_reg{{ j }}, {% for r in range(4) %}acc_{{ 4 * i + r }}_{{ j }}{{ ", " if r < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
{% endmacro %}

{# acc += A tile · B tile, the tiles that start at k0 along k. #}
{% macro multiply(buffer=0, k0="k0") %}
{{ unrolled(step, buffer, k0) }}
{% endmacro %}

{# `step` for every kk. UNROLL are written out: engines guard loops, which keeps drivers from unrolling them. #}
{% macro unrolled(step, buffer=0, k0="k0") %}
{% if kernel.unroll == kernel.bk %}
{% for kk in range(kernel.bk) %}
        { // kk = {{ kk }}
{{ step("%du" % kk, buffer, k0) }}
        }
{% endfor %}
{% else %}
        for (var kk = 0u; kk < BK; kk += UNROLL) {
{% for u in range(kernel.unroll) %}
            {
{{ step("kk + %du" % u if u else "kk", buffer, k0) }}
            }
{% endfor %}
        }
{% endif %}
{% endmacro %}

{% macro store_fragment(r, j) -%}
store_c4(c_base, row0 + (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u, col0 + (lx + {{ j }}u * WX) * 4u, acc_{{ r }}_{{ j }});
{%- endmacro %}

{#
  C of which no vec4 can be stored goes through the tile of B, a row of every fragment at a time: so neighbouring lanes
  store neighbours of C, where each would have stored four of its own. 16 bytes apart they cost four times the traffic.
#}
{% set staged = kernel.wy is defined and s.vec_c is false and (operands[1].spread or not operands[1].direct) and kernel.wy <= kernel.bk %}

{% macro stage_fragments(r, buffer="") %}
{% for j in range(kernel.tn // 4) %}
{% for c in range(4) %}
    {{ of_four("b_tile%s[ly]" % buffer, "lx + %du * WX" % j, c) }} = acc_{{ r }}_{{ j }}.{{ "xyzw"[c] }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# What stage_fragments left, stored by all invocations: `lane` is each one's number. #}
{% macro store_staged(r, lane="lane", buffer="") %}
{% for first in range(0, kernel.wy * kernel.bn, kernel.invocations) %}
    {
        let at = {{ lane }} + {{ first }}u;
        let line = at / BN;
        let col = at % BN;
        let value = {{ in_tile("b_tile%s[line]" % buffer, "col") }};
{% set store = "store_c(c_base, row0 + (line + %du * WY) * 4u + %du, col0 + col, value);" % (r // 4, r % 4) %}
{% if first + kernel.invocations > kernel.wy * kernel.bn %}
        if (line < WY) {
            {{ store }}
        }
{% else %}
        {{ store }}
{% endif %}
    }
{% endfor %}
{% endmacro %}

{% macro store(staged=false) %}
{% for r in range(kernel.tm) %}
{% if staged %}
    workgroupBarrier(); // everyone is done with {{ "the tile" if loop.first else "the rows" }} before they are overwritten
{{ stage_fragments(r) }}
    workgroupBarrier(); // the rows are complete before anyone reads them
{{ store_staged(r) }}
{% else %}
{% for j in range(kernel.tn // 4) %}
    {{ store_fragment(r, j) }}
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}
