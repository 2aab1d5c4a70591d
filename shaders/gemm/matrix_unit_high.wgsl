// matrix_unit_high: C = A·B in float32 by matrix units that multiply float16, three products for one.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; float32 A and B, bound as array<vec4f> where the
// contiguous length is a multiple of 4; C in float32 or float16. What line_scales left of each row of A and column of B:
// a power of two, and the least magnitude of an element of C that is not in doubt.
// Changed from matrix_unit: an element, scaled so that the largest of its line is 2¹⁴ and above, becomes high + low, the
// nearest float16 and the nearest to what that leaves, on its way into workgroup memory. A·B is then high·high +
// high·low + low·high, within 2⁻²² of |a|·|b|; low·low would be less than that.
{% if kernel.runs > 1 %}
// Matrix units truncate: what they add to a large sum loses its last bits, always towards zero. Sums therefore go no further
// than one of RUNS parts of k in fragments. Those of all parts but the last wait in storage, to be added up in the end,
// rounded. Each part has a loop of its own: one loop within another reads 84 TFLOP/s where one without parts reads 97.
{% endif %}
// Elements below 2⁻¹⁵ of their line's largest lose bits in float16. Where they might count, as the sum is so small
// that nothing large can be in it, C is not stored but put in doubt, for mend to compute.
// Shapes: any. What lies beyond the end of k is zero. What lies beyond the other edges is read wherever the engine's
// bounds checks let it be: nothing that comes of it is stored. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 4·(BM·(BK + 8·SLICES) + BN·(BK + 8·BK/SN)) bytes where A runs along k and B along n; C takes A's place.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% import "common/fragments.wgsl" as fragments with context %}
{# Places are those of single elements: a vec4 may start within a chunk of eight. #}
{% set operands = [
  {"x": "a", "axis": "row", "tile": kernel.bm, "part": kernel.sm, "fragment": kernel.fm, "kind": "Left",
   "along_k": not s.trans_a, "loads": kernel.a_loads, "base": "a_base", "vec": false, "next": "a_high"},
  {"x": "b", "axis": "col", "tile": kernel.bn, "part": kernel.sn, "fragment": kernel.fn, "kind": "Right",
   "along_k": s.trans_b, "loads": kernel.b_loads, "base": "b_base", "vec": false, "next": "b_high"},
] %}
{% set a, b = operands %}
{% set a_low = dict(a, x="a_low", next="a_low", places="a") %}
{% set b_low = dict(b, x="b_low", next="b_low", places="b") %}
{% set rows, columns = kernel.sm // kernel.fm, kernel.sn // kernel.fn %}
{% set four = kernel.fm * kernel.fn // 4 %}

{% include "common/header.wgsl" %}

{{ fragments.declare_types() }}
{{ fragments.declare_panels([a, b, a_low, b_low], "is what lies contiguously in storage") }}
struct Eight { // neighbours in storage
    first: vec4f,
    last: vec4f,
}

{% for x, vec in (("a", s.vec_a), ("b", s.vec_b)) %}
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
// What lies before the end of k, and zero from there on, of eight that lie at ks
fn before_end(x: Eight, first: vec4u, last: vec4u) -> Eight {
    return Eight(
        select(vec4f(), x.first, first < vec4u(params.k)),
        select(vec4f(), x.last, last < vec4u(params.k)),
    );
}

{% endif %}
// Rounded to the eleven bits of a float16. By integers, since a driver may take what is packed and unpacked for the same.
fn rounded(x: vec4f) -> vec4f {
    return bitcast<vec4f>((bitcast<vec4u>(x) + vec4u(0x1000u)) & vec4u(0xffffe000u));
}

fn packed(x: Eight) -> vec4<u32> {
    return vec4<u32>(
        pack2x16float(x.first.xy), pack2x16float(x.first.zw), pack2x16float(x.last.xy), pack2x16float(x.last.zw),
    );
}

fn power_of_two(exponent: {{ "vec4i" if s.vec_c else "i32" }}) -> {{ "vec4f" if s.vec_c else "f32" }} {
    return bitcast<{{ "vec4f" if s.vec_c else "f32" }}>((exponent + {{ "vec4i(127)" if s.vec_c else "127" }}) << {{ "vec4u(23u)" if s.vec_c else "23u" }});
}

{{ matrix.store_c4() if s.vec_c else matrix.store_c() }}
{% set vector = "vec4f" if s.vec_c else "f32" %}
{% set bits = "vec4<u32>" if s.vec_c else "u32" %}
{% set signed = "vec4i" if s.vec_c else "i32" %}
// C[row, col{{ "..col+3" if s.vec_c }}] ← the scaled `value`, or a doubt
fn finish(base: u32, batch: u32, row: u32, col: u32, value: {{ vector }}) {
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
        atomicOr(&doubts[(batch * params.m + row) * ((params.n + 31u) / 32u) + col / 32u], {{ "15u" if s.vec_c else "1u" }} << (col % 32u));
        return;
    }
    // 2⁻ᵉ for both scales together, by two factors: one may be beyond float32.
    let e = {{ signed }}(254 - i32(bitcast<u32>(line.x) >> 23u)) - {{ signed }}(bitcast<{{ bits }}>(scale) >> {{ "vec4u(23u)" if s.vec_c else "23u" }});
    store_c{{ "4" if s.vec_c }}(base, row, col, value * power_of_two(e / 2) * power_of_two(e - e / 2));
}

{# Four neighbours of C that subgroup `own` of a slice left in workgroup memory. #}
{% macro four_of(slice) -%}
bitcast<vec4f>(a_tile[{{ "%du + " % (slice * kernel.bm // kernel.sm) if slice }}own / (BN / SN)][own % (BN / SN) * {{ four }}u + i])
{%- endmacro %}
// The fragment{{ "s that the slices of a subgroup" if kernel.slices > 1 else " that this subgroup" }} left in workgroup memory{{ ", added up" if kernel.slices > 1 }} → C, from (row, col) on{{ "; single elements by neighbouring lanes" if not s.vec_c }}
fn store_fragment(base: u32, batch: u32, row: u32, col: u32, own: u32, lane: u32{{ ", place: u32, between: u32" if kernel.runs > 1 }}) {
{% if s.vec_c %}
    for (var i = lane; i < {{ four }}u; i += SLICES * LANES) {
{% else %}
    for (var element = lane; element < FM * FN; element += SLICES * LANES) {
        let i = element / 4u;
{% endif %}
        {{ "var" if kernel.slices > 1 or kernel.runs > 1 else "let" }} value = {{ four_of(0) }};
{% for slice in range(1, kernel.slices) %}
        value += {{ four_of(slice) }};
{% endfor %}
{% for part in range(kernel.runs - 1) %}
{% for slice in range(kernel.slices) %}
        value += bitcast<vec4f>(sums[place + i{{ " + %du * between" % part if part }}{{ " + %du" % (slice * fragments.slice_subgroups * kernel.fragments * four) if slice }}]);
{% endfor %}
{% endfor %}
{% if s.vec_c %}
        finish(base, batch, row + 4u * i / FN, col + 4u * i % FN, value);
{% else %}
        finish(base, batch, row + element / FN, col + element % FN, value[element % 4u]);
{% endif %}
    }
}

{# The scales of the lines that a lane moves, the same in every step. #}
{% macro scales() %}
{% for o in operands %}
    let {{ o.x }}_lines = workgroup.z * (params.m + params.n){{ " + params.m" if o.x == "b" }};
{% for i in range(o.loads) %}
{% set place = "%s_lines + %s_%s%d" % (o.x, o.x, o.axis, i) %}
{% if o.along_k %}
    let {{ o.x }}_one{{ i }} = vec4f(lines[{{ place }}].x);
    let {{ o.x }}_scale{{ i }} = Eight({{ o.x }}_one{{ i }}, {{ o.x }}_one{{ i }});
{% else %}
    let {{ o.x }}_scale{{ i }} = Eight(
{% for first in (0, 4) %}
        vec4f({% for j in range(first, first + 4) %}lines[{{ place }} + {{ j }}u].x{{ ", " if not loop.last }}{% endfor %}),
{% endfor %}
    );
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# Registers → workgroup memory, as halves. #}
{% macro put(k0) %}
{% if s.edge_k %}
        if ({{ k0 }} + BK > params.k) { // what lies beyond the end of k must come to nothing
{% for o in operands %}
{% for i in range(o.loads) %}
{% set k = "vec4u(%s + %s_k%d)" % (k0, o.x, i) %}
{% set ks = "%s + vec4u(0u, 1u, 2u, 3u), %s + vec4u(4u, 5u, 6u, 7u)" % (k, k) if o.along_k else "%s, %s" % (k, k) %}
            {{ o.x }}_next{{ i }} = before_end({{ o.x }}_next{{ i }}, {{ ks }});
{% endfor %}
{% endfor %}
        }
{% endif %}
{% for o in operands %}
{% for i in range(o.loads) %}
        let {{ o.x }}_eight{{ i }} = scaled({{ o.x }}_next{{ i }}, {{ o.x }}_scale{{ i }});
        let {{ o.x }}_near{{ i }} = Eight(rounded({{ o.x }}_eight{{ i }}.first), rounded({{ o.x }}_eight{{ i }}.last));
        let {{ o.x }}_high{{ i }} = packed({{ o.x }}_near{{ i }});
        let {{ o.x }}_low{{ i }} = packed(Eight({{ o.x }}_eight{{ i }}.first - {{ o.x }}_near{{ i }}.first, {{ o.x }}_eight{{ i }}.last - {{ o.x }}_near{{ i }}.last));
{% endfor %}
{% endfor %}
{{ fragments.put([a, b, a_low, b_low]) }}
{% endmacro %}

{# acc += A tile · B tile; between two products into one fragment are those of others, which need not wait for it. #}
{% macro multiply() %}
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
            acc_{{ r }}_{{ q }} = subgroupMatrixMultiplyAccumulate({{ left }}_{{ r }}, {{ right }}_{{ q }}, acc_{{ r }}_{{ q }});
{% endfor %}
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{# Steps of k up to `end`: one is multiplied while the next is fetched. #}
{% macro steps(end) %}
    for (; k0 < {{ end }}; k0 += BK) {
{{ fragments.fetch(operands, "k0") }}
{{ multiply() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ put("k0") }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
{{ fragments.builtins() }}
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
{{ fragments.plan_moves(operands) }}
{{ scales() }}
{% for r in range(rows) %}
{% for q in range(columns) %}
    var acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
{% for o in operands %}
{% for i in range(o.loads) %}
    var {{ o.x }}_next{{ i }}: Eight;
{% endfor %}
{% endfor %}
{{ fragments.fetch(operands, "0u") }}
    {
{{ put("0u") }}
    }
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    var k0 = BK;
{% if kernel.runs > 1 %}
    // In vec4: where the sums of this subgroup's fragments wait, a place for each part of k but the last
    let between = grid.z * tiles_m * tiles_n * {{ kernel.subgroups * kernel.fragments * four }}u;
    let place = ((workgroup.z * tiles_m * tiles_n + tile) * {{ kernel.subgroups }}u + subgroup) * {{ kernel.fragments * four }}u;
    let run = (params.k + RUNS * BK - 1u) / (RUNS * BK) * BK; // inner elements of a part
{% for part in range(1, kernel.runs) %}
{{ steps("min(%du * run, params.k)" % part) }}
{% for r in range(rows) %}
{% for q in range(columns) %}
    subgroupMatrixStore<row_major>(&sums, place + {{ "%du * between + " % (part - 1) if part > 1 }}{{ (r * columns + q) * four }}u, acc_{{ r }}_{{ q }}, FN / 4u);
    acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
{% endfor %}
{% endif %}
{{ steps("params.k") }}
{{ multiply() }}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if kernel.slices > 1 %}
    let own = subgroup % {{ fragments.slice_subgroups }}u;
    let own_lane = slice * LANES + subgroup_lane;
{% if kernel.runs > 1 %}
    let own_place = place - slice * {{ fragments.slice_subgroups * kernel.fragments * four }}u;
{% endif %}
{% endif %}
{% if kernel.runs > 1 %}
    storageBarrier(); // the sums are stored before other lanes read them
{% endif %}
    workgroupBarrier(); // everyone is done with the tiles before C takes the place of A's
{% for r in range(rows) %}
{% for q in range(columns) %}
{% set sums = (", own_place" if kernel.slices > 1 else ", place") ~ " + %du, between" % ((r * columns + q) * four) if kernel.runs > 1 %}
{{ fragments.store_fragment("acc_%d_%d" % (r, q), "a_tile[%s]" % fragments.own_panel(a), "subgroup_col * (FM * FN / 4u)", "FN / 4u") }}
    workgroupBarrier(); // the fragment is complete before lanes read it
    store_fragment(c_base, workgroup.z, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, {{ "own, own_lane" if kernel.slices > 1 else "subgroup, subgroup_lane" }}{{ sums }});
{% if not (r == rows - 1 and loop.last) %}
    workgroupBarrier(); // it was read before the next one overwrites it
{% endif %}
{% endfor %}
{% endfor %}
}
