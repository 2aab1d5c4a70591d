// matrix_unit: attention on the GPU's matrix units, SM queries per subgroup, BQ per workgroup.
//
// Storage: q, k, v and o with a stride per axis; float16 q, k and v, bound by chunks of eight, or by elements; sums in
// f32.
// Changed from blocked: one instruction of a subgroup multiplies fragments of FM × FK and FK × FN. Those of q stay in
// registers, those of the result accumulate there. A shader cannot access elements of a fragment: scores are written to
// workgroup memory, PER_ROW lanes turn those of a query into weights, and these are read again as float16 fragments.
// ACROSS subgroups share queries: each multiplies a part of the keys, then a part of the columns of v.
// A row of the result must shrink when its maximum grows, but only lanes can multiply rows. So weights are powers of 2
// of the distance from a reference, which the maximum exceeds by 0 to ROOM: then no weight overflows float16, and the
// reference grows once or twice in a row. Only in such steps, results go through workgroup memory. AHEAD is how far a
// new reference is from the maximum: weights down to 2^-(14 + AHEAD) of the largest one are normal float16.
// The next tiles of k and v are loaded into registers while these are multiplied.
// Edges: keys beyond the last one have the score HIDDEN, and zeros in v. Needs subgroups of exactly LANES lanes.
// Workgroup memory: panels of k (or a fragment of o per subgroup), v and scores, whose lines are padded by 16 bytes.
{% import "common/attention.wgsl" as attention with context %}
{% import "common/attention_units.wgsl" as units with context %}
{% include "common/header.wgsl" %}
{% set watched = "pair * params.queries + row, dbg_col(0u, VALUES)" %}

const ROOM: f32 = {{ kernel.room }}.0; // weights are at most 2^ROOM
const AHEAD: f32 = {{ kernel.ahead }}.0;
const PER_ROW: u32 = {{ kernel.per_row }}u; // lanes that share the scores of a query
const SHARE: u32 = {{ kernel.share }}u; // keys of each of them
const KEYS: u32 = {{ kernel.keys }}u; // of a panel of k, or of scores
const K_LINE: u32 = {{ kernel.k_line }}u; // vec4 from line to line
const V_LINE: u32 = {{ kernel.v_line }}u;
const S_LINE: u32 = {{ kernel.s_line }}u;
const SLOT: u32 = {{ kernel.slot }}u; // vec4 of a fragment of o

alias Left = subgroup_matrix_left<f16, FK, FM>; // columns, rows
alias Right = subgroup_matrix_right<f16, FN, FK>;
alias Result = subgroup_matrix_result<f32, FN, FM>;

// A vec4<u32> holds eight float16, or four scores. Panels are separate arrays, as in a product's matrix_unit.
var<workgroup> k_tile: array<array<vec4<u32>, {{ kernel.k_panel }}>, ACROSS>; // keys of a subgroup
var<workgroup> v_tile: array<array<vec4<u32>, BK * V_LINE>, ACROSS>; // columns of a subgroup
var<workgroup> s_tile: array<array<vec4<u32>, SM * S_LINE>, {{ kernel.subgroups }}>; // scores, then weights
var<workgroup> scales: array<f32, BQ>; // of each query's result
var<workgroup> grown: array<u32, {{ kernel.subgroups }}>; // whether some of these are not 1

