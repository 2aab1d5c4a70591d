// decode: attention for few queries, with the keys divided among lanes{{ " and workgroups" if kernel.splits > 1 }}.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from online: there are too few queries for an invocation each. SHARERS lanes hold a part of the columns each,
// of TM queries, from all heads that share keys: so k and v are read once for all of them. Lanes exchange their parts
// of q·k. Each such group reads keys of its own, with a maximum and a sum of its own; at the end, results are combined
// within subgroups, then through workgroup memory.
{% if kernel.splits > 1 %}
// The keys that queries see are divided among SPLITS workgroups, which write their results, maxima and sums to
// `partial` (head, query, split, column). The next dispatch (combine) combines them.
{% endif %}
// Edges: rows are padded with zeros; lanes without a key repeat the last one, with a weight of 0.
// Workgroup memory: TM·SIZE/LANES·(4·VALUES + 8) bytes. Needs subgroups of exactly LANES lanes.
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}

const GROUPS: u32 = SIZE / SHARERS; // groups of lanes with a key each
const STEP: u32 = GROUPS * UNROLL; // keys of a step
const VECTORS: u32 = VALUES / 4u; // of a row of o
const SUBGROUPS: u32 = SIZE / LANES;

var<workgroup> results: array<array<vec4f, VECTORS>, SUBGROUPS * TM>;
var<workgroup> tops: array<vec2f, SUBGROUPS * TM>; // the largest score, and the sum

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w) }}
{{ attention.load4("k", s.edge_w) }}
{{ attention.load4("v", s.edge_v) }}
{% if kernel.splits == 1 %}
{{ attention.store4() }}
{% endif %}
{{ attention.range() }}
{{ attention.score() }}
{% set rows, unroll = range(kernel.tm), range(kernel.unroll) %}
{% set columns, values = range(kernel.columns // 4 // kernel.sharers), range(kernel.values // 4 // kernel.sharers) %}
{# Debugger: the row of a query, any column, and the place of a key, if this group of lanes has one. #}
{% macro watched(r) %}(entry * params.heads + head{{ r }}) * params.queries + query{{ r }}{% endmacro %}
{% macro slot(u) %}select(0xffffffffu, key{{ u }}, key{{ u }} < last){% endmacro %}
{% set any_column = "dbg_col(0u, VALUES)" %}
{# The distances between lanes whose numbers differ in one bit, from `first` to below `end`. #}
{% macro exchanged(name, first, end, expression) %}
{% for bit in range(8) if first <= 2 ** bit < end %}
        {{ name }} = {{ expression("subgroupShuffleXor(" ~ name ~ ", " ~ 2 ** bit ~ "u)") }};
{% endfor %}
{% endmacro %}
@compute @workgroup_size(SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = (workgroup.x + workgroup.y * grid.x) / SPLITS;
    let split = (workgroup.x + workgroup.y * grid.x) % SPLITS;
    let rows = params.group * params.queries; // that share keys
    let tiles = (rows + TM - 1u) / TM;
    let kv_heads = params.heads / params.group;
    let entry = tile / tiles / kv_heads;
    if (entry >= params.entries) {
        return;
    }
    let first_head = tile / tiles % kv_heads * params.group;
    let first_row = tile % tiles * TM;
    let sharer = lane % SHARERS;
    let column = sharer * 4u;
    let member = subgroup * (LANES / SHARERS) + lane / SHARERS; // this group of lanes
    let k_base = params.k_offset + entry * params.k_strides.x + first_head / params.group * params.k_strides.y;
    let v_base = params.v_offset + entry * params.v_strides.x + first_head / params.group * params.v_strides.y;
{% for r in rows %}
    let row{{ r }} = min(first_row + {{ r }}u, rows - 1u);
    let query{{ r }} = row{{ r }} % params.queries;
    let head{{ r }} = first_head + row{{ r }} / params.queries;
    let q_base{{ r }} = params.q_offset + entry * params.q_strides.x + head{{ r }} * params.q_strides.y;
{% set base = "params.mask_offset + entry * params.mask_strides.x + head" ~ r ~ " * params.mask_strides.y" %}
    let mask_base{{ r }} = {{ base if s.mask else "0u" }};
{% if s.left or s.right %}
    let seen{{ r }} = keys_of(entry, query{{ r }});
{% endif %}
{% for c in columns %}
    let q{{ r }}_{{ c }} = load_q4(q_base{{ r }}, query{{ r }}, column + {{ 4 * c }}u * SHARERS);
{% endfor %}
    var top{{ r }} = FLOOR;
    var sum{{ r }} = 0.0;
{% for c in values %}
    var acc{{ r }}_{{ c }} = vec4f();
{% endfor %}
{% endfor %}
    // Later queries see later keys
    let begin = keys_of(entry, 0u).x;
    let end = keys_of(entry, params.queries - 1u).y;
    let share = (end - begin + SPLITS - 1u) / SPLITS;
    let first = min(begin + split * share, end);
    let last = min(first + share, end);
    //# inner
    for (var key = first; key < last; key += STEP) {
{% for u in unroll %}
        let key{{ u }} = key + member{{ " + " ~ u ~ "u * GROUPS" if u }};
        let at{{ u }} = min(key{{ u }}, last - 1u);
{% for c in columns %}
        let k{{ u }}_{{ c }} = load_k4(k_base, at{{ u }}, column + {{ 4 * c }}u * SHARERS);
{% endfor %}
{% endfor %}
{% for u in unroll %}
{% for c in values %}
        let v{{ u }}_{{ c }} = load_v4(v_base, at{{ u }}, column + {{ 4 * c }}u * SHARERS);
{% endfor %}
{% endfor %}
{% for r in rows %}
{% for u in unroll %}
{% set dots %}
{% for c in columns %}dot(q{{ r }}_{{ c }}, k{{ u }}_{{ c }}){{ " + " if not loop.last }}{% endfor %}
{% endset %}
        var product{{ r }}_{{ u }} = {{ dots }};
{% macro added(other) %}product{{ r }}_{{ u }} + {{ other }}{% endmacro %}
{{ exchanged("product" ~ r ~ "_" ~ u, 1, kernel.sharers, added) }}
{% set score %}scored(product{{ r }}_{{ u }}, mask_base{{ r }}, query{{ r }}, at{{ u }}){% endset %}
{% set ranged %}key{{ u }} >= seen{{ r }}.x && key{{ u }} < min(last, seen{{ r }}.y){% endset %}
{% set seen = ranged if s.left or s.right else "key" ~ u ~ " < last" %}
        let score{{ r }}_{{ u }} = select(HIDDEN, {{ score }}, {{ seen }});
        dbg(SCORE, {{ watched(r) }}, {{ any_column }}, {{ slot(u) }}, score{{ r }}_{{ u }});
{% endfor %}
{% set largest %}{% for u in unroll %}max(score{{ r }}_{{ u }}, {% endfor %}top{{ r }}{% endset %}
        let larger{{ r }} = {{ largest }}{{ ")" * kernel.unroll }};
        let shrink{{ r }} = exp2(top{{ r }} - larger{{ r }});
        top{{ r }} = larger{{ r }};
        dbg(TOP, {{ watched(r) }}, {{ any_column }}, {{ slot(0) }}, larger{{ r }});
        sum{{ r }} *= shrink{{ r }};
{% for c in values %}
        acc{{ r }}_{{ c }} *= shrink{{ r }};
{% endfor %}
{% for u in unroll %}
        let weight{{ r }}_{{ u }} = exp2(score{{ r }}_{{ u }} - larger{{ r }});
        sum{{ r }} += weight{{ r }}_{{ u }};
        dbg(WEIGHT, {{ watched(r) }}, {{ any_column }}, {{ slot(u) }}, weight{{ r }}_{{ u }});
{% for c in values %}
        acc{{ r }}_{{ c }} = fma(vec4f(weight{{ r }}_{{ u }}), v{{ u }}_{{ c }}, acc{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
        dbg(SUM, {{ watched(r) }}, {{ any_column }}, {{ slot(0) }}, sum{{ r }});
{% for c in values %}
        dbg_n(ACC, {{ watched(r) }}, column + {{ 4 * c }}u * SHARERS, {{ slot(0) }}, acc{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
    }
    //# end
    // Groups of this subgroup
{% for r in rows %}
    {
        var larger = top{{ r }};
{% macro larger(other) %}max(larger, {{ other }}){% endmacro %}
{{ exchanged("larger", kernel.sharers, kernel.lanes, larger) }}
        let shrink = exp2(top{{ r }} - larger);
        sum{{ r }} *= shrink;
{% macro added(other) %}sum{{ r }} + {{ other }}{% endmacro %}
{{ exchanged("sum" ~ r, kernel.sharers, kernel.lanes, added) }}
{% for c in values %}
        acc{{ r }}_{{ c }} *= shrink;
{% macro added(other) %}acc{{ r }}_{{ c }} + {{ other }}{% endmacro %}
{{ exchanged("acc" ~ r ~ "_" ~ c, kernel.sharers, kernel.lanes, added) }}
{% endfor %}
        if (lane < SHARERS) {
{% for c in values %}
            results[subgroup * TM + {{ r }}u][sharer{{ " + " ~ c ~ "u * SHARERS" if c }}] = acc{{ r }}_{{ c }};
{% endfor %}
            if (lane == 0u) {
                tops[subgroup * TM + {{ r }}u] = vec2f(larger, sum{{ r }});
            }
        }
    }
{% endfor %}
    workgroupBarrier(); // the results of all subgroups are there
    for (var i = local_index; i < TM * VECTORS; i += SIZE) {
        let row = first_row + i / VECTORS;
        if (row < rows) {
            let at = i / VECTORS;
            var larger = tops[at].x;
{% for n in range(1, kernel.size // kernel.lanes) %}
            larger = max(larger, tops[at + {{ n }}u * TM].x);
{% endfor %}
            var sum = 0.0;
            var value = vec4f();
{% for n in range(kernel.size // kernel.lanes) %}
            {
                let part = tops[at + {{ n }}u * TM];
                let shrink = exp2(part.x - larger);
                sum = fma(part.y, shrink, sum);
                value = fma(results[at + {{ n }}u * TM][i % VECTORS], vec4f(shrink), value);
            }
{% endfor %}
            let head = first_head + row / params.queries;
            let query = row % params.queries;
{% if kernel.splits == 1 %}
            let o_base = {{ attention.base("o") }};
            store_o4(o_base, query, i % VECTORS * 4u, value * select(1.0 / sum, 0.0, sum == 0.0));
{% else %}
            let line = (((entry * params.heads + head) * params.queries + query) * SPLITS + split) * (VECTORS + 1u);
            partial[line + i % VECTORS] = value;
            if (i % VECTORS == 0u) {
                partial[line + VECTORS] = vec4f(larger, sum, 0.0, 0.0);
            }
{% endif %}
        }
    }
}
