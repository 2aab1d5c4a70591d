{# Tint's current spelling loads fragments from arrays of any type; the others from arrays of the fragment's own. #}
{% set wide = dialect == "tint" and kernel.spelling == "current" %}
{% set direct = kernel.direct(s) %}
// matrix_unit: C = A·B by the GPU's matrix units, SM × SN of C per subgroup out of a BM × BN tile per workgroup.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; float16 A and B, bound as array<vec4<u32>>, eight
// elements each, where the contiguous length is a multiple of 8; C in float32 or float16; accumulation in float32.
// Changed from pipelined: a subgroup multiplies fragments of FM × FK and FK × FN by one instruction. Fragments are
// opaque, so that each is loaded from workgroup memory as a whole, and what an epilogue, an edge or a conversion does to
// single elements of C is done on its way through workgroup memory, too.
// Shapes: any; tiles that hang over an edge are filled with zeros. Needs subgroups of exactly LANES lanes.
// Workgroup memory: 2·(BM·(BK + 8) + BN·(BK + 8·BK/SN)) bytes where A runs along k and B along n{{ "" if direct else ",
// and 4·FM·FN for each subgroup" }}.
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles.wgsl" as tiles with context %}
{% set per = 8 if wide else 1 %}
{% set operands = [
  {"x": "a", "at": "row", "tile": kernel.bm, "part": kernel.sm, "size": "m", "edge": s.edge_m, "vec": s.vec_a,
   "along_k": not s.trans_a, "loads": kernel.a_loads, "fragment": kernel.fm, "kind": "Left"},
  {"x": "b", "at": "col", "tile": kernel.bn, "part": kernel.sn, "size": "n", "edge": s.edge_n, "vec": s.vec_b,
   "along_k": s.trans_b, "loads": kernel.b_loads, "fragment": kernel.fn, "kind": "Right"},
] %}

{% include "common/header.wgsl" %}

{% if dialect == "tint" %}
alias Left = subgroup_matrix_left<f16, {{ kernel.fk }}, {{ kernel.fm }}>; // columns, rows
alias Right = subgroup_matrix_right<f16, {{ kernel.fn }}, {{ kernel.fk }}>;
alias Result = subgroup_matrix_result<f32, {{ kernel.fn }}, {{ kernel.fm }}>;
{% else %}
alias Left = coop_mat{{ kernel.fm }}x{{ kernel.fk }}<f16, A>;
alias Right = coop_mat{{ kernel.fk }}x{{ kernel.fn }}<f16, B>;
alias Result = coop_mat{{ kernel.fm }}x{{ kernel.fn }}<f32, C>;
{% endif %}

// A line of a tile is what lies contiguously in storage. {{ "Eight elements are stored at once; lines" if wide else "Lines" }} are 16 bytes longer than they need to be, so that
// the eight lines that a matrix unit reads at a time lie in different banks: 204 TFLOP/s, without 92 (4096³, H200).
{% for o in operands %}
const {{ o.x | upper }}_LINE: u32 = {{ ((kernel.bk if o.along_k else o.part) + 8) // per }}u; // from line to line of the tile of {{ o.x | upper }}, in {{ "vec4<u32>" if wide else "elements" }}
const {{ o.x | upper }}_PANEL: u32 = {{ o.part if o.along_k else "BK" }}{{ "u" if o.along_k }} * {{ o.x | upper }}_LINE; // what one {{ "row" if o.x == "a" else "column" }} of subgroups reads of it
{% endfor %}
// Panels are arrays of their own, so that the place of a fragment in its panel is a constant: an engine then knows it to
// be within, and need not ask at every load (284 TFLOP/s; 204 with one array for all panels).
{% for o in operands %}
var<workgroup> {{ o.x }}_tile: array<array<{{ "vec4<u32>" if wide else "f16" }}, {{ o.x | upper }}_PANEL>, {{ o.tile // o.part }}>;
{% endfor %}
{% if not direct %}
var<workgroup> c_tile: array<array<f32, FM * FN>, {{ kernel.subgroups }}>; // a fragment of C per subgroup
{% endif %}

{% macro load(o) %}
{% set outside = matrix.guards([(o.edge, o.at, o.size), (s.edge_k, "k", "k")]) %}
{% set at, k = (o.at, "k..+7") if o.along_k else (o.at ~ "..+7", "k") %}
// Eight neighbours in storage, {{ "A[%s, %s]" % (at, k) if o.x == "a" else "B[%s, %s]" % (k, at) }}{% if outside %}, zero outside the matrix{% endif %}

fn load_{{ o.x }}8(index: u32, {{ o.at }}: u32, k: u32) -> vec4<u32> {
{% if o.vec %}
{% if outside %}
    if ({{ outside }}) {
        return vec4<u32>();
    }
{% endif %}
    return {{ o.x }}[index];
{% else %}
    var v = array<f32, 8>();
{% for j in range(8) %}
{% set at, k = (o.at, "k + %du" % j) if o.along_k else (o.at ~ " + %du" % j, "k") %}
{% set outside = matrix.guards([(o.edge, at, o.size), (s.edge_k, k, "k")]) %}
{% if outside %}
    if (!({{ outside }})) {
        v[{{ j }}] = f32({{ o.x }}[index + {{ j }}u]);
    }
{% else %}
    v[{{ j }}] = f32({{ o.x }}[index + {{ j }}u]);
{% endif %}
{% endfor %}
    return vec4<u32>(
{% for j in range(0, 8, 2) %}
        pack2x16float(vec2f(v[{{ j }}], v[{{ j + 1 }}])),
{% endfor %}
    );
{% endif %}
}
{% endmacro %}
{{ load(operands[0]) }}
{{ load(operands[1]) }}
{% if not direct %}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
// The fragment that this subgroup left in workgroup memory → C, from (row, col) on
fn store_fragment(base: u32, row: u32, col: u32, subgroup: u32, first: u32) {
    for (var i = 4u * first; i < FM * FN; i += 4u * LANES) {
        let value = vec4f(c_tile[subgroup][i], c_tile[subgroup][i + 1u], c_tile[subgroup][i + 2u], c_tile[subgroup][i + 3u]);
        store_c4(base, row + i / FN, col + i % FN, value);
    }
}
{% endif %}

{#
  Which chunks this lane moves: their places in a panel, and where they start in storage. Lines that run along k are
  short. Eight neighbouring lanes, whose 16 bytes are stored together, then take lines so far apart that they meet no
  bank twice: 294 TFLOP/s, 284 with neighbouring lines.
#}
{% macro positions() %}
{% for o in operands %}
{% set chunks = (kernel.bk if o.along_k else o.tile) // 8 %}
{% set spread = o.along_k and chunks < 8 %}
{% for i in range(o.loads) %}
    let {{ o.x }}_chunk{{ i }} = lane + {{ i * kernel.invocations }}u;
{% if spread %}
    let {{ o.x }}_line{{ i }} = {{ o.x }}_chunk{{ i }} / {{ 8 * chunks }}u * 8u + {{ o.x }}_chunk{{ i }} / {{ chunks }}u % {{ 8 // chunks }}u * {{ chunks }}u + {{ o.x }}_chunk{{ i }} / 8u % {{ chunks }}u;
{% else %}
    let {{ o.x }}_line{{ i }} = {{ o.x }}_chunk{{ i }} / {{ chunks }}u;
{% endif %}
{% if o.along_k %}
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.at }}0 + {{ o.x }}_line{{ i }};
    let {{ o.x }}_k{{ i }} = {{ o.x }}_chunk{{ i }} % {{ chunks }}u * 8u;
    let {{ o.x }}_panel{{ i }} = {{ o.x }}_line{{ i }} / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ o.x }}_line{{ i }} % {{ o.part }}u * {{ o.x | upper }}_LINE + {{ o.x }}_k{{ i }} / {{ per }}u;
    let {{ o.x }}_start{{ i }} = ({{ o.x }}_base + {{ o.x }}_{{ o.at }}{{ i }} * params.ld{{ o.x }} + {{ o.x }}_k{{ i }}){{ " / 8u" if o.vec }};
{% else %}
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.at }}0 + {{ o.x }}_chunk{{ i }} % {{ chunks }}u * 8u;
    let {{ o.x }}_k{{ i }} = {{ o.x }}_line{{ i }};
    let {{ o.x }}_panel{{ i }} = {{ o.x }}_chunk{{ i }} % {{ chunks }}u * 8u / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ o.x }}_line{{ i }} * {{ o.x | upper }}_LINE + {{ o.x }}_chunk{{ i }} * 8u % {{ o.part }}u / {{ per }}u;
    let {{ o.x }}_start{{ i }} = ({{ o.x }}_base + {{ o.x }}_k{{ i }} * params.ld{{ o.x }} + {{ o.x }}_{{ o.at }}{{ i }}){{ " / 8u" if o.vec }};
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers #}
{% macro fetch(k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set step = k0 if o.along_k else k0 ~ " * params.ld" ~ o.x %}
{% set step = step if not o.vec else "%s / 8u" % k0 if o.along_k else "%s * (params.ld%s / 8u)" % (k0, o.x) %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}8({{ o.x }}_start{{ i }} + {{ step }}, {{ o.x }}_{{ o.at }}{{ i }}, {{ k0 }} + {{ o.x }}_k{{ i }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put() %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% if wide %}
        {{ o.x }}_tile[{{ o.x }}_panel{{ i }}][{{ o.x }}_put{{ i }}] = {{ o.x }}_next{{ i }};
{% else %}
{% for j in range(8) %}
        {{ o.x }}_tile[{{ o.x }}_panel{{ i }}][{{ o.x }}_put{{ i }} + {{ j }}u] = f16(unpack2x16float({{ o.x }}_next{{ i }}.{{ "xyzw"[j // 2] }}).{{ "xy"[j % 2] }});
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# A fragment of a panel: its lines are rows of A or of B, or the columns where storage is transposed. #}
{% macro fragment(o, i, kk) %}
{% set rows = o.along_k == (o.x == "a") %}
{% set line, within = (i * o.fragment, kk * kernel.fk) if o.along_k else (kk * kernel.fk, i * o.fragment) %}
{% set panel = "%s_tile[subgroup_%s]" % (o.x, o.at) %}
{% set place = "%du * %s_LINE + %du" % (line, o.x | upper, within // per) %}
{% set stride = o.x | upper ~ "_LINE" %}
{% if dialect == "naga" %}
            let {{ o.x }}_{{ i }} = {{ "coopLoadT" if rows else "coopLoad" }}<{{ o.kind }}>(&{{ panel }}[{{ place }}], {{ stride }});
{% elif wide %}
            let {{ o.x }}_{{ i }} = subgroupMatrixLoad<{{ o.kind }}, {{ "row_major" if rows else "col_major" }}>(&{{ panel }}, {{ place }}, {{ stride }});
{% else %}
            let {{ o.x }}_{{ i }} = subgroupMatrixLoad<{{ o.kind }}>(&{{ panel }}, {{ place }}, {{ "false" if rows else "true" }}, {{ stride }});
{% endif %}
{% endmacro %}

{# acc += A tile · B tile #}
{% macro multiply() %}
{% for kk in range(kernel.bk // kernel.fk) %}
        { // kk = {{ kk * kernel.fk }}
{% for r in range(kernel.sm // kernel.fm) %}
{{ fragment(operands[0], r, kk) }}
{%- endfor %}
{% for q in range(kernel.sn // kernel.fn) %}
{{ fragment(operands[1], q, kk) }}
{%- endfor %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
            acc_{{ r }}_{{ q }} = {{ "subgroupMatrixMultiplyAccumulate" if dialect == "tint" else "coopMultiplyAdd" }}(a_{{ r }}, b_{{ q }}, acc_{{ r }}_{{ q }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{# Store a fragment row by row: `to` is an array, `place` an index into it. #}
{% macro store(fragment, to, place, stride) %}
{% if dialect == "naga" %}
    coopStoreT({{ fragment }}, &{{ to }}[{{ place }}], {{ stride }});
{% elif wide %}
    subgroupMatrixStore<row_major>(&{{ to }}, {{ place }}, {{ fragment }}, {{ stride }});
{% else %}
    subgroupMatrixStore(&{{ to }}, {{ place }}, {{ fragment }}, false, {{ stride }});
{% endif %}
{% endmacro %}

@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
{% if not direct %}
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
{% endif %}
) {
{{ tiles.own_tile() }}
{{ matrix.bases() }}
    let subgroup_row = subgroup / (BN / SN);
    let subgroup_col = subgroup % (BN / SN);
{{ positions() }}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
    var acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
{% for o in operands %}
{% for i in range(o.loads) %}
    var {{ o.x }}_next{{ i }}: vec4<u32>;
{% endfor %}
{% endfor %}
{{ fetch("0u") }}
{{ put() }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ fetch("k0") }}
{{ multiply() }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ put() }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
{{ multiply() }}
    let row = row0 + subgroup_row * SM;
    let col = col0 + subgroup_col * SN;
{% if direct %}
    let stride = params.ldc;
{% endif %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
{% if direct %}
    let c_{{ r }}_{{ q }} = c_base + (row + {{ r * kernel.fm }}u) * stride + col + {{ q * kernel.fn }}u;
{{ store("acc_%d_%d" % (r, q), "c", "c_%d_%d" % (r, q), "stride") }}
{%- else %}
{{ store("acc_%d_%d" % (r, q), "c_tile[subgroup]", "0u", "FN") }}
    workgroupBarrier(); // the fragments are complete before lanes read them
    store_fragment(c_base, row + {{ r * kernel.fm }}u, col + {{ q * kernel.fn }}u, subgroup, subgroup_lane);
    workgroupBarrier(); // they were read before the next ones overwrite them
{% endif %}
{% endfor %}
{% endfor %}
}