{{ attention.constants() }}
{{ units.load8("q", s.edge_w) }}
{{ units.load8("k", s.edge_w) }}
{{ units.load8("v", s.edge_v) }}
{{ attention.store4() }}
{{ attention.range() }}
{{ attention.score4() }}
{% set q_rows, q_parts = range(kernel.sm // kernel.fm), range(kernel.columns // kernel.fk) %}
{% set s_columns, o_columns = range(kernel.keys // kernel.fn), range(kernel.values // kernel.across // kernel.fn) %}
{% set fours = range(kernel.share // 4) %}
{# A fragment from this row and column of a panel with this length of lines, and to a place of it #}
{% macro load(kind, panel, line, row, column, order="row_major") -%}
subgroupMatrixLoad<{{ kind }}, {{ order }}>(&{{ panel }}, {{ row }}u * {{ line }} + {{ column }}u, {{ line }})
{%- endmacro %}
{% macro store(fragment, panel, place, line) -%}
subgroupMatrixStore<row_major>(&{{ panel }}, {{ place }}, {{ fragment }}, {{ line }});
{%- endmacro %}
{# storage → registers: the tiles of k and v from key `k0` on #}
{% macro load_next(k0) %}
{% for i in range(kernel.k_loads) %}
        k_next{{ i }} = load_k8(k_base, min({{ k0 }} + k_line{{ i }}, final_key), k_column{{ i }});
{% endfor %}
{% for i in range(kernel.v_loads) %}
        v_next{{ i }} = load_v8(v_base, min({{ k0 }} + v_line{{ i }}, final_key), v_column{{ i }});
        v_next{{ i }} = select(vec4<u32>(), v_next{{ i }}, {{ k0 }} + v_line{{ i }} < end);
{% endfor %}
{% endmacro %}
{# registers → workgroup memory #}
{% macro write(x) %}
{% for i in range(kernel[x ~ "_loads"]) %}
        {{ x }}_tile[{{ x }}_panel{{ i }}][{{ x }}_place{{ i }}] = {{ x }}_next{{ i }};
{% endfor %}
{% endmacro %}
{% set slot = "k_tile[subgroup_col]" %}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
{{ attention.tile_of("BQ") }}
{% if s.right %}
    let first_row = (down - 1u) * BQ - start; // tiles that see the most keys begin first
{% else %}
    let first_row = start;
{% endif %}
    let subgroup_row = subgroup / ACROSS;
    let subgroup_col = subgroup % ACROSS;
    let slot = subgroup_row * SLOT;
    let q_base = {{ attention.base("q") }};
    let k_base = {{ attention.base("k") }};
    let v_base = {{ attention.base("v") }};
    let o_base = {{ attention.base("o") }};
    let mask_base = {{ attention.mask_base() }};
    let last_row = min(first_row + BQ, params.queries) - 1u;
{% for x, columns, line in (("k", "COLUMNS", "K_LINE"), ("v", "VALUES", "V_LINE")) %}
{% for i in range(kernel[x ~ "_loads"]) %}
    let {{ x }}_chunk{{ i }} = local_index + {{ i * kernel.invocations }}u;
    let {{ x }}_line{{ i }} = {{ x }}_chunk{{ i }} / ({{ columns }} / 8u);
    let {{ x }}_column{{ i }} = {{ x }}_chunk{{ i }} % ({{ columns }} / 8u) * 8u;
{% if x == "k" %}
    let k_panel{{ i }} = k_line{{ i }} / KEYS;
    let k_place{{ i }} = k_line{{ i }} % KEYS * K_LINE + k_column{{ i }} / 8u;
{% else %}
    let v_panel{{ i }} = v_column{{ i }} / (VALUES / ACROSS);
    let v_place{{ i }} = v_line{{ i }} * V_LINE + v_column{{ i }} % (VALUES / ACROSS) / 8u;
{% endif %}
    var {{ x }}_next{{ i }}: vec4<u32>;
{% endfor %}
{% endfor %}
    // Later queries see later keys; all queries of the tile see those from `whole.x` to before `whole.y`
    let earliest = keys_of(entry, first_row);
    let latest = keys_of(entry, last_row);
    let begin = earliest.x;
    let end = latest.y;
    let final_key = max(end, 1u) - 1u;
    let whole = vec2u(latest.x, earliest.y);
{{ load_next("begin") }}
    // Queries → fragments, through the panels of scores, which hold some columns at once
{% set at_once = kernel.keys // 4 %}
{% for c in range(0, kernel.columns // 8, at_once) %}
{% set left = kernel.columns // 8 - c %}
{% set here = left if left < at_once else at_once %}
{% for turn in range((kernel.sm * here + kernel.lanes - 1) // kernel.lanes) %}
    {
        let i = subgroup_lane{{ " + " ~ turn ~ "u * LANES" if turn }};
{% if kernel.sm * here % kernel.lanes %}
        if (i < SM * {{ here }}u) {
{% endif %}
        let row = min(first_row + subgroup_row * SM + i / {{ here }}u, last_row);
        let column = i % {{ here }}u;
{% set first = " + " ~ 8 * c ~ "u" if c else "" %}
        s_tile[subgroup][i / {{ here }}u * S_LINE + column] = load_q8(q_base, row, column * 8u{{ first }});
{% if kernel.sm * here % kernel.lanes %}
        }
{% endif %}
    }
{% endfor %}
    workgroupBarrier(); // the columns are there
{% for r in q_rows %}
{% for kk in q_parts if c * 8 <= kk * kernel.fk < (c + here) * 8 %}
{% set column = kk * kernel.fk // 8 - c %}
    let q_{{ r }}_{{ kk }} = {{ load("Left", "s_tile[subgroup]", "S_LINE", r * kernel.fm, column) }};
{% endfor %}
{% endfor %}
    workgroupBarrier(); // they were read before others overwrite them
{% endfor %}
{% for r in q_rows %}
{% for n in o_columns %}
    var acc_{{ r }}_{{ n }} = Result();
{% endfor %}
{% endfor %}
    // The scores of this lane: SHARE keys of a query
    let lane = subgroup * LANES + subgroup_lane;
    let own = lane / PER_ROW; // the query
    let part = lane % PER_ROW;
    let s_panel = own / SM * ACROSS + part * SHARE / KEYS;
    let s_place = own % SM * S_LINE + part * SHARE % KEYS / 4u;
    let row = min(first_row + own, last_row);
{% if s.left or s.right %}
    let seen = keys_of(entry, row);
{% endif %}
    var top = FLOOR; // the reference
    var sum = 0.0;
{{ write("k") }}
{{ write("v") }}
    workgroupBarrier(); // the first tiles are complete
    //# inner
    for (var k0 = begin; k0 < end; k0 += BK) {
{{ load_next("k0 + BK") }}
{% for n in s_columns %}
        { // scores of {{ kernel.fn }} keys
{% for r in q_rows %}
            var s_{{ r }} = Result();
{% endfor %}
{% for kk in q_parts %}
{% set column = kk * kernel.fk // 8 %}
            let k_{{ kk }} = {{ load("Right", "k_tile[subgroup_col]", "K_LINE", n * kernel.fn, column, "col_major") }};
{% for r in q_rows %}
            s_{{ r }} = subgroupMatrixMultiplyAccumulate(q_{{ r }}_{{ kk }}, k_{{ kk }}, s_{{ r }});
{% endfor %}
{% endfor %}
{% for r in q_rows %}
{{ store("s_" ~ r, "s_tile[subgroup]", (r * kernel.fm) ~ "u * S_LINE + " ~ (n * kernel.fn // 4) ~ "u", "S_LINE") }}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier(); // the scores, and the tile of v, are complete
        let key = k0 + part * SHARE;
{% for j in fours %}
{% set product %}bitcast<vec4f>(s_tile[s_panel][s_place + {{ j }}u]){% endset %}
        var score{{ j }} = scored4({{ product }}, mask_base, row, key + {{ 4 * j }}u, params.keys - 1u);
{% endfor %}
        if (k0 < whole.x || k0 + BK > whole.y) {
{% for j in fours %}
            let keys{{ j }} = vec4u(key) + vec4u({{ 4 * j }}u, {{ 4 * j + 1 }}u, {{ 4 * j + 2 }}u, {{ 4 * j + 3 }}u);
{% set within %}(keys{{ j }} >= vec4u(seen.x)) & (keys{{ j }} < vec4u(seen.y)){% endset %}
{% set seen = within if s.left or s.right else "keys" ~ j ~ " < vec4u(end)" %}
            score{{ j }} = select(vec4f(HIDDEN), score{{ j }}, {{ seen }});
{% endfor %}
        }
{% for j in fours %}
        dbg_k(SCORE, {{ watched }}, key + {{ 4 * j }}u, score{{ j }});
{% endfor %}
        var largest4 = score0;
{% for j in fours if j %}
        largest4 = max(largest4, score{{ j }});
{% endfor %}
        var largest = max(max(largest4.x, largest4.y), max(largest4.z, largest4.w));
{% for bit in range(8) if 2 ** bit < kernel.per_row %}
        largest = max(largest, subgroupShuffleXor(largest, {{ 2 ** bit }}u));
{% endfor %}
        let grows = largest > top + ROOM;
        let next = select(top, largest - AHEAD, grows);
        let shrink = select(1.0, exp2(top - next), grows);
        let corrects = subgroupAny(grows && top > FLOOR); // until then, results are zeros
        if (subgroup_lane == 0u) {
            grown[subgroup] = u32(corrects);
        }
        if (part == 0u) {
            scales[own] = shrink;
        }
        top = next;
        dbg(TOP, {{ watched }}, k0 + BK - 1u, top);
        var sum4 = vec4f();
{% for j in fours %}
        score{{ j }} = exp2(score{{ j }} - top);
        dbg_k(WEIGHT, {{ watched }}, key + {{ 4 * j }}u, score{{ j }});
        sum4 += score{{ j }};
{% endfor %}
        sum = fma(sum, shrink, dot(sum4, vec4f(1.0)));
        dbg(SUM, {{ watched }}, key + SHARE - 1u, sum);
{% for j in range(0, fours | length, 2) %}
        s_tile[s_panel][s_place + {{ j // 2 }}u] = vec4<u32>(
{% for i in (j, j + 1) %}
            pack2x16float(score{{ i }}.xy), pack2x16float(score{{ i }}.zw),
{% endfor %}
        );
{% endfor %}
        let flags = workgroupUniformLoad(&grown); // the weights are complete
        if (({% for n in range(kernel.subgroups) %}flags[{{ n }}]{{ " | " if not loop.last }}{% endfor %}) != 0u) {
{% for r in q_rows %}
{% for n in o_columns %}
{{ store("acc_" ~ r ~ "_" ~ n, slot, "slot", "FN / 4u") }}
            workgroupBarrier(); // the fragment is there
{% macro back() %}{{ slot }}[slot + i] = bitcast<vec4<u32>>(value);{% endmacro %}
{{ units.each_of_slot(slot, r, back) }}
            workgroupBarrier(); // it is corrected
            acc_{{ r }}_{{ n }} = subgroupMatrixLoad<Result, row_major>(&{{ slot }}, slot, FN / 4u);
            workgroupBarrier(); // it was read before others overwrite it
{% endfor %}
{% endfor %}
        }
{{ write("k") }}
{% for kk in range(kernel.bk // kernel.fk) %}
{% set first = kk * kernel.fk % kernel.keys %}
{% set place = first // kernel.share * kernel.share // 4 + first % kernel.share // 8 %}
{% set panel = "s_tile[subgroup_row * ACROSS + " ~ (kk * kernel.fk // kernel.keys) ~ "u]" %}
        { // {{ kernel.fk }} keys
{% for r in q_rows %}
            let p_{{ r }} = {{ load("Left", panel, "S_LINE", r * kernel.fm, place) }};
{% endfor %}
{% for n in o_columns %}
            let v_{{ n }} = {{ load("Right", "v_tile[subgroup_col]", "V_LINE", kk * kernel.fk, n * kernel.fn // 8) }};
{% for r in q_rows %}
            acc_{{ r }}_{{ n }} = subgroupMatrixMultiplyAccumulate(p_{{ r }}, v_{{ n }}, acc_{{ r }}_{{ n }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier(); // everyone is done with v and the weights, and the next tile of k is complete
{{ write("v") }}
    }
    //# end
{% for bit in range(8) if 2 ** bit < kernel.per_row %}
    sum += subgroupShuffleXor(sum, {{ 2 ** bit }}u);
{% endfor %}
    if (part == 0u) {
        scales[own] = select(1.0 / sum, 0.0, sum == 0.0);
    }
{% for r in q_rows %}
{% for n in o_columns %}
{{ store("acc_" ~ r ~ "_" ~ n, slot, "slot", "FN / 4u") }}
    workgroupBarrier(); // the fragment is there
{% macro out() %}
if (first_row + member <= last_row) {
    let column = subgroup_col * (VALUES / ACROSS) + {{ n * kernel.fn }}u + i % (FN / 4u) * 4u;
    store_o4(o_base, first_row + member, column, value);
}
{% endmacro %}
{{ units.each_of_slot(slot, r, out) }}
{% if not (loop.last and r == q_rows | length - 1) %}
    workgroupBarrier(); // it was read before the next one overwrites it
{% endif %}
{% endfor %}
{% endfor %}
}
