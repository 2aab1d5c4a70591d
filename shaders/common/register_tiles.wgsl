{#
  Products with register tiles: the macros of `blocked` and of the stages that build on it.

  A workgroup computes a BM × BN tile of C and advances along k in steps of BK. In each step it loads a tile of A
  (BM × BK) and one of B (BK × BN) from storage into registers, writes both to workgroup memory, and multiplies them;
  the sums stay in registers until the end. A stage calls the macros in this order:

    declarations()                              constants, the tiles, functions that load from storage and store to C
    assign_tile(), invocation_position()        this workgroup's tile of C; this invocation's position in it
    plan_loads()                                the elements that this invocation loads in every step
    declare_sums(), declare_registers()         registers for the sums, and for elements between storage and the tiles
    load_next(k0)                               storage → registers a_next…, b_next…
    write_tiles()                               registers → workgroup memory
    multiply_tiles()                            sums += tile of A · tile of B
    store_sums()                                sums → C

  The tile of C consists of fragments of 4 × 4 elements, which the WY × WX invocations of a workgroup share: invocation
  (ly, lx) computes TM/4 × TN/4 of them, spread over the tile so that neighbouring invocations read consecutive vec4:

                lx = 0 1 2 …   0 1 2 …         rows    (ly + i*WY)*4 .. +3,  i < TM/4
        ly = 0     ■ □ □       ■ □ □           columns (lx + j*WX)*4 .. +3,  j < TN/4
             1     □ □ □       □ □ □
             0     ■ □ □       ■ □ □           With a contiguous TM × TN per invocation, bank conflicts cost
             1     □ □ □       □ □ □           37.6 against 44.7 TFLOP/s (4096³ on an H200).

  The sums of an invocation are separate variables, acc_R_J for row R and vec4 J of columns, since drivers may keep an
  indexed array in memory instead of registers.

  Both tiles are k-major, [kk][row] and [kk][col], so that one vec4 load reads four rows or columns of a fragment. If
  storage is contiguous across k (B as (k, n), A transposed), a vec4 from storage is written to the tile as it is. If
  storage is contiguous along k, its four elements are written to four rows of the tile. Such a tile is an array of
  array<f32, 4>, not of vec4: WGSL lets a store to one component of a vec4 write all four (Metal and D3D do), so
  invocations that write different components of one vec4 would race. Drivers still read the four f32 as one vector:
  48.2 TFLOP/s at 4096³ on an H200, against 46.1 if each invocation gathers four rows of A into a vec4, and 42 if it
  transposes 4 × 4 blocks in registers.

  Storage that cannot be bound by vec4 is loaded element by element: neighbouring invocations load consecutive elements,
  and rows of the tile are padded by a vec4, so that elements along k are written to different banks of workgroup
  memory.

  Loads have no branches. Elements loaded from beyond the last row or column only reach sums that are never stored, and
  the engine keeps such loads within the binding; elements beyond the end of k are replaced by zero.

  A tile of float64 stores the two halves of its vec4 separately, [kk][half][row/4], so that an invocation reads 16
  bytes at once. Reads of 16 bytes at a stride of 32 have bank conflicts: 17.7 against 20.7 TFLOP/s at 4096³ with tiles
  of 64 × 128 × 8. Two more arrangements avoid conflicts (4096³ on the same GPU, tiles of 128 × 128 × 16):
  - of 32 consecutive invocations, 4 × 8 fragments, neighbours share columns, and every second one rows (interleaved):
    21.6 → 22.3 TFLOP/s;
  - if storage is contiguous along k, the vec4 of a tile's row are permuted differently for every four kk (swizzle), so
    that invocations write elements of different kk to different banks: 22.3 → 22.9; both together, with B transposed,
    18.7 → 21.1.

  Measured on the same GPU and rejected: for float64, loading from neighbouring lines of storage, which avoids bank
  conflicts when writing data that is contiguous along k (−3 %); padding the rows of tiles of vec4 (−2 %); for float64,
  writing pairs of rows as vec2 (−2 %), sums as scalars (nn 1 %, tn −3 %), loading fragments for the next kk (0), and a
  second buffer in workgroup memory without conditions in the loop (nn −6 %, tn 1 %). Without any load, it reaches 25.5.
#}
{% import "common/matrix.wgsl" as matrix with context %}

{#
  What the macros know of each operand:

    x, axis                  its letter, and the axis that it shares with C: row or col
    base, origin, stride     variables: index of its first element, first row or column of the tile, row stride
    extent, length           extent of its tile along that axis: the constant's name, and its value
    vec                      whether storage is bound by vec4
    across_k                 whether storage is contiguous across k (along m or n), not along k
    by_element               whether storage is loaded element by element
    vec4_tile                whether its tile consists of vec4, not of arrays of four
    swizzled                 whether the vec4 of its tile's rows are permuted
    loads                    vec4 that an invocation loads per step; if by_element, it loads 4·loads elements

  by_element compares by "is false", since `s` of quantized stages, which need other operands, has no vec_a. B without a
  vector axis consists of words of weights, from which the stage's load_b4() unpacks four elements.
#}
{% set a_by_element = s.vec_a is false %}
{% set b_by_element = s.vec_b is false and kernel.b_vector_axis != "" %}
{% set is_f64 = s.dtype is defined and s.dtype.itemsize == 8 %}
{% set tiles_f64 = is_f64 and kernel.wx is defined %}
{% set interleaved = tiles_f64 and kernel.wx % 8 == 0 and kernel.wy % 4 == 0 %}
{% set operands = [
  {"x": "a", "axis": "row", "base": "a_base", "origin": "row0", "stride": "params.lda",
   "extent": "BM", "length": kernel.bm, "vec": s.vec_a, "across_k": s.trans_a,
   "by_element": a_by_element, "vec4_tile": s.trans_a and not a_by_element, "loads": kernel.a_loads,
   "swizzled": tiles_f64 and not (s.trans_a or a_by_element) and kernel.bm % 32 == 0},
  {"x": "b", "axis": "col", "base": "b_base", "origin": "col0", "stride": "params.ldb",
   "extent": "BN", "length": kernel.bn, "vec": s.vec_b, "across_k": not s.trans_b,
   "by_element": b_by_element, "vec4_tile": not s.trans_b and not b_by_element, "loads": kernel.b_loads,
   "swizzled": tiles_f64 and s.trans_b and not b_by_element and kernel.bn % 32 == 0},
] %}

{# All declarations at module scope; the parameters are those of tiles_and_loads(). #}
{% macro declarations(buffers=1, slices=1, load_b4="") %}
{{ tiles_and_loads(buffers, slices, load_b4) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endmacro %}

{#
  The tiles, with `buffers` copies for each of `slices` groups of invocations, and the functions that load from storage;
  `load_b4`, if given, is the text of the function for B.
#}
{% macro tiles_and_loads(buffers=1, slices=1, load_b4="") %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

// Nested arrays let the compiler hoist the engine's bounds checks out of the inner loop, whose indices are constants
// except for the invocation's position.
{% for buffer in range(buffers) %}
{% for o in operands %}
var<workgroup> {{ o.x }}_tile{{ buffer or "" }}: {{ tile_type(o, slices) }}; //
{%- if slices > 1 %} [slice]{% endif %} [kk]{{ "[half]" if is_f64 }}[{{ o.axis }}/4]
{% endfor %}
{% endfor %}

{{ load_function(operands[0]) }}
{{ load_b4 or load_function(operands[1]) }}
{% endmacro %}

{#
  The type of a tile: k-major, [slice][kk][half][vec4], without the first and third index if there is only one. Like all
  of a template, it is written for f32: rendering for float64 replaces vec2f by vec2<f64>.
#}
{% macro tile_type(o, slices) %}
{% set width = 2 if is_f64 else 4 %}
{% set four = "vec" ~ width ~ "f" if o.vec4_tile else "array<f32, " ~ width ~ ">" %}
{% set row %}array<{{ four }}, {{ o.extent }} / 4u{{ " + 1u" if o.by_element }}>{% endset %}
{% set tile %}array<{{ "array<" ~ row ~ ", 2>" if is_f64 else row }}, BK>{% endset %}
{{ "array<" ~ tile ~ ", SLICES>" if slices > 1 else tile }}
{%- endmacro %}

{# Element `at`, an expression, of a row of a tile. #}
{% macro tile_element(row, at) -%}
{% if is_f64 -%}
{{ row }}[{{ at }} % 4u / 2u][{{ at }} / 4u][{{ at }} % 2u]
{%- else -%}
{{ row }}[{{ at }} / 4u][{{ at }} % 4u]
{%- endif %}
{%- endmacro %}

{# Component `i` of vec4 `index` of a row of a tile; `i` is a number, `index` an expression. #}
{% macro vec4_component(row, index, i) -%}
{{ row }}
{%- if is_f64 %}[{{ i // 2 }}][{{ index }}][{{ i % 2 }}]{% else %}[{{ index }}][{{ i }}]{% endif %}
{%- endmacro %}

{#
  The function that loads a vec4 or an element of an operand; `index` counts vec4 or elements, as it is bound. Only a
  stage's load_b4() uses the row or column.
#}
{% macro load_function(o) %}
{% set zero = ", zero beyond the end of k" if s.edge_k else "" %}
{% if o.vec %}
{% set place, k = (o.axis ~ "..+3", "k") if o.across_k else (o.axis, "k..+3") %}
// Four consecutive elements of storage,
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
    let tile = workgroup.x + workgroup.y * grid.x;
{{ count_tiles() }}
    if (tile >= tiles_m * tiles_n) {
        return;
    }
{{ locate_tile() }}
{% endmacro %}

{# The invocation's position in the tile; `index` is its number among the WY × WX that share the tile. #}
{% macro invocation_position(index="local_index") %}
{% if interleaved %}
    let lane = {{ index }} % 32u;
    let lx = {{ index }} / 32u % (WX / 8u) * 8u + lane / 2u % 8u;
    let ly = {{ index }} / 32u / (WX / 8u) * 4u + lane / 16u * 2u + lane % 2u;
{% else %}
    let lx = {{ index }} % WX;
    let ly = {{ index }} / WX;
{% endif %}
{% endmacro %}

{#
  The vec4 that this invocation loads: for each, its position in the tile (kk, and row or col), and its index in storage
  in the first step (start). Neighbouring invocations load consecutive vec4. Starts are computed once, so that a load in
  the loop costs one addition.

  An operand loaded element by element has one position and start; kk_offset() and axis_offset() are the distances of
  the other elements from it. `index` is as in invocation_position().
#}
{% macro plan_loads(index="local_index") %}
{% for o in operands %}
{% set by_four, times_four = ("", "") if o.by_element else (" / 4u", " * 4u") %}
{% for i in range(1 if o.by_element else o.loads) %}
{% set at, kk, place = o.x ~ "_index" ~ i, o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i %}
    let {{ at }} = {{ index }} + {{ i * kernel.sharers }}u;
{% if o.across_k %}
    let {{ kk }} = {{ at }} / ({{ o.extent }}{{ by_four }});
    let {{ place }} = {{ at }} % ({{ o.extent }}{{ by_four }}){{ times_four }};
{% set start %}{{ o.base }} + {{ kk }} * {{ o.stride }} + {{ o.origin }} + {{ place }}{% endset %}
{% else %}
    let {{ kk }} = {{ at }} % (BK{{ by_four }}){{ times_four }};
    let {{ place }} = {{ at }} / (BK{{ by_four }});
{% set start %}{{ o.base }} + ({{ o.origin }} + {{ place }}) * {{ o.stride }} + {{ kk }}{% endset %}
{% endif %}
    let {{ o.x }}_start{{ i }} = ({{ start }}){{ " / 4u" if o.vec }};
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  The distance of an invocation's element `i` from its first one, along k and along the operand's other axis, for an
  operand loaded element by element. At a time, all invocations of a tile load one run of its elements: several whole
  lines of the tile, or an even part of one line, as the kernel's constraints() require.
#}
{% macro kk_offset(o, i) -%}
{{ i * kernel.sharers // o.length if o.across_k else i * kernel.sharers % kernel.bk }}u
{%- endmacro %}

{% macro axis_offset(o, i) -%}
{{ i * kernel.sharers % o.length if o.across_k else i * kernel.sharers // kernel.bk }}u
{%- endmacro %}

{# Variables for the sums of an invocation. #}
{% macro declare_sums() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% endmacro %}

{# Variables for the elements that an invocation loads per step. #}
{% macro declare_registers() %}
{% for o in operands %}
{% for i in range(4 * o.loads if o.by_element else o.loads) %}
    var {{ o.x }}_next{{ i }}: {{ "f32" if o.by_element else "vec4f" }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers: the tiles whose first inner element is k0 #}
{% macro load_next(k0) %}
{% for o in operands %}
{% if o.by_element %}
{% for i in range(4 * o.loads) %}
{{ load_element(o, i, k0) }}
{%- endfor %}
{% else %}
{% for i in range(o.loads) %}
{{ load_vec4(o, i, k0) }}
{%- endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro load_element(o, i, k0) %}
{% set next, offset = o.x ~ "_next" ~ i, axis_offset(o, i) %}
{% set k %}{{ k0 }} + {{ kk_offset(o, i) }}{% endset %}
{% set ahead = "(" ~ k ~ ") * " ~ o.stride ~ " + " ~ offset if o.across_k else offset ~ " * " ~ o.stride ~ " + " ~ k %}
        {{ next }} = load_{{ o.x }}({{ o.x }}_start0 + {{ ahead }}, {{ k }} + {{ o.x }}_kk0);
{{ record_loaded(o, "dbg", o.x ~ "_" ~ o.axis ~ "0 + " ~ offset, k ~ " + " ~ o.x ~ "_kk0", next) }}
{%- endmacro %}

{% macro load_vec4(o, i, k0) %}
{% set next, place = o.x ~ "_next" ~ i, o.x ~ "_" ~ o.axis ~ i %}
{% set k %}{{ k0 }} + {{ o.x }}_kk{{ i }}{% endset %}
{% set start = o.x ~ "_start" ~ i ~ " + " ~ step_offset(o, k0) %}
        {{ next }} = load_{{ o.x }}4({{ start }}, {{ o.origin }} + {{ place }}, {{ k }});
{% set dbg = "dbg_k" if not o.across_k else "dbg_m" if o.x == "a" else "dbg_n" %}
{{ record_loaded(o, dbg, place, k, next) }}
{%- endmacro %}

{# The distance in storage from step 0 to the step at k0, in units of the binding. #}
{% macro step_offset(o, k0) -%}
{% if o.across_k -%}
{{ k0 }} * {{ "(" ~ o.stride ~ " / 4u)" if o.vec else o.stride }}
{%- else -%}
{{ "(" ~ k0 ~ " / 4u)" if o.vec else k0 }}
{%- endif %}
{%- endmacro %}

{# For debug shaders: record a value loaded at row or column `place` of the tile; `dbg` is from common/debug.wgsl. #}
{% macro record_loaded(o, dbg, place, k, value) %}
{% if o.x == "a" %}
        {{ dbg }}(LOADED_A, row0 + {{ place }}, dbg_col(col0, BN), {{ k }}, {{ value }});
{% else %}
        {{ dbg }}(LOADED_B, dbg_row(row0, BM), col0 + {{ place }}, {{ k }}, {{ value }});
{% endif %}
{% endmacro %}

{# registers → workgroup memory. `buffer` follows the tiles' names: a number if not 0, or an index "[slice]". #}
{% macro write_tiles(buffer=0) %}
{% for o in operands %}
{% set tile = o.x ~ "_tile" ~ (buffer or "") %}
{% if o.by_element %}
{% for i in range(4 * o.loads) %}
{% set row %}{{ tile }}[{{ o.x }}_kk0 + {{ kk_offset(o, i) }}]{% endset %}
{% set place %}({{ o.x }}_{{ o.axis }}0 + {{ axis_offset(o, i) }}){% endset %}
        {{ tile_element(row, place) }} = {{ o.x }}_next{{ i }};
{% endfor %}
{% else %}
{% for i in range(o.loads) %}
{{ write_vec4(o, i, tile) }}
{%- endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{# Index `at` of a vec4 in row `kk` of a tile, which is permuted in groups of eight if the tile is swizzled. #}
{% macro swizzle(o, at, kk) -%}
{{ "(" ~ at ~ ") ^ ((" ~ kk ~ ") / 4u % 4u * 2u)" if o.swizzled else at }}
{%- endmacro %}

{% macro write_vec4(o, i, tile) %}
{% set kk, place, next = o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_next" ~ i %}
{% if o.across_k and is_f64 %}
        {{ tile }}[{{ kk }}][0][{{ place }} / 4u] = {{ next }}.xy;
        {{ tile }}[{{ kk }}][1][{{ place }} / 4u] = {{ next }}.zw;
{% elif o.across_k %}
        {{ tile }}[{{ kk }}][{{ place }} / 4u] = {{ next }};
{% elif o.swizzled %}
{% for j in range(4) %}
{% set at %}[{{ place }} % 4u / 2u][{{ swizzle(o, place ~ " / 4u", kk) }}][{{ place }} % 2u]{% endset %}
        {{ tile }}[{{ kk }} + {{ j }}u]{{ at }} = {{ next }}[{{ j }}];
{% endfor %}
{% else %}
{% for j in range(4) %}
        {{ tile_element(tile ~ "[" ~ kk ~ " + " ~ j ~ "u]", place) }} = {{ next }}[{{ j }}];
{% endfor %}
{% endif %}
{% endmacro %}

{# An element of a tile, vec4 or array of four, as a vector. #}
{% macro as_vector(four, is_vector, vector="vec4f") -%}
{% if is_vector -%}
{{ four }}
{%- else -%}
{{ vector }}({{ four }}[0], {{ four }}[1], {{ four }}[2], {{ four }}[3])
{%- endif %}
{%- endmacro %}

{# Vec4 `index` of a row of a tile, as a vec4f. #}
{% macro read_vec4(row, index, o) -%}
{% if is_f64 and o.vec4_tile -%}
vec4f({{ row }}[0][{{ index }}], {{ row }}[1][{{ index }}])
{%- elif is_f64 -%}
vec4f({% for i in range(4) %}{{ vec4_component(row, index, i) }}{{ ", " if i < 3 }}{% endfor %})
{%- else -%}
{{ as_vector(row ~ "[" ~ index ~ "]", o.vec4_tile) }}
{%- endif %}
{%- endmacro %}

{# An invocation's `i`-th four rows and `j`-th four columns, as vec4 indices in the tiles of A and B. #}
{% macro row_vec4(i, ly="ly") %}{{ ly }} + {{ i }}u * WY{% endmacro %}
{% macro col_vec4(j) %}lx + {{ j }}u * WX{% endmacro %}

{# The first row of C of these four rows, the first column of these four columns. #}
{% macro first_row(i, ly="ly") %}row0 + ({{ row_vec4(i, ly) }}) * 4u{% endmacro %}
{% macro first_column(j) %}col0 + ({{ col_vec4(j) }}) * 4u{% endmacro %}

{#
  One kk: the outer product of TM elements of A and TN elements of B. In serpentine order every second row goes through
  the columns backwards, so that consecutive FMAs share an operand: 50.3 against 49.7 TFLOP/s at 8192³ on an H200. With
  tiles of 128 × 128 the driver allocates registers differently, and order=rows is faster: 48.8 against 47.1 at 4096³.
  Going through columns first is 6 % slower.
#}
{% macro multiply_step(kk, buffer, k0) %}
{% set a_row, b_row = "a_tile" ~ (buffer or "") ~ "[" ~ kk ~ "]", "b_tile" ~ (buffer or "") ~ "[" ~ kk ~ "]" %}
{% for i in range(kernel.tm // 4) %}
            let a_reg{{ i }} = {{ read_vec4(a_row, swizzle(operands[0], row_vec4(i), kk), operands[0]) }};
{% endfor %}
{% for j in range(kernel.tn // 4) %}
            let b_reg{{ j }} = {{ read_vec4(b_row, swizzle(operands[1], col_vec4(j), kk), operands[1]) }};
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

{# sums += tile of A · tile of B; k0 is their first inner element, for debug shaders. #}
{% macro multiply_tiles(buffer=0, k0="k0") %}
{{ for_each_kk(multiply_step, buffer, k0) }}
{% endmacro %}

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

{# A vec4 of sums → C #}
{% macro store_vec4(r, j) -%}
store_c4(c_base, {{ first_row(r // 4) }} + {{ r % 4 }}u, {{ first_column(j) }}, acc_{{ r }}_{{ j }});
{%- endmacro %}

{#
  If C is not bound by vec4, sums are staged in the tile of B, one row of every fragment at a time, so that neighbouring
  invocations store consecutive elements of C. Stores of single elements 16 bytes apart cost four times the traffic. The
  tile must have a line for each of the WY rows, and consist of arrays: elements of a vec4 are not written separately.
#}
{% set b_holds_elements = not operands[1].vec4_tile %}
{% set staged = kernel.wy is defined and s.vec_c is false and b_holds_elements and kernel.wy <= kernel.bk %}

{# Row `r` of each invocation's sums → the tile of B: one line of the tile for each ly. #}
{% macro stage_rows(r, slice="") %}
{% for j in range(kernel.tn // 4) %}
{% for c in range(4) %}
    {{ vec4_component("b_tile" ~ slice ~ "[ly]", col_vec4(j), c) }} = acc_{{ r }}_{{ j }}.{{ "xyzw"[c] }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# The rows that stage_rows() wrote → C, by all invocations of the workgroup. #}
{% macro store_staged_rows(r, slice="") %}
{% set elements = kernel.wy * kernel.bn %}
{% for first in range(0, elements, kernel.invocations) %}
    {
        let at = local_index + {{ first }}u;
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

{# The sums → C, through the tile of B if `staged`. #}
{% macro store_sums(staged=false) %}
{% for r in range(kernel.tm) %}
{% if staged %}
{% set read = "the tile" if loop.first else "the rows" %}
    workgroupBarrier(); // everyone is done with {{ read }} before they are overwritten
{{ stage_rows(r) }}
    workgroupBarrier(); // the rows are complete before anyone reads them
{{ store_staged_rows(r) }}
{% else %}
{% for j in range(kernel.tn // 4) %}
    {{ store_vec4(r, j) }}
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}
