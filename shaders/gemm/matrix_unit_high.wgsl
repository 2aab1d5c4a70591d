// matrix_unit_high: C = A·B in float32 by three products of float16 on the GPU's matrix units.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row stride; float32 A and B, bound as array<vec4f> if the
// contiguous length is a multiple of 4; C in float32 or float16. A line is a row of A or a column of B; for each line,
// the previous dispatch (line_scales) stores in `lines` a power of two that scales its elements, and a magnitude: an
// element of C smaller than the sum of its two lines' magnitudes is in doubt.
// Changed from matrix_unit: each element is scaled so that the largest of its line is at least 2¹⁴, and split into high
// + low when it is written to workgroup memory: the nearest float16, and the float16 nearest to the remainder. A·B is
// then high·high + high·low + low·high, within 2⁻²² of |a|·|b|; low·low is smaller than that.
{% if kernel.runs > 1 %}
// Matrix units truncate: a term added to a large sum loses its last bits, always towards zero. Therefore k is divided
// into RUNS parts, each summed in fragments separately. The sums of all parts but the last are stored in `sums`, and
// added at the end, with rounding. Each part has its own loop: 97 TFLOP/s without parts, 84 with a loop in a loop.
{% endif %}
// Elements below 2⁻¹⁵ of their line's largest lose bits in float16. If they may matter, since the sum is too small to
// have large terms, the element of C is not stored: its bit in `doubts` is set, and the next dispatch (mend) computes
// it in float32.
// Shapes: any. Elements beyond the end of k are replaced by zero. Elements beyond the other edges may be any that the
// engine's bounds checks return; they only reach sums that are not stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 4·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes if A is contiguous along k and B along n; C reuses
// A's panels.
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
// Rounded to the eleven bits of a float16's significand, with integers, since a driver may optimise away packing and
// unpacking.
fn rounded(x: vec4f) -> vec4f {
    return bitcast<vec4f>((bitcast<vec4u>(x) + vec4u(0x1000u)) & vec4u(0xffffe000u));
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

{# Vec4 `i` of the fragment of C of subgroup `member` of a slice, which is in A's panels. #}
{% macro read_vec4(slice) -%}
{% set panel %}{% if slice %}{{ slice * kernel.bm // kernel.sm }}u + {% endif %}member / (BN / SN){% endset %}
bitcast<vec4f>(a_tile[{{ panel }}][member % (BN / SN) * {{ fragment_fours }}u + i])
{%- endmacro %}

{# Vec4 `i` of the same fragment's sums over an earlier part of k, from `sums`. #}
{% macro read_part(part, slice) -%}
{% set after_parts %}{% if part %} + {{ part }}u * between{% endif %}{% endset %}
{% set slice_fours = fragments.slice_subgroups * kernel.fragments * fragment_fours %}
bitcast<vec4f>(sums[place + i{{ after_parts }}{% if slice %} + {{ slice * slice_fours }}u{% endif %}])
{%- endmacro %}

{% set of_parts = ", place: u32, between: u32" if kernel.runs > 1 else "" %}
// A fragment in workgroup memory → C, from (row, col) on
{%- if kernel.slices > 1 %}, added to those of the other slices{% endif %}
{%- if kernel.runs > 1 %} and to those of other parts of k{% endif %}
{%- if not s.vec_c %}.
// Neighbouring invocations store single elements.{% endif %}

fn store_fragment(base: u32, batch: u32, row: u32, col: u32, member: u32, sharer: u32{{ of_parts }}) {
{% if s.vec_c %}
    for (var i = sharer; i < {{ fragment_fours }}u; i += SLICES * LANES) {
{% else %}
    for (var element = sharer; element < FM * FN; element += SLICES * LANES) {
        let i = element / 4u;
{% endif %}
        {{ "var" if kernel.slices > 1 or kernel.runs > 1 else "let" }} value = {{ read_vec4(0) }};
{% for slice in range(1, kernel.slices) %}
        value += {{ read_vec4(slice) }};
{% endfor %}
{% for part in range(kernel.runs - 1) %}
{% for slice in range(kernel.slices) %}
        value += {{ read_part(part, slice) }};
{% endfor %}
{% endfor %}
{% if s.vec_c %}
        finish(base, batch, row + 4u * i / FN, col + 4u * i % FN, value);
{% else %}
        finish(base, batch, row + element / FN, col + element % FN, value[element % 4u]);
{% endif %}
    }
}

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
{% set eight, near = o.x ~ "_eight" ~ i, o.x ~ "_near" ~ i %}
        let {{ eight }} = scaled({{ o.x }}_next{{ i }}, {{ o.x }}_scale{{ i }});
        let {{ near }} = Eight(rounded({{ eight }}.first), rounded({{ eight }}.last));
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

{# Steps of k up to `end`: loading the next tiles overlaps multiplying the current ones. #}
{% macro multiply_up_to(end) %}
    for (; k0 < {{ end }}; k0 += BK) {
{{ fragments.load_next(operands, "k0") }}
{{ multiply_tiles() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ write_tiles("k0") }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
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
    var k0 = BK;
{% if kernel.runs > 1 %}
    // Index in `sums`, in vec4, of this subgroup's fragments for the first part of k; `between` is the distance to the
    // next
{% set subgroup_fours = kernel.fragments * fragment_fours %}
    let between = grid.z * tiles_m * tiles_n * {{ kernel.subgroups * subgroup_fours }}u;
    let place = ((workgroup.z * tiles_m * tiles_n + tile) * {{ kernel.subgroups }}u + subgroup) * {{ subgroup_fours }}u;
    let run = (params.k + RUNS * BK - 1u) / (RUNS * BK) * BK; // inner elements per part
{% for part in range(1, kernel.runs) %}
{{ multiply_up_to("min(" ~ part ~ "u * run, params.k)") }}
{% for r in range(rows) %}
{% for q in range(columns) %}
{% set after_parts %}{% if part > 1 %}{{ part - 1 }}u * between + {% endif %}{% endset %}
{% set at = "place + " ~ after_parts ~ (r * columns + q) * fragment_fours ~ "u" %}
    subgroupMatrixStore<row_major>(&sums, {{ at }}, acc_{{ r }}_{{ q }}, FN / 4u);
    acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
{% endfor %}
{% endif %}
{{ multiply_up_to("params.k") }}
{{ multiply_tiles() }}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if kernel.slices > 1 %}
    let member = subgroup % {{ fragments.slice_subgroups }}u; // this subgroup within its slice
    let sharer = slice * LANES + subgroup_lane;
{% if kernel.runs > 1 %}
    let first_place = place - slice * {{ fragments.slice_subgroups * subgroup_fours }}u;
{% endif %}
{% endif %}
{% if kernel.runs > 1 %}
    storageBarrier(); // the sums are stored before other invocations read them
{% endif %}
    workgroupBarrier(); // everyone is done with the tiles before C overwrites A's
{% set panel = "a_tile[" ~ fragments.subgroup_panel(a) ~ "]" %}
{% set sharer = "member, sharer" if kernel.slices > 1 else "subgroup, subgroup_lane" %}
{% set first_place = "first_place" if kernel.slices > 1 else "place" %}
{% for r in range(rows) %}
{% for q in range(columns) %}
{{ fragments.store_fragment("acc_" ~ r ~ "_" ~ q, panel, "subgroup_col * (FM * FN / 4u)", "FN / 4u") }}
    workgroupBarrier(); // the fragment is complete before invocations read it
{% set place %}row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u{% endset %}
{% set fragment_place = first_place ~ " + " ~ (r * columns + q) * fragment_fours ~ "u" %}
{% set parts = ", " ~ fragment_place ~ ", between" if kernel.runs > 1 else "" %}
    store_fragment(c_base, workgroup.z, {{ place }}, {{ sharer }}{{ parts }});
{% if not (r == rows - 1 and loop.last) %}
    workgroupBarrier(); // it was read before the next one overwrites it
{% endif %}
{% endfor %}
{% endfor %}
}
