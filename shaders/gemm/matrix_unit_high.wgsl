// matrix_unit_high: C = A·B in float32 by three products of float16 on the GPU's matrix units.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; float32 A and B, bound as array<vec4f> if the
// contiguous length is a multiple of 4; C in float32 or float16. A line is a row of A or a column of B; for each line,
// the previous dispatch (line_scales) stores in `lines` a power of two that scales its elements, and a magnitude: an
// element of C smaller than the sum of its two lines' magnitudes is in doubt.
// Changed from matrix_unit: each element is scaled so that the largest of its line is at least 2¹⁴, and split into high
// + low when it is written to workgroup memory. The high part of B is the nearest float16; that of A is rounded away
// from zero. A·B is then high·high + high·low + low·high, within 14 units of 2⁻²⁴·|a|·|b|: 4 for A's split, 2 for B's,
// and 8 for low·low.
//
// Matrix units truncate (measured on an H200; errors of 4096 positive terms in units of 2⁻²⁴ of their sum):
// - Each product loses the bits that are more than 26 below the first bit of the sum. Since A's low parts have the
//   opposite sign of its high parts, what low·high loses makes up for what high·high loses: -525 to -207.
// - The sum loses its bits after the 24th, always towards zero.
{% if kernel.phases > 1 %}
//   Therefore the sums of even steps are stored in `sums`, and change sign before the odd steps are added, in reverse
//   order: E, then O - E, and C is 2·E + (O - E). While the sums grow from 0 to E, they lose as much as while they
//   return from -E to 0, with the opposite sign: -525 to -157, and with both to +4. The order makes both phases pass
//   through similar sums even if the data change along k.
{% endif %}
//
// Elements below 2⁻¹⁵ of their line's largest lose bits in float16. If they may matter, since the sum is too small to
// have large terms, the element of C is not stored: its bit in `doubts` is set, and the next dispatch (mend) computes
// it in float32.
// Shapes: any. Elements beyond the end of k are replaced by zero. Elements beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 4·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes if A is contiguous along k and B along n; C reuses
// all panels.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
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
{% set real, bits, integer = ("vec4f", "vec4<u32>", "vec4i") if s.vec_c else ("f32", "u32", "i32") %}
{% set bias, mantissa_bits = ("vec4i(127)", "vec4u(23u)") if s.vec_c else ("127", "23u") %}

{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels([a, b, a_low, b_low], "is contiguous in storage") }}
struct Eight { // consecutive elements of storage
    first: vec4f,
    last: vec4f,
}

{% for x, vec in (("a", s.vec_a), ("b", s.vec_b)) %}
// Eight elements of {{ x | upper }}, contiguous in storage, from `index` on
fn load_{{ x }}8(index: u32) -> Eight {
{% if vec %}
    let at = index / 4u;
    return Eight({{ x }}[at], {{ x }}[at + 1u]);
{% else %}
    return Eight(
{% for first in (0, 4) %}
        vec4f({% for j in range(first, first + 4) %}{{ x }}[index + {{ j }}u]{{ ", " if not loop.last }}{% endfor %}),
{% endfor %}
    );
{% endif %}
}

{% endfor %}
fn scaled(x: Eight, scale: Eight) -> Eight {
    return Eight(x.first * scale.first, x.last * scale.last);
}

{% if s.edge_k %}
// `x` with zeros beyond the end of k; `first` and `last` are the k of its elements
fn before_end(x: Eight, first: vec4u, last: vec4u) -> Eight {
    return Eight(
        select(vec4f(), x.first, first < vec4u(params.k)),
        select(vec4f(), x.last, last < vec4u(params.k)),
    );
}

{% endif %}
// Rounded to the eleven bits of a float16's significand: to the nearest, or away from zero. This uses integers, since a
// driver may optimise away packing and unpacking.
fn nearest(x: vec4f) -> vec4f {
    return bitcast<vec4f>((bitcast<vec4u>(x) + vec4u(0x1000u)) & vec4u(0xffffe000u));
}

fn away_from_zero(x: vec4f) -> vec4f {
    return bitcast<vec4f>((bitcast<vec4u>(x) + vec4u(0x1fffu)) & vec4u(0xffffe000u));
}

fn packed(x: Eight) -> vec4<u32> {
    return vec4<u32>(
        pack2x16float(x.first.xy), pack2x16float(x.first.zw), pack2x16float(x.last.xy), pack2x16float(x.last.zw),
    );
}

fn power_of_two(exponent: {{ integer }}) -> {{ real }} {
    return bitcast<{{ real }}>((exponent + {{ bias }}) << {{ mantissa_bits }});
}

{{ matrix.store_c4() if s.vec_c else matrix.store_c() }}
// C[row, col{{ "..col+3" if s.vec_c }}] ← `value` without its scales, or if it is in doubt, sets its bit in `doubts`
fn finish(base: u32, batch: u32, row: u32, col: u32, value: {{ real }}) {
{% set outside = matrix.guards([(s.edge_m, "row", "m"), (s.edge_n, "col", "n")]) %}
{% if outside %}
    if ({{ outside }}) {
        return;
    }
{% endif %}
    let first = batch * (params.m + params.n);
    let line = lines[first + row];
{% if s.vec_c %}
{% for j in range(4) %}
    let column{{ j }} = lines[first + params.m + col + {{ j }}u];
{% endfor %}
    let scale = vec4f(column0.x, column1.x, column2.x, column3.x);
    let least = line.y + vec4f(column0.y, column1.y, column2.y, column3.y);
    if (any((abs(value) < least) | (least > vec4f(1e38)))) {
{% else %}
    let column = lines[first + params.m + col];
    let scale = column.x;
    let least = line.y + column.y;
    if (abs(value) < least || least > 1e38) {
{% endif %}
{% set word %}doubts[(batch * params.m + row) * ((params.n + 31u) / 32u) + col / 32u]{% endset %}
        atomicOr(&{{ word }}, {{ "15u" if s.vec_c else "1u" }} << (col % 32u));
        return;
    }
    // Two factors undo the scales of row and column, since a single 2ᵉ may exceed float32's range.
{% set row_exponent %}{{ integer }}(254 - i32(bitcast<u32>(line.x) >> 23u)){% endset %}
    let e = {{ row_exponent }} - {{ integer }}(bitcast<{{ bits }}>(scale) >> {{ mantissa_bits }});
    store_c{{ "4" if s.vec_c }}(base, row, col, value * power_of_two(e / 2) * power_of_two(e - e / 2));
}

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
{{ tiles.assign_tile() }}
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
