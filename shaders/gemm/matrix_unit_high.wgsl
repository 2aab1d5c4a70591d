// matrix_unit_high: C = A·B in float32 by three products of float16 on the GPU's matrix units.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; float32 A and B; C in float32 or float16. A line
// is a row of A or a column of B; for each line, the previous dispatch (line_scales) stores in `lines` a power of two
// that scales its elements, and a magnitude: an element of C smaller than the sum of its two lines' magnitudes is in
// doubt.
// Changed from matrix_unit: each element is scaled so that the largest of its line is at least 2¹⁴, and split into high
// + low when it is written to workgroup memory. The high part of B is the nearest float16; that of A is rounded away
// from zero. A·B is then high·high + high·low + low·high, within 14 units of 2⁻²⁴·|a|·|b|: 4 for A's split, 2 for B's,
// and 8 for low·low.
//
// Matrix units truncate; the split of A makes what low·high loses make up for what high·high loses (docs/precision.md).
{% if kernel.phases > 1 %}
// For the same reason, the sums of even steps are stored in `sums`, and change sign before the odd steps are added, in
// reverse order: E, then O - E, and C is 2·E + (O - E).
{% endif %}
//
// Elements below 2⁻¹⁵ of their line's largest lose bits in float16. If they may matter, since the sum is too small to
// have large terms, the element of C is not stored: its bit in `doubts` is set, and the next dispatch (mend) computes
// it in float32.
{# What each optimisation is worth on an H200 with Dawn, in TFLOP/s of device time at 4096³ (101 without phases):
  - Two phases, with the sums of the first in storage: 90, if the index of the stored sums is computed before the loops,
    since the variable then occupies registers in them; 96 if it is computed where it is used; 99 if the sums are also
    loaded before the last step's multiplications. Loaded there, but with the early index: 88. A single loop with the
    store in a branch: 84. In two loops, the order of steps (even and odd, blocks of 4 or 16, or halves) makes no
    difference. A third of the steps in the first phase, which lets the sums pass through zero: 98, and 12 % smaller
    errors before A's high parts were rounded away from zero.
  - Before: parts of k, each in its own loop, whose sums were added with rounding: 2 parts 96, 3 parts 81, 4 parts 93
    (with the early index), with errors of up to 138 units with 4 parts, for positive operands at K = 4,096; two phases
    have 29. Sums loaded, updated and stored in storage for each part: 52 with parts of 128, 63 of 256, 70 of 512, 76 of
    1,024.
  - Four fragments of C at once in the panels of A and B instead of one, which saves three of four barriers: without
    phases 101.0 → 101.5, and 105 → 109 at 8192³.
  - Tiles at 4096³, 2048³ and 1024³, undivided: 128×128, BK 16, 64×64 per subgroup 97, 82 and 28; BK 32 and 32×64 102,
    85 and 32; 256×128, BK 16 103, 85 and 20; 128×64, BK 32 62 to 66, 62 and 42; 64×128 69, 52 and 26. A subgroup with
    128 columns runs out of registers: 10 to 40. At 1024³ `highest` reaches 40 by the wall clock, so `high` is used from
    128 tiles on.
  - unpack2x16float(pack2x16float(x)) for the nearest float16: NVIDIA's driver replaces it by x, so the second half is
    always zero and errors are those of float16. Rounding uses integers instead.
  - No effect: splitting before the barrier, between the multiplications, or after them (72.0, 71.9, 71.8 with parts of
    1,536); raster order. BK 32: 70, compared with 100 for BK 16 (with second halves of zero); 64×128 and 128×64: 70 and
    62; 256×128: 94.
#}
// Edges: elements beyond the end of k are replaced by zero. Elements beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 4·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes if A is contiguous along k and B along n; C reuses
// all panels.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{# "vec" is false, so that indices in storage count elements: load_a8() and load_b8() divide them by 4 for vec4. #}
{% set operands = [
  {"x": "a", "axis": "row", "tile": kernel.bm, "subtile": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "a_base", "vec": false, "next": "a_high"},
  {"x": "b", "axis": "col", "tile": kernel.bn, "subtile": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": s.trans_b, "loads": kernel.b_loads, "base": "b_base", "vec": false, "next": "b_high"},
] %}
{% set a, b = operands %}
{# The panels called a and b hold the high parts; the low parts have separate panels, with the same positions. #}
{% set a_low = dict(a, x="a_low", next="a_low", positions="a") %}
{% set b_low = dict(b, x="b_low", next="b_low", positions="b") %}
{% set rows, columns = kernel.sm // kernel.fm, kernel.sn // kernel.fn %}
{% set fragment_fours = kernel.fm * kernel.fn // 4 %}
{# The types of what an invocation stores at once, a vec4 of C or one element, and constants of these types. #}
{% set float, bits, integer = ("vec4f", "vec4<u32>", "vec4i") if s.vec_c else ("f32", "u32", "i32") %}
{% set bias, mantissa_bits = ("vec4i(127)", "vec4u(23u)") if s.vec_c else ("127", "23u") %}

{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels([a, b, a_low, b_low], "is contiguous in storage") }}
{% include "common/high_parts.wgsl" %}

{# The panels reused by fragments of C; each has room for one fragment of every subgroup. #}
{% set reused = [a, a_low, b, b_low][:kernel.at_once] %}
{# The index of such a fragment in its panel; `member` is the number of the subgroup within its slice. #}
{% macro c_place(o, member) -%}
{{ member }} {{ "% (BN / SN)" if o.axis == "row" else "/ (BN / SN)" }} * {{ fragment_fours }}u
{%- endmacro %}

{% for o in reused %}
{% set panel %}member {{ "/" if o.axis == "row" else "%" }} (BN / SN){% endset %}
// Vec4 `i` of the fragment of C of subgroup `member` that is in {{ o.x | upper }}'s panels
{%- if kernel.slices > 1 %}, added to those of the other slices{% endif %}

fn read_{{ o.x }}(member: u32, i: u32) -> vec4f {
{% for slice in range(kernel.slices) %}
{% set first_panel %}{% if slice %}{{ slice * o.tile // o.subtile }}u + {% endif %}{% endset %}
{% set x %}bitcast<vec4f>({{ o.x }}_tile[{{ first_panel }}{{ panel }}][{{ c_place(o, "member") }} + i]){% endset %}
    {{ "return" if kernel.slices == 1 else "let slice" ~ slice ~ " =" }} {{ x }};
{% endfor %}
{% if kernel.slices > 1 %}
    return {% for slice in range(kernel.slices) %}{{ " + " if slice }}slice{{ slice }}{% endfor %};
{% endif %}
}

{% endfor %}
{# How many times all invocations that share a fragment store a vec4 or an element of it, and which one each stores. #}
{% set sharers, pieces = kernel.slices * kernel.lanes, fragment_fours * (1 if s.vec_c else 4) %}
{% set turns = (pieces + sharers - 1) // sharers %}
{% macro piece(turn) %}sharer{% if turn %} + {{ turn * sharers }}u{% endif %}{% endmacro %}

{% if kernel.phases > 1 %}
{# The sums of even steps of that piece, if its fragment's are at `place` #}
{% macro read_even(place, piece) -%}
{% set slice_fours = fragments.slice_subgroups * kernel.fragments * fragment_fours %}
{% for slice in range(kernel.slices) -%}
{% set at %}{{ place }} + {% if slice %}{{ slice * slice_fours }}u + {% endif %}{% endset -%}
{{ " + " if slice }}
{%- if s.vec_c %}bitcast<vec4f>(sums[{{ at }}{{ piece }}])
{%- else %}bitcast<f32>(sums[{{ at }}({{ piece }}) / 4u][({{ piece }}) % 4u]){% endif %}
{%- endfor %}
{%- endmacro %}
{% endif %}

{# The scales of the lines that an invocation loads, the same in every step. #}
{% macro load_scales() %}
{% for o in operands %}
    let {{ o.x }}_lines = workgroup.z * (params.m + params.n){{ " + params.m" if o.x == "b" }};
{% for i in range(o.loads) %}
{% set place = o.x ~ "_lines + " ~ o.x ~ "_" ~ o.axis ~ i %}
{% if o.along_k %}
    let {{ o.x }}_one{{ i }} = vec4f(lines[{{ place }}].x);
    let {{ o.x }}_scale{{ i }} = Eight({{ o.x }}_one{{ i }}, {{ o.x }}_one{{ i }});
{% else %}
    let {{ o.x }}_scale{{ i }} = Eight(
{% for first in (0, 4) %}
        vec4f(
{%- for j in range(first, first + 4) %}lines[{{ place }} + {{ j }}u].x{{ ", " if not loop.last }}{% endfor %}),
{% endfor %}
    );
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# registers → workgroup memory, split into high and low parts #}
{% macro write_tiles(k0) %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // elements beyond the end of k must be zero
{% for o in operands %}
{% for i in range(o.loads) %}
{% set k %}vec4u({{ k0 }} + {{ o.x }}_k{{ i }}){% endset %}
{% if o.along_k %}
{% set first, last = k ~ " + vec4u(0u, 1u, 2u, 3u)", k ~ " + vec4u(4u, 5u, 6u, 7u)" %}
            {{ o.x }}_next{{ i }} = before_end({{ o.x }}_next{{ i }}, {{ first }}, {{ last }});
{% else %}
            {{ o.x }}_next{{ i }} = before_end({{ o.x }}_next{{ i }}, {{ k }}, {{ k }});
{% endif %}
{% endfor %}
{% endfor %}
        }
{% endif %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set eight, near, rounded = o.x ~ "_eight" ~ i, o.x ~ "_near" ~ i, "away_from_zero" if o.x == "a" else "nearest" %}
        let {{ eight }} = scaled({{ o.x }}_next{{ i }}, {{ o.x }}_scale{{ i }});
        let {{ near }} = Eight({{ rounded }}({{ eight }}.first), {{ rounded }}({{ eight }}.last));
        let {{ o.x }}_high{{ i }} = packed({{ near }});
{% set rest %}Eight({{ eight }}.first - {{ near }}.first, {{ eight }}.last - {{ near }}.last){% endset %}
        let {{ o.x }}_low{{ i }} = packed({{ rest }});
{% endfor %}
{% endfor %}
{{ fragments.write_tiles([a, b, a_low, b_low]) }}
{% endmacro %}

{# sums += tile of A · tile of B. Consecutive instructions add to different fragments, to not wait for each other. #}
{% macro multiply_tiles() %}
{% for kk in range(kernel.share // kernel.fk) %}
        { // kk = {{ kk * kernel.fk }}
{% for r in range(rows) %}
{{ fragments.load_fragment(a, r, kk) }}
{{ fragments.load_fragment(a_low, r, kk) }}
{% endfor %}
{% for q in range(columns) %}
{{ fragments.load_fragment(b, q, kk) }}
{{ fragments.load_fragment(b_low, q, kk) }}
{% for left, right in (("a_low", "b"), ("a", "b_low"), ("a", "b")) %}
{% for r in range(rows) %}
{% set acc = "acc_" ~ r ~ "_" ~ q %}
            {{ acc }} = subgroupMatrixMultiplyAccumulate({{ left }}_{{ r }}, {{ right }}_{{ q }}, {{ acc }});
{% endfor %}
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{#
  The index in `sums`, in vec4, of a subgroup's fragments. It is computed where it is needed, because a variable that is
  kept during the loops costs registers: 88 TFLOP/s, 99 without it (4096³, H200).
#}
{% macro place_in_sums(subgroup) -%}
{% set number = "((workgroup.z * grid.y + workgroup.y) * grid.x + workgroup.x) * " ~ kernel.subgroups ~ "u" -%}
({{ number }} + {{ subgroup }}) * {{ kernel.fragments * fragment_fours }}u
{%- endmacro %}

{# One step: loading the tiles at k0 overlaps multiplying the current ones. #}
{% macro step() %}
{{ fragments.load_next(operands, "k0") }}
{{ multiply_tiles() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ write_tiles("k0") }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ layout.assign_tile() }}
{{ matrix.bases() }}
{{ fragments.plan_loads(operands) }}
{{ load_scales() }}
{{ fragments.declare_sums() }}
{%- for o in operands %}
{% for i in range(o.loads) %}
    var {{ o.x }}_next{{ i }}: Eight;
{% endfor %}
{% endfor %}
{{ fragments.load_next(operands, "0u") }}
    {
{{ write_tiles("0u") }}
    }
    workgroupBarrier(); // the first tiles are complete before anyone reads them
{% if kernel.phases == 1 %}
    for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ step() }}
    }
{% else %}
    for (var k0 = 2u * BK; k0 < params.k; k0 += 2u * BK) {
{{ step() }}
    }
    let place = {{ place_in_sums("subgroup") }};
{% for r in range(rows) %}
{% for q in range(columns) %}
{% set acc, at = "acc_" ~ r ~ "_" ~ q, "place + " ~ (r * columns + q) * fragment_fours ~ "u" %}
    subgroupMatrixStore<row_major>(&sums, {{ at }}, {{ acc }}, FN / 4u);
    {{ acc }} = subgroupMatrixScalarMultiply({{ acc }}, -1.0);
{% endfor %}
{% endfor %}
    // The last even step, whose tiles are in workgroup memory, is added in this phase.
    for (var k0 = ((params.k + BK - 1u) / (2u * BK) * 2u - 1u) * BK; k0 < params.k; k0 -= 2u * BK) { // until it wraps
{{ step() }}
    }
{% endif %}
{% if kernel.slices > 1 %}
    let member = subgroup % {{ fragments.slice_subgroups }}u; // this subgroup within its slice
    let sharer = slice * LANES + subgroup_lane;
{% else %}
    let member = subgroup;
    let sharer = subgroup_lane;
{% endif %}
{% if kernel.phases > 1 %}
    // The sums of even steps are loaded before the last step, which hides the latency: 99 TFLOP/s, 96 if they are
    // loaded after it (4096³, H200).
    storageBarrier(); // they are stored before other invocations read them
    let even_place = {{ place_in_sums("member") }};
{% for r in range(rows) %}
{% for q in range(columns) %}
{% for turn in range(turns) %}
{% set fragment_place = "even_place + " ~ (r * columns + q) * fragment_fours ~ "u" %}
    let even_{{ r }}_{{ q }}_{{ turn }} = {{ read_even(fragment_place, piece(turn)) }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endif %}
{{ multiply_tiles() }}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
    workgroupBarrier(); // everyone is done with the tiles before C overwrites them
{% for r in range(rows) %}
{% for first in range(0, columns, kernel.at_once) %}
{% for o in reused %}
{% set panel = o.x ~ "_tile[" ~ fragments.subgroup_panel(o) ~ "]" %}
{{ fragments.store_fragment("acc_" ~ r ~ "_" ~ (first + loop.index0), panel, c_place(o, "member"), "FN / 4u") }}
{%- endfor %}
    workgroupBarrier(); // the fragments are complete before invocations read them
{% for o in reused %}
{% set q = first + loop.index0 %}
{% for turn in range(turns) %}
{% if pieces % sharers %}
    if ({{ piece(turn) }} < {{ pieces }}u) {
{% else %}
    {
{% endif %}
        let at = {{ "4u * (" ~ piece(turn) ~ ")" if s.vec_c else piece(turn) }}; // in the fragment
{% set value %}read_{{ o.x }}(member, at / 4u){% if not s.vec_c %}[at % 4u]{% endif %}{% endset %}
{% set even %}{% if kernel.phases > 1 %}2.0 * even_{{ r }}_{{ q }}_{{ turn }} + {% endif %}{% endset %}
{% set place %}row + {{ r * kernel.fm }}u + at / FN, col + {{ q * kernel.fn }}u + at % FN{% endset %}
        finish(c_base, workgroup.z, {{ place }}, {{ even }}{{ value }});
    }
{% endfor %}
{% endfor %}
{% if not (r == rows - 1 and loop.last) %}
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endif %}
{% endfor %}
{% endfor %}
}
