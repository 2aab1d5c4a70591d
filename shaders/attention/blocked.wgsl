// blocked: attention, a tile of BQ queries per workgroup.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from online: a workgroup holds its rows of q in workgroup memory, and loads BK rows of k and of v at a time,
// so that each of these is read once for BQ queries. An invocation has TM queries: for q·k, {{ kernel.tk }} keys of
// each, for weights·v {{ kernel.tn }} columns. WX invocations share a query: they exchange its largest score, and hand
// its weights over through workgroup memory.
// If rows of q and k are longer than SPAN columns, these are in workgroup memory at a time, and q is read in each step:
// tiles of as many queries then fit for longer rows.
// Keys that no query of the tile sees are skipped; steps with keys that all queries see test nothing.
//
//                lx = 0 1 2 …                 rows      ly + i*WY,  i < TM
//        ly = 0     ■ □ □                     keys      (lx + j*WX)*4 .. +3 of a step
//             1     □ □ □                     columns   (lx + j*WX)*4 .. +3
//
// Edges: loads beyond the last query or key repeat it. Workgroup memory: the tiles, with rows of q, k and weights
// padded by a vec4, so that the rows that a subgroup reads are in different banks. Four consecutive keys of an
// invocation are BK/4 rows apart in k_tile, for the same reason.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}
{% set rows, keys, cols = range(kernel.tm), range(kernel.tk // 4), range(kernel.tn // 4) %}
{% set invocations = kernel.invocations %}
{% set tested = s.ranged or s.edge_k %}
{% set whole_rows = kernel.span >= kernel.columns %}
{% set span = kernel.columns if whole_rows else kernel.span %}
{% set watched = "pair * params.queries + row_" %}
{% set any_column = "dbg_col(0u, VALUES)" %}

const WY: u32 = BQ / TM;

var<workgroup> q_tile: array<array<vec4f, {{ span // 4 + 1 }}>, BQ>;
var<workgroup> k_tile: array<array<vec4f, {{ span // 4 + 1 }}>, BK>;
var<workgroup> v_tile: array<array<vec4f, VALUES / 4u>, BK>;
var<workgroup> weights: array<array<vec4f, BK / 4u + 1u>, BQ>;
{% if kernel.combine == "tree" %}
var<workgroup> parts: array<array<f32, WX>, BQ>;
{% endif %}

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w) }}
{{ attention.load4("k", s.edge_w) }}
{{ attention.load4("v", s.edge_v) }}
{{ attention.store4() }}
{{ attention.range() }}
{{ attention.score4() }}
{# Copy a tile of x from column `from`, whose first row is `first` and last one at most `last`; `slot` is its place. #}
{% macro copy(x, count, columns, first, last, from="") %}
{% set width = columns // 4 %}
{% for u in range(kernel.shares(count, columns)) %}
    {
        let place = local_index{{ " + " ~ (u * invocations) ~ "u" if u }};
{% set guarded = (u + 1) * invocations > count * width %}
{% if guarded %}
        if (place < {{ count * width }}u) {
{% endif %}
        let row = place / {{ width }}u;
        let c = place % {{ width }}u;
{% set slot = "row % 4u * (BK / 4u) + row / 4u" if x == "k" else "row" %}
        {{ x }}_tile[{{ slot }}][c] = load_{{ x }}4({{ x }}_base, min({{ first }} + row, {{ last }}), {{ from }}c * 4u);
{% if guarded %}
        }
{% endif %}
    }
{% endfor %}
{% endmacro %}
{# own ← max or sum, written by `caller(x, y)`, of the invocations that share a row. #}
{% macro combined(identity="") %}
{% if kernel.combine == "subgroup" %}
{% set far = namespace(size=1) %}
{% for _ in range(8) if far.size < kernel.wx %}
{% for i in rows %}
        own_{{ i }} = {{ caller("own_" ~ i, "subgroupShuffleXor(own_" ~ i ~ ", " ~ far.size ~ "u)") }};
{% endfor %}
{% set far.size = far.size * 2 %}
{% endfor %}
{% else %}
{% for i in rows %}
        parts[ly + {{ i }}u * WY][lx] = own_{{ i }};
        own_{{ i }} = {{ identity }};
{% endfor %}
        workgroupBarrier(); // the parts are there before anyone reads them
        for (var x = 0u; x < WX; x++) {
{% for i in rows %}
            own_{{ i }} = {{ caller("own_" ~ i, "parts[ly + " ~ i ~ "u * WY][x]") }};
{% endfor %}
        }
{% endif %}
{% endmacro %}
@compute @workgroup_size({{ invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
) {
{{ attention.tile_of("BQ") }}
    let lx = local_index % WX;
    let ly = local_index / WX;
    let q_base = {{ attention.base("q") }};
    let k_base = {{ attention.base("k") }};
    let v_base = {{ attention.base("v") }};
    let o_base = {{ attention.base("o") }};
    let mask_base = {{ attention.mask_base() }};
{% if whole_rows %}
{{ copy("q", kernel.bq, span, "start", "params.queries - 1u") }}
{% endif %}
{% for i in rows %}
{% set row = "start + ly + " ~ i ~ "u * WY" %}
    let row_{{ i }} = {{ "min(" ~ row ~ ", params.queries - 1u)" if s.edge_q else row }};
{% if s.ranged %}
    let seen_{{ i }} = keys_of(entry, row_{{ i }});
{% endif %}
    var top_{{ i }} = FLOOR;
    var sum_{{ i }} = 0.0;
{% for j in cols %}
    var acc_{{ i }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
    // Later queries see later keys
    let first = keys_of(entry, start);
    let last = keys_of(entry, min(start + BQ, params.queries) - 1u);
    //# inner
    for (var k0 = first.x; k0 < last.y; k0 += BK) {
{{ copy("v", kernel.bk, kernel.values, "k0", "last.y - 1u") }}
{% for i in rows %}
{% for j in keys %}
        var score_{{ i }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% if whole_rows %}
{{ copy("k", kernel.bk, span, "k0", "last.y - 1u") }}
{% else %}
        for (var c0 = 0u; c0 < COLUMNS; c0 += SPAN) {
        if (c0 > 0u) {
            workgroupBarrier(); // everyone is done with these columns before they are overwritten
        }
{{ copy("q", kernel.bq, span, "start", "params.queries - 1u", "c0 + ") }}
{{ copy("k", kernel.bk, span, "k0", "last.y - 1u", "c0 + ") }}
{% endif %}
        workgroupBarrier(); // the tiles are complete before anyone reads them
        for (var c = 0u; c < {{ span // 4 }}u; c++) {
{% for i in rows %}
            let q_{{ i }} = q_tile[ly + {{ i }}u * WY][c];
{% endfor %}
{% for j in keys %}
{% for n in range(4) %}
            let k_{{ j }}_{{ n }} = k_tile[{{ n }}u * (BK / 4u) + lx{{ " + " ~ j ~ "u * WX" if j }}][c];
{% endfor %}
{% endfor %}
{% for e in "xyzw" %}
{% for i in rows %}
{% for j in keys %}
{% set four %}{% for n in range(4) %}k_{{ j }}_{{ n }}.{{ e }}{{ ", " if n < 3 }}{% endfor %}{% endset %}
            score_{{ i }}_{{ j }} = fma(vec4f(q_{{ i }}.{{ e }}), vec4f({{ four }}), score_{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
        }
{% if not whole_rows %}
        }
{% endif %}
{% if tested %}
        let whole = k0 >= last.x && k0 + BK <= first.y;
{% endif %}
{% for i in rows %}
{% for j in keys %}
{% set key = "key_" ~ i ~ "_" ~ j %}
        let {{ key }} = k0 + (lx{{ " + " ~ j ~ "u * WX" if j }}) * 4u;
        score_{{ i }}_{{ j }} = scored4(score_{{ i }}_{{ j }}, mask_base, row_{{ i }}, {{ key }}, params.keys - 1u);
{% if tested %}
        if (!whole) {
            let four = vec4u({{ key }}) + vec4u(0u, 1u, 2u, 3u);
{% set begin, end = ("seen_" ~ i ~ ".x", "seen_" ~ i ~ ".y") if s.ranged else ("0u", "params.keys") %}
            let hidden = {{ "(four < vec4u(" ~ begin ~ ")) | " if s.left }}(four >= vec4u({{ end }}));
            score_{{ i }}_{{ j }} = select(score_{{ i }}_{{ j }}, vec4f(HIDDEN), hidden);
        }
{% endif %}
        dbg_k(SCORE, {{ watched }}{{ i }}, {{ any_column }}, {{ key }}, score_{{ i }}_{{ j }});
        let pair_{{ i }}_{{ j }} = max(score_{{ i }}_{{ j }}.xy, score_{{ i }}_{{ j }}.zw);
{% endfor %}
        var own_{{ i }} = max(pair_{{ i }}_0.x, pair_{{ i }}_0.y);
{% for j in keys if j %}
        own_{{ i }} = max(own_{{ i }}, max(pair_{{ i }}_{{ j }}.x, pair_{{ i }}_{{ j }}.y));
{% endfor %}
{% endfor %}
{% call(x, y) combined("FLOOR") %}max({{ x }}, {{ y }}){% endcall %}
{% for i in rows %}
        {
            let larger = max(top_{{ i }}, own_{{ i }});
            let shrink = exp2(top_{{ i }} - larger);
            top_{{ i }} = larger;
            dbg(TOP, {{ watched }}{{ i }}, {{ any_column }}, k0 + BK - 1u, larger);
            sum_{{ i }} *= shrink;
{% for j in keys %}
            let weight{{ j }} = exp2(score_{{ i }}_{{ j }} - larger);
            sum_{{ i }} += dot(weight{{ j }}, vec4f(1.0));
            dbg_k(WEIGHT, {{ watched }}{{ i }}, {{ any_column }}, key_{{ i }}_{{ j }}, weight{{ j }});
            weights[ly + {{ i }}u * WY][lx{{ " + " ~ j ~ "u * WX" if j }}] = weight{{ j }};
{% endfor %}
            dbg(SUM, {{ watched }}{{ i }}, {{ any_column }}, key_{{ i }}_{{ kernel.tk // 4 - 1 }} + 3u, sum_{{ i }});
{% for j in cols %}
            acc_{{ i }}_{{ j }} *= shrink;
{% endfor %}
        }
{% endfor %}
        workgroupBarrier(); // the weights are complete before anyone reads them
        for (var at = 0u; at < BK / 4u; at++) {
{% for i in rows %}
            let weight_{{ i }} = weights[ly + {{ i }}u * WY][at];
{% endfor %}
{% for n in range(4) %}
{% for j in cols %}
            let v_{{ n }}_{{ j }} = v_tile[at * 4u + {{ n }}u][lx{{ " + " ~ j ~ "u * WX" if j }}];
{% endfor %}
{% for i in rows %}
{% for j in cols %}
            acc_{{ i }}_{{ j }} = fma(vec4f(weight_{{ i }}.{{ "xyzw"[n] }}), v_{{ n }}_{{ j }}, acc_{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
        }
{% for i in rows %}
{% for j in cols %}
        dbg_n(ACC, {{ watched }}{{ i }}, (lx{{ " + " ~ j ~ "u * WX" if j }}) * 4u, k0 + BK - 1u, acc_{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
    }
    //# end
{% for i in rows %}
    var own_{{ i }} = sum_{{ i }};
{% endfor %}
{% call(x, y) combined("0.0") %}{{ x }} + {{ y }}{% endcall %}
{% for i in rows %}
    {
        let scale = select(1.0 / own_{{ i }}, 0.0, own_{{ i }} == 0.0);
{% if s.edge_q %}
        if (start + ly + {{ i }}u * WY < params.queries) {
{% endif %}
{% for j in cols %}
            store_o4(o_base, row_{{ i }}, (lx{{ " + " ~ j ~ "u * WX" if j }}) * 4u, acc_{{ i }}_{{ j }} * scale);
{% endfor %}
{% if s.edge_q %}
        }
{% endif %}
    }
{% endfor %}
}
