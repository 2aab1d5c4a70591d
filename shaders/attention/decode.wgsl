// decode: attention for few queries, with the keys divided among lanes{{ " and workgroups" if kernel.splits > 1 }}.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from online: there are too few queries for an invocation each. SHARERS lanes hold a part of the columns each,
// of TM queries, from all heads that share keys: so k and v are read once for all of them. Each such group reads keys
// of its own, with a maximum and a sum of its own; at the end, results are combined within subgroups, then through
// workgroup memory.
{% if kernel.owners > 1 %}
// Lanes exchange their parts of q·k so that each has the score of a query only, and sends its weight to the others.
// With all scores in each lane, an H200 took 181 instead of 147 µs for a query of 32 heads over 8, 131,072 keys and 128
// columns in float16 under wgpu.
{% endif %}
{% if kernel.ahead("k") %}
// Rows of k are loaded a step ahead. With those of v ahead as well, wgpu took 20 % longer on an H200.
{% endif %}
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
{{ attention.load8("k", s.edge_w) if kernel.chunked(s, "k") else attention.load4("k", s.edge_w) }}
{{ attention.load8("v", s.edge_v) if kernel.chunked(s, "v") else attention.load4("v", s.edge_v) }}
{% if kernel.splits == 1 %}
{{ attention.store4() }}
{% endif %}
{{ attention.range() }}
{{ attention.score() }}
{% set rows, unroll = range(kernel.tm), range(kernel.unroll) %}
{% set spread, own, bits = kernel.owners, range(kernel.tm // kernel.owners), range(kernel.halvings) %}
{% set columns, values = range(kernel.columns // 4 // kernel.sharers), range(kernel.values // 4 // kernel.sharers) %}
{# Debugger: the row of a query, any column, and the place of a key, if this group of lanes has one. #}
{% macro watched(o) %}(entry * params.heads + head{{ o }}) * params.queries + query{{ o }}{% endmacro %}
{% macro slot(u) %}select(0xffffffffu, key{{ u }}, key{{ u }} < last){% endmacro %}
{% set any_column = "dbg_col(0u, VALUES)" %}
{# The first column of a lane's cth vec4, and the number of that vec4 in a row. #}
{% set line = kernel.chunk // 4 %}
{% macro first_column(c) -%}
column{{ " + " ~ c // line * kernel.chunk ~ "u * SHARERS" if c >= line }}{{ " + 4u" if c % line }}
{%- endmacro %}
{% macro vector(c) -%}
sharer{{ " * 2u" if line == 2 }}{{ " + " ~ c // line * line ~ "u * SHARERS" if c >= line }}{{ " + 1u" if c % line }}
{%- endmacro %}
{# A lane's cth vec4 of key u's row of k or v as it is loaded, or the chunk that contains it; and as vec4f. #}
{% macro loaded(x, u, c) -%}
{{ x }}{{ "_next" if kernel.ahead(x) else "_chunk" if kernel.chunked(s, x) }}{{ u }}_{{ c }}
{%- endmacro %}
{% macro loads(x, columns, u, key, declared) %}
{% for c in columns if c % line == 0 or not kernel.chunked(s, x) %}
{% set load = "load_" ~ x ~ ("8" if kernel.chunked(s, x) else "4") %}
        {{ declared }}{{ loaded(x, u, c) }} = {{ load }}({{ x }}_base, {{ key }}, {{ first_column(c) }});
{% endfor %}
{% endmacro %}
{% macro converted(x, columns, u) %}
{% for c in columns if kernel.chunked(s, x) or kernel.ahead(x) %}
{% set words = loaded(x, u, c // line * line) ~ (".zw" if c % line else ".xy") %}
        let {{ x }}{{ u }}_{{ c }} = {{ attention.four(words) if kernel.chunked(s, x) else loaded(x, u, c) }};
{% endfor %}
{% endmacro %}
{% macro next_keys(start, declared="") %}
{% for u in unroll if kernel.ahead("k") %}
{% set key = "min(" ~ start ~ " + member" ~ (" + " ~ u ~ "u * GROUPS" if u) ~ ", end_key)" %}
{{ loads("k", columns, u, key, declared) -}}
{% endfor %}
{% endmacro %}
{# `name` of query r, and of key u if there are several, from the lane that has it, … #}
{% macro sent(name, r, u="") -%}
{% set own = name ~ r // spread ~ ("_" ~ u if u != "") -%}
        let {{ got(name, r, u) }} = subgroupShuffle({{ own }}, owner + {{ r % spread }}u);
{%- endmacro %}
{# … and the name under which each lane then has it. #}
{% macro got(name, r, u="") -%}
{{ "sent_" if spread > 1 }}{{ name }}{{ r }}{{ "_" ~ u if u != "" }}
{%- endmacro %}
{# The nth sum that a lane still has after so many exchanges, for key u. #}
{% macro part(bit, n, u) -%}{{ "product" if bit == 0 else "part" ~ bit ~ "_" }}{{ n }}_{{ u }}{%- endmacro %}
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
    let column = sharer * {{ kernel.chunk }}u;
    let member = subgroup * (LANES / SHARERS) + lane / SHARERS; // this group of lanes
    let k_base = params.k_offset + entry * params.k_strides.x + first_head / params.group * params.k_strides.y;
    let v_base = params.v_offset + entry * params.v_strides.x + first_head / params.group * params.v_strides.y;
{% if spread > 1 %}
    let owner = lane - lane % {{ spread }}u; // the lane that has the scores of the first query
{% for bit in bits %}
    let odd{{ bit }} = (lane & {{ 2 ** bit }}u) != 0u;
{% endfor %}
{% endif %}
{% for o in own %}
{% set place = o * spread ~ "u" ~ (" + lane % " ~ spread ~ "u" if spread > 1) %}
    let row{{ o }} = min(first_row + {{ place }}, rows - 1u);
    let query{{ o }} = row{{ o }} % params.queries;
    let head{{ o }} = first_head + row{{ o }} / params.queries;
{% set base = "params.mask_offset + entry * params.mask_strides.x + head" ~ o ~ " * params.mask_strides.y" %}
    let mask_base{{ o }} = {{ base if s.mask else "0u" }};
{% if s.left or s.right %}
    let seen{{ o }} = keys_of(entry, query{{ o }});
{% endif %}
    var top{{ o }} = FLOOR;
    var sum{{ o }} = 0.0;
{% endfor %}
{% for r in rows %}
    let q_row{{ r }} = min(first_row + {{ r }}u, rows - 1u);
    let q_head{{ r }} = first_head + q_row{{ r }} / params.queries;
    let q_base{{ r }} = params.q_offset + entry * params.q_strides.x + q_head{{ r }} * params.q_strides.y;
{% for c in columns %}
    let q{{ r }}_{{ c }} = load_q4(q_base{{ r }}, q_row{{ r }} % params.queries, {{ first_column(c) }});
{% endfor %}
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
    let end_key = max(last, 1u) - 1u;
{{ next_keys("first", "var ") -}}
    //# inner
    for (var key = first; key < last; key += STEP) {
{% for u in unroll %}
        let key{{ u }} = key + member{{ " + " ~ u ~ "u * GROUPS" if u }};
        let at{{ u }} = min(key{{ u }}, end_key);
{{ loads("k", columns, u, "at" ~ u, "let ") if not kernel.ahead("k") -}}
{% endfor %}
{% for u in unroll %}
{{ loads("v", values, u, "at" ~ u, "let ") -}}
{% endfor %}
{% for u in unroll %}
{{ converted("k", columns, u) -}}
{{ converted("v", values, u) -}}
{% endfor %}
{% for u in unroll %}
{% for r in rows %}
{% set dots %}
{% for c in columns %}dot(q{{ r }}_{{ c }}, k{{ u }}_{{ c }}){{ " + " if not loop.last }}{% endfor %}
{% endset %}
        {{ "let" if spread > 1 else "var" }} {{ part(0, r, u) }} = {{ dots }};
{% endfor %}
{% for bit in bits %}
{% for n in range(kernel.tm // 2 ** (bit + 1)) %}
{% set even, odd = part(bit, 2 * n, u), part(bit, 2 * n + 1, u) %}
{% set other = "subgroupShuffleXor(select(" ~ odd ~ ", " ~ even ~ ", odd" ~ bit ~ "), " ~ 2 ** bit ~ "u)" %}
{% set kept = "select(" ~ even ~ ", " ~ odd ~ ", odd" ~ bit ~ ")" %}
        {{ "var" if bit + 1 == kernel.halvings else "let" }} {{ part(bit + 1, n, u) }} = {{ kept }} + {{ other }};
{% endfor %}
{% endfor %}
{% for o in own %}
{% set product = part(kernel.halvings, o, u) %}
{% macro added(other) %}{{ product }} + {{ other }}{% endmacro %}
{{ exchanged(product, spread, kernel.sharers, added) }}
{% set score %}scored({{ product }}, mask_base{{ o }}, query{{ o }}, at{{ u }}){% endset %}
{% set ranged %}key{{ u }} >= seen{{ o }}.x && key{{ u }} < min(last, seen{{ o }}.y){% endset %}
{% set seen = ranged if s.left or s.right else "key" ~ u ~ " < last" %}
        let score{{ o }}_{{ u }} = select(HIDDEN, {{ score }}, {{ seen }});
        dbg(SCORE, {{ watched(o) }}, {{ any_column }}, {{ slot(u) }}, score{{ o }}_{{ u }});
{% endfor %}
{% endfor %}
{{ next_keys("key + STEP") -}}
{% for o in own %}
{% set largest %}{% for u in unroll %}max(score{{ o }}_{{ u }}, {% endfor %}top{{ o }}{% endset %}
        let larger{{ o }} = {{ largest }}{{ ")" * kernel.unroll }};
        let shrink{{ o }} = exp2(top{{ o }} - larger{{ o }});
        top{{ o }} = larger{{ o }};
        dbg(TOP, {{ watched(o) }}, {{ any_column }}, {{ slot(0) }}, larger{{ o }});
        sum{{ o }} *= shrink{{ o }};
{% for u in unroll %}
        let weight{{ o }}_{{ u }} = exp2(score{{ o }}_{{ u }} - larger{{ o }});
        sum{{ o }} += weight{{ o }}_{{ u }};
        dbg(WEIGHT, {{ watched(o) }}, {{ any_column }}, {{ slot(u) }}, weight{{ o }}_{{ u }});
{% endfor %}
        dbg(SUM, {{ watched(o) }}, {{ any_column }}, {{ slot(0) }}, sum{{ o }});
{% endfor %}
{% for r in rows %}
{% if spread > 1 %}
        {{ sent("shrink", r) }}
{% endif %}
{% for c in values %}
        acc{{ r }}_{{ c }} *= {{ got("shrink", r) }};
{% endfor %}
{% for u in unroll %}
{% if spread > 1 %}
        {{ sent("weight", r, u) }}
{% endif %}
{% for c in values %}
        acc{{ r }}_{{ c }} = fma(vec4f({{ got("weight", r, u) }}), v{{ u }}_{{ c }}, acc{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% set row = "(entry * params.heads + q_head" ~ r ~ ") * params.queries + q_row" ~ r ~ " % params.queries" %}
{% for c in values %}
        dbg_n(ACC, {{ row }}, {{ first_column(c) }}, {{ slot(0) }}, acc{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
    }
    //# end
    // Groups of this subgroup
{% for o in own %}
    var whole{{ o }} = top{{ o }};
{% macro larger(other) %}max(whole{{ o }}, {{ other }}){% endmacro %}
{{ exchanged("whole" ~ o, kernel.sharers, kernel.lanes, larger) }}
    let shrink{{ o }} = exp2(top{{ o }} - whole{{ o }});
    sum{{ o }} *= shrink{{ o }};
{% macro added(other) %}sum{{ o }} + {{ other }}{% endmacro %}
{{ exchanged("sum" ~ o, kernel.sharers, kernel.lanes, added) }}
{% endfor %}
{% for r in rows %}
    {
{% if spread > 1 %}
        {{ sent("shrink", r) }}
{% endif %}
{% for c in values %}
        acc{{ r }}_{{ c }} *= {{ got("shrink", r) }};
{% macro added(other) %}acc{{ r }}_{{ c }} + {{ other }}{% endmacro %}
{{ exchanged("acc" ~ r ~ "_" ~ c, kernel.sharers, kernel.lanes, added) }}
{% endfor %}
        if (lane < SHARERS) {
{% for c in values %}
            results[subgroup * TM + {{ r }}u][{{ vector(c) }}] = acc{{ r }}_{{ c }};
{% endfor %}
        }
    }
{% endfor %}
    if (lane < {{ spread }}u) {
{% for o in own %}
        tops[subgroup * TM + {{ o * spread }}u + lane] = vec2f(whole{{ o }}, sum{{ o }});
{% endfor %}
    }
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
