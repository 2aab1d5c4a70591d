{#
  Products by tiles in registers over tiles in workgroup memory: the macros of blocked and of the stages that build on
  it.

  A workgroup owns BM × BN elements of C and goes along k by steps of BK. In each step it fetches a tile of A (BM × BK)
  and one of B (BK × BN) from storage, puts both in workgroup memory, and multiplies them; what it sums up stays in
  registers until the end. A stage calls the macros in the order in which they stand here:

    declarations()                            constants, the tiles, functions that load from storage and store to C
    own_tile(), lane_position()               which tile of C this workgroup computes, which part of it this invocation
    plan_loads()                              what this invocation moves in every step, and where that starts in storage
    declare_sums(), declare_registers()       the sums; room for what is on its way from storage to workgroup memory
    fetch(k0)                                 storage → registers
    put()                                     registers → workgroup memory
    multiply()                                sums += tile of A · tile of B
    store()                                   sums → C

  The WY × WX invocations of a workgroup share its tile of C by fragments of 4 × 4: invocation (ly, lx) owns TM/4 × TN/4
  of them, spread over the tile so that neighbouring lanes read neighbouring vec4:

                lx = 0 1 2 …   0 1 2 …         rows    (ly + i*WY)*4 .. +3,  i < TM/4
        ly = 0     ■ □ □       ■ □ □           columns (lx + j*WX)*4 .. +3,  j < TN/4
             1     □ □ □       □ □ □
             0     ■ □ □       ■ □ □           a contiguous TM × TN costs bank conflicts: 37.6 against 44.7 TFLOP/s
             1     □ □ □       □ □ □           at 4096³ on an H200

  The sums of an invocation are named variables, acc_R_J for row R and vec4 J of columns, since drivers may keep an
  indexed array in memory rather than in registers.

  Both tiles are stored k-major, so that fragments are read four elements at a time. Where storage runs across k (B as
  (k, n), A transposed) a vec4 goes in whole. Where it runs along k, its four elements go to four rows of the tile,
  which is then an array of f32 by fours: WGSL lets a store to one component of a vec4 write all four (Metal and D3D
  do), so lanes that fill different components of one vec4 would race. Drivers read the four f32 as one vector all the
  same: 48.2 TFLOP/s at 4096³ on an H200, against 46.1 with lanes that gather four rows of A into a whole vec4, and 42
  with lanes that transpose 4 × 4 blocks in registers.

  Where storage cannot be bound by vec4, elements are moved one by one: neighbouring lanes read neighbours in storage,
  and rows of the tile are a vec4 longer, so that elements which run along k fall into different banks of workgroup
  memory.

  Loads have no branches. What is read beyond the last row or column goes into sums that are never stored, and the
  engine keeps such reads within the binding; what is read beyond the end of k is replaced by zero.

  A vec4 of float64 is stored as two halves, each beside the same half of its neighbours: a lane reads 16 bytes at once,
  and where lanes read them 32 bytes apart, every other one waits for a bank of workgroup memory: 20.7 against 17.7
  TFLOP/s at 4096³ with tiles of 64 × 128 × 8. Letting lanes fetch from neighbouring lines, so that what runs along k is
  stored without bank conflicts, costs more than it brings (−3 %).

  Measured there, too, and left out: padding the rows of tiles of vec4 (−2 %), lanes in 8 × 4 per subgroup (−1 %).
#}
{% import "common/matrix.wgsl" as matrix with context %}

{#
  What the macros know of each operand:

    x, axis                  its letter, and the axis that it shares with C: row or col
    base, origin, stride     variables: its first element, the tile's first row or column, from line to line of storage
    extent, length           of its tile along that axis: the constant's name, and its value
    vec                      whether storage is bound by vec4
    across_k                 whether storage runs across k, not along it
    one_by_one               whether elements are moved one by one
    whole                    whether its tile holds vec4; otherwise arrays of four
    loads                    vec4 that an invocation moves in each step, or four times as many elements one by one
#}
{% set a_one_by_one = s.vec_a is false %}
{% set b_one_by_one = s.vec_b is false and kernel.b_vector_axis != "" %}
{% set operands = [
  {"x": "a", "axis": "row", "base": "a_base", "origin": "row0", "stride": "params.lda",
   "extent": "BM", "length": kernel.bm, "vec": s.vec_a, "across_k": s.trans_a,
   "one_by_one": a_one_by_one, "whole": s.trans_a and not a_one_by_one, "loads": kernel.a_loads},
  {"x": "b", "axis": "col", "base": "b_base", "origin": "col0", "stride": "params.ldb",
   "extent": "BN", "length": kernel.bn, "vec": s.vec_b, "across_k": not s.trans_b,
   "one_by_one": b_one_by_one, "whole": not s.trans_b and not b_one_by_one, "loads": kernel.b_loads},
] %}

{% set is_f64 = s.dtype is defined and s.dtype.itemsize == 8 %}

{% macro declarations(buffers=1, slices=1, load_b4="") %}
{{ tiles_and_loads(buffers, slices, load_b4) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endmacro %}

{#
  The tiles, `buffers` times for each of `slices` groups of invocations, and the functions that load what fills them;
  `load_b4`, where given, stands in for that of B.
#}
{% macro tiles_and_loads(buffers=1, slices=1, load_b4="") %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

// Nested, so that the engine's bounds checks are hoisted out of the inner loop: only the lane is no constant there.
{% for buffer in range(buffers) %}
{% for o in operands %}
var<workgroup> {{ o.x }}_tile{{ buffer or "" }}: {{ tile_type(o, slices) }}; //
{%- if slices > 1 %} [slice]{% endif %} [kk]{{ "[half]" if is_f64 }}[{{ o.axis }}/4]
{% endfor %}
{% endfor %}

{{ load_function(operands[0]) }}
{{ load_b4 or load_function(operands[1]) }}
{% endmacro %}

{% macro tile_type(o, slices) %}
{% set width = 2 if is_f64 else 4 %}
{% set four = "vec" ~ width ~ "f" if o.whole else "array<f32, " ~ width ~ ">" %}
{% set row %}array<{{ four }}, {{ o.extent }} / 4u{{ " + 1u" if o.one_by_one }}>{% endset %}
{% set tile %}array<{{ "array<" ~ row ~ ", 2>" if is_f64 else row }}, BK>{% endset %}
{{ "array<" ~ tile ~ ", SLICES>" if slices > 1 else tile }}
{%- endmacro %}

{# Element `at`, an expression, of a row of a tile; … #}
{% macro tile_element(row, at) -%}
{% if is_f64 -%}
{{ row }}[{{ at }} % 4u / 2u][{{ at }} / 4u][{{ at }} % 2u]
{%- else -%}
{{ row }}[{{ at }} / 4u][{{ at }} % 4u]
{%- endif %}
{%- endmacro %}

{# … and element `i`, a number, of its vec4 number `four`. #}
{% macro element_of_four(row, four, i) -%}
{{ row }}
{%- if is_f64 %}[{{ i // 2 }}][{{ four }}][{{ i % 2 }}]{% else %}[{{ four }}][{{ i }}]{% endif %}
{%- endmacro %}

{# The function that loads four neighbours of an operand, or one element; `index` counts what the binding holds. #}
{% macro load_function(o) %}
{% set zero = ", zero beyond the end of k" if s.edge_k else "" %}
{% if o.vec %}
{% set place, k = (o.axis ~ "..+3", "k") if o.across_k else (o.axis, "k..+3") %}
// Four neighbours in storage,
// {{ "A[" ~ place ~ ", " ~ k ~ "]" if o.x == "a" else "B[" ~ k ~ ", " ~ place ~ "]" }}{{ zero }}
fn load_{{ o.x }}4(index: u32, {{ o.axis }}: u32, k: u32) -> vec4f {
    let value = {{ matrix.as_vec4f(o.x ~ "[index]") }};
    return {{ "select(vec4f(), value, k < params.k)" if s.edge_k else "value" }};
}
{% else %}
// An element of {{ o.x | upper }} in storage{{ zero }}
fn load_{{ o.x }}(index: u32, k: u32) -> f32 {
    let value = {{ matrix.element(o.x, "index") }};
    return {{ "select(0.0, value, k < params.k)" if s.edge_k else "value" }};
}
{% endif %}
{% endmacro %}

{% macro count_tiles() %}
    let tiles_m = (params.m + BM - 1u) / BM;
    let tiles_n = (params.n + BN - 1u) / BN;
{% endmacro %}

{# Tile number → its first row and column. Tiles are walked down GROUP rows, then along N, to share B in cache. #}
{% macro locate_tile() %}
    let first = tile / (GROUP * tiles_n) * GROUP;
    let rows = min(tiles_m - first, GROUP);
    let row0 = (first + tile % (GROUP * tiles_n) % rows) * BM;
    let col0 = tile % (GROUP * tiles_n) / rows * BN;
{% endmacro %}

{# The tile of this workgroup; surplus workgroups of a folded grid leave at once. #}
{% macro own_tile() %}
    let tile = workgroup.x + workgroup.y * grid.x;
{{ count_tiles() }}
    if (tile >= tiles_m * tiles_n) {
        return;
    }
{{ locate_tile() }}
{% endmacro %}

{% macro lane_position() %}
    let lx = lane % WX;
    let ly = lane / WX;
{% endmacro %}

{#
  Which vec4 this lane moves: for each, its place in the tile (kk, and row or col) and where it starts in storage.
  Neighbouring lanes read neighbours in storage. The starts are worked out once, so that a load in the loop costs one
  addition.

  An operand that is moved one by one has but one place and start; kk_offset() and axis_offset() are how far each
  element lies from it.
#}
{% macro plan_loads() %}
{% for o in operands %}
{% set by_four, times_four = ("", "") if o.one_by_one else (" / 4u", " * 4u") %}
{% for i in range(1 if o.one_by_one else o.loads) %}
{% set at, kk, place = o.x ~ "_at" ~ i, o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i %}
    let {{ at }} = lane + {{ i * kernel.sharers }}u;
{% if o.across_k %}
    let {{ kk }} = {{ at }} / ({{ o.extent }}{{ by_four }});
    let {{ place }} = {{ at }} % ({{ o.extent }}{{ by_four }}){{ times_four }};
{% set index %}{{ o.base }} + {{ kk }} * {{ o.stride }} + {{ o.origin }} + {{ place }}{% endset %}
{% else %}
    let {{ kk }} = {{ at }} % (BK{{ by_four }}){{ times_four }};
    let {{ place }} = {{ at }} / (BK{{ by_four }});
{% set index %}{{ o.base }} + ({{ o.origin }} + {{ place }}) * {{ o.stride }} + {{ kk }}{% endset %}
{% endif %}
    let {{ o.x }}_start{{ i }} = ({{ index }}){{ " / 4u" if o.vec }};
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  How far element `i` of what this lane moves one by one lies from its first, along k and along the operand's own axis.
  Lanes fill lines of the tile, which run as storage does, from one end to the other: several lines at once, or several
  times a part of one.
#}
{% macro kk_offset(o, i) -%}
{{ i * kernel.sharers // o.length if o.across_k else i * kernel.sharers % kernel.bk }}u
{%- endmacro %}

{% macro axis_offset(o, i) -%}
{{ i * kernel.sharers % o.length if o.across_k else i * kernel.sharers // kernel.bk }}u
{%- endmacro %}

{% macro declare_sums() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro declare_registers() %}
{% for o in operands %}
{% for i in range(4 * o.loads if o.one_by_one else o.loads) %}
    var {{ o.x }}_next{{ i }}: {{ "f32" if o.one_by_one else "vec4f" }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers: the tiles that start at k0 #}
{% macro fetch(k0) %}
{% for o in operands %}
{% if o.one_by_one %}
{% for i in range(4 * o.loads) %}
{{ fetch_element(o, i, k0) }}
{%- endfor %}
{% else %}
{% for i in range(o.loads) %}
{{ fetch_four(o, i, k0) }}
{%- endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro fetch_element(o, i, k0) %}
{% set next, offset = o.x ~ "_next" ~ i, axis_offset(o, i) %}
{% set k %}{{ k0 }} + {{ kk_offset(o, i) }}{% endset %}
{% set ahead = "(" ~ k ~ ") * " ~ o.stride ~ " + " ~ offset if o.across_k else offset ~ " * " ~ o.stride ~ " + " ~ k %}
        {{ next }} = load_{{ o.x }}({{ o.x }}_start0 + {{ ahead }}, {{ k }} + {{ o.x }}_kk0);
{{ record_loaded(o, "dbg", o.x ~ "_" ~ o.axis ~ "0 + " ~ offset, k ~ " + " ~ o.x ~ "_kk0", next) }}
{%- endmacro %}

{% macro fetch_four(o, i, k0) %}
{% set next, place = o.x ~ "_next" ~ i, o.x ~ "_" ~ o.axis ~ i %}
{% set k %}{{ k0 }} + {{ o.x }}_kk{{ i }}{% endset %}
{% set start = o.x ~ "_start" ~ i ~ " + " ~ ahead_of_start(o, k0) %}
        {{ next }} = load_{{ o.x }}4({{ start }}, {{ o.origin }} + {{ place }}, {{ k }});
{% set dbg = "dbg_k" if not o.across_k else "dbg_m" if o.x == "a" else "dbg_n" %}
{{ record_loaded(o, dbg, place, k, next) }}
{%- endmacro %}

{# From the start of a vec4 that a lane moves to the one for k0, counted in what the binding holds. #}
{% macro ahead_of_start(o, k0) -%}
{% if o.across_k -%}
{{ k0 }} * {{ "(" ~ o.stride ~ " / 4u)" if o.vec else o.stride }}
{%- else -%}
{{ "(" ~ k0 ~ " / 4u)" if o.vec else k0 }}
{%- endif %}
{%- endmacro %}

{# For debug shaders: what was loaded, at a row or column within the tile, and for which part of C it counts. #}
{% macro record_loaded(o, dbg, place, k, value) %}
{% if o.x == "a" %}
        {{ dbg }}(LOADED_A, row0 + {{ place }}, dbg_col(col0, BN), {{ k }}, {{ value }});
{% else %}
        {{ dbg }}(LOADED_B, dbg_row(row0, BM), col0 + {{ place }}, {{ k }}, {{ value }});
{% endif %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(buffer=0) %}
{% for o in operands %}
{% set tile = o.x ~ "_tile" ~ (buffer or "") %}
{% if o.one_by_one %}
{% for i in range(4 * o.loads) %}
{% set row %}{{ tile }}[{{ o.x }}_kk0 + {{ kk_offset(o, i) }}]{% endset %}
{% set place %}({{ o.x }}_{{ o.axis }}0 + {{ axis_offset(o, i) }}){% endset %}
        {{ tile_element(row, place) }} = {{ o.x }}_next{{ i }};
{% endfor %}
{% else %}
{% for i in range(o.loads) %}
{{ put_four(o, i, tile) }}
{%- endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro put_four(o, i, tile) %}
{% set kk, place, next = o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_next" ~ i %}
{% if o.across_k and is_f64 %}
        {{ tile }}[{{ kk }}][0][{{ place }} / 4u] = {{ next }}.xy;
        {{ tile }}[{{ kk }}][1][{{ place }} / 4u] = {{ next }}.zw;
{% elif o.across_k %}
        {{ tile }}[{{ kk }}][{{ place }} / 4u] = {{ next }};
{% else %}
{% for j in range(4) %}
        {{ tile_element(tile ~ "[" ~ kk ~ " + " ~ j ~ "u]", place) }} = {{ next }}[{{ j }}];
{% endfor %}
{% endif %}
{% endmacro %}

{# Four neighbours of a tile as a vector: it may hold them as an array. #}
{% macro as_vector(four, whole, vector="vec4f") -%}
{% if whole -%}
{{ four }}
{%- else -%}
{{ vector }}({{ four }}[0], {{ four }}[1], {{ four }}[2], {{ four }}[3])
{%- endif %}
{%- endmacro %}

{# Number `four` of a row of a tile, as a vec4f. #}
{% macro read_four(row, four, o) -%}
{% if is_f64 and o.whole -%}
vec4f({{ row }}[0][{{ four }}], {{ row }}[1][{{ four }}])
{%- elif is_f64 -%}
vec4f({% for i in range(4) %}{{ element_of_four(row, four, i) }}{{ ", " if i < 3 }}{% endfor %})
{%- else -%}
{{ as_vector(row ~ "[" ~ four ~ "]", o.whole) }}
{%- endif %}
{%- endmacro %}

{#
  Which four rows of the workgroup's tile belong to fragment row `i` of an invocation, and which columns to column `j`.
#}
{% macro four_rows(i, ly="ly") %}{{ ly }} + {{ i }}u * WY{% endmacro %}
{% macro four_columns(j) %}lx + {{ j }}u * WX{% endmacro %}

{# The first row and column of C in them. #}
{% macro first_row(i, ly="ly") %}row0 + ({{ four_rows(i, ly) }}) * 4u{% endmacro %}
{% macro first_column(j) %}col0 + ({{ four_columns(j) }}) * 4u{% endmacro %}

{#
  One kk: an outer product of TM rows and TN columns. In serpentine order the columns alternate in direction from row to
  row, so that neighbouring FMAs share an operand: 50.3 against 49.7 TFLOP/s at 8192³ on an H200. With tiles of 128 ×
  128 the driver allots registers otherwise, and plain rows win: 48.8 against 47.1 at 4096³. Column by column loses by 6
  %.
#}
{% macro multiply_step(kk, buffer, k0) %}
{% set a_row, b_row = "a_tile" ~ (buffer or "") ~ "[" ~ kk ~ "]", "b_tile" ~ (buffer or "") ~ "[" ~ kk ~ "]" %}
{% for i in range(kernel.tm // 4) %}
            let a_reg{{ i }} = {{ read_four(a_row, four_rows(i), operands[0]) }};
{% endfor %}
{% for j in range(kernel.tn // 4) %}
            let b_reg{{ j }} = {{ read_four(b_row, four_columns(j), operands[1]) }};
{% endfor %}
{% for r in range(kernel.tm) %}
{% set columns = range(kernel.tn // 4) | list %}
{% for j in (columns | reverse if kernel.order == "serpentine" and r % 2 else columns) %}
            acc_{{ r }}_{{ j }} = fma(vec4f(a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }}), b_reg{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% for i in range(kernel.tm // 4) %}
{% for j in range(kernel.tn // 4) %}
{% set sums %}{% for r in range(4) %}acc_{{ 4 * i + r }}_{{ j }}{{ ", " if r < 3 }}{% endfor %}{% endset %}
{% set place %}{{ first_row(i) }}, {{ first_column(j) }}, {{ k0 }} + {{ kk }}{% endset %}
            dbg_fragment({{ place }}, a_reg{{ i }}, b_reg{{ j }}, {{ sums }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# sums += A tile · B tile, the tiles that start at k0 along k. #}
{% macro multiply(buffer=0, k0="k0") %}
{{ for_each_kk(multiply_step, buffer, k0) }}
{% endmacro %}

{#
  `step`, a macro, for every kk. UNROLL are written out: engines guard loops, which keeps drivers from unrolling them.
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

{# A vec4 of sums → C #}
{% macro store_four(r, j) -%}
store_c4(c_base, {{ first_row(r // 4) }} + {{ r % 4 }}u, {{ first_column(j) }}, acc_{{ r }}_{{ j }});
{%- endmacro %}

{#
  A C that is not bound by vec4 goes through the tile of B, one row of every fragment at a time: so neighbouring lanes
  store neighbours of C, where each would have stored four of its own. 16 bytes apart they cost four times the traffic.
#}
{% set b_holds_elements = not operands[1].whole %}
{% set staged = kernel.wy is defined and s.vec_c is false and b_holds_elements and kernel.wy <= kernel.bk %}

{# Row `r` of every fragment → the tile of B: a line of the tile for each ly. #}
{% macro stage_rows(r, slice="") %}
{% for j in range(kernel.tn // 4) %}
{% for c in range(4) %}
    {{ element_of_four("b_tile" ~ slice ~ "[ly]", four_columns(j), c) }} = acc_{{ r }}_{{ j }}.{{ "xyzw"[c] }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# What stage_rows() left → C, by all invocations: `lane` is each one's number. #}
{% macro store_staged_rows(r, lane="lane", slice="") %}
{% set elements = kernel.wy * kernel.bn %}
{% for first in range(0, elements, kernel.invocations) %}
    {
        let at = {{ lane }} + {{ first }}u;
        let line = at / BN;
        let col = at % BN;
        let value = {{ tile_element("b_tile" ~ slice ~ "[line]", "col") }};
{% set store %}store_c(c_base, {{ first_row(r // 4, "line") }} + {{ r % 4 }}u, col0 + col, value);{% endset %}
{% if first + kernel.invocations > elements %}
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
{% set read = "the tile" if loop.first else "the rows" %}
    workgroupBarrier(); // everyone is done with {{ read }} before they are overwritten
{{ stage_rows(r) }}
    workgroupBarrier(); // the rows are complete before anyone reads them
{{ store_staged_rows(r) }}
{% else %}
{% for j in range(kernel.tn // 4) %}
    {{ store_four(r, j) }}
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}
