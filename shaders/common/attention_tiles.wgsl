{#
  What the kernels of attention with tiles in workgroup memory and in registers share. An invocation has

        rows      ly + i*WY,  i < TM
        keys      (lk + j*WX)*4 .. +3 of a step
        columns   (lx + j*WX)*4 .. +3 of v

  lk is lx, or counts from the first key of a team. Tiles of operands that are not in `kernel.tiles` are read directly.
#}
{% import "common/attention.wgsl" as attention with context %}
{% set rows, keys, cols = range(kernel.tm), range(kernel.tk // 4), range(kernel.tn // 4) %}
{% set step, tiles = kernel.tile_k, kernel.tiles %}
{% set teams = kernel.parts > kernel.wx %}
{% set lk = "lk" if teams else "lx" %}
{% set at_once = kernel.at_once if "k" in tiles else kernel.columns %}
{% set tested = s.ranged or s.edge_k %}
{% set watched = "pair * params.queries + row_" %}
{% set last_key = "k0 + " ~ ("team * BK + " if teams else "") ~ "BK - 1u" %}
{% set any_column = "dbg_col(0u, VALUES)" %}

{# Constants, workgroup memory and functions. #}
{% macro declarations() %}
const WY: u32 = BQ / TM;

{% for x in tiles %}
{% set count, width = kernel.tile(x) %}
var<workgroup> {{ x }}_tile: array<array<vec4f, {{ width + (0 if x == "v" else 1) }}>, {{ count }}>;
{% endfor %}
{% if kernel.handed %}
var<workgroup> weights: array<array<vec4f, {{ kernel.handed }}>, BQ>;
{% endif %}
{% if kernel.combine == "tree" %}
var<workgroup> parts: array<array<f32, {{ kernel.parts }}>, BQ>;
{% endif %}

{{ attention.constants() }}
{{ attention.load4("q", s.edge_w) }}
{{ attention.load4("k", s.edge_w) }}
{{ attention.load4("v", s.edge_v) }}
{{ attention.store4() }}
{{ attention.range() }}
{{ attention.score4() }}
{% endmacro %}

{# The place of an invocation's `u`-th vec4 of a tile of x. #}
{% macro place(x, u) %}
{% set _, width = kernel.tile(x) %}
        let place = local_index{{ " + " ~ (u * kernel.invocations) ~ "u" if u }};
        let row = place / {{ width }}u;
        let c = place % {{ width }}u;
{% endmacro %}

{# Write a tile of x; `caller(u)` is the `u`-th vec4 of an invocation, from `row` and `c`. #}
{% macro put(x) %}
{% set count, width = kernel.tile(x) %}
{% for u in range(kernel.shares(x)) %}
{% set guarded = (u + 1) * kernel.invocations > count * width %}
    {
{{ place(x, u) }}
{% if guarded %}
        if (row < {{ count }}u) {
{% endif %}
        {{ x }}_tile[{{ "row % 4u * " ~ step // 4 ~ "u + row / 4u" if x == "k" else "row" }}][c] = {{ caller(u) }};
{% if guarded %}
        }
{% endif %}
    }
{% endfor %}
{% endmacro %}

{# Copy a tile of x from column `from`, whose first row is `first` and last one at most `last`. #}
{% macro copy(x, first, last, from="") %}
{% call(u) put(x) %}load_{{ x }}4({{ x }}_base, min({{ first }} + row, {{ last }}), {{ from }}c * 4u){% endcall %}
{% endmacro %}

{# The rows of an invocation, with no sums yet, and the keys that the workgroup sees, from first.x to before last.y. #}
{% macro begin() %}
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
{% endmacro %}

{# A score for each key of a step, and the rows of these keys if they are read directly. #}
{% macro no_scores() %}
{% for i in rows %}
{% for j in keys %}
        var score_{{ i }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% if "k" not in tiles %}
{% for j in keys %}
{% for n in range(4) %}
        let at_{{ j }}_{{ n }} = min(k0 + ({{ lk }}{{ " + " ~ j ~ "u * WX" if j }}) * 4u + {{ n }}u, end);
{% endfor %}
{% endfor %}
{% endif %}
{% endmacro %}

{# scores += q·k, for the columns that are at hand. #}
{% macro multiply_keys() %}
{% set unroll = kernel.unrolled(at_once // 4) %}
        for (var c = 0u; c < {{ at_once // 4 }}u; c{{ " += " ~ unroll ~ "u" if unroll > 1 else "++" }}) {
{% for at in range(unroll) %}
{% set c = "c + " ~ at ~ "u" if at else "c" %}
{% if unroll > 1 %}
        {
{% endif %}
{% for i in rows %}
{% set direct = "load_q4(q_base, row_" ~ i ~ ", (" ~ c ~ ") * 4u)" %}
            let q_{{ i }} = {{ "q_tile[ly + " ~ i ~ "u * WY][" ~ c ~ "]" if "q" in tiles else direct }};
{% endfor %}
{% for j in keys %}
{% for n in range(4) %}
{% set tile = "k_tile[" ~ n * (step // 4) ~ "u + " ~ lk ~ (" + " ~ j ~ "u * WX" if j else "") ~ "][" ~ c ~ "]" %}
{% set direct = "load_k4(k_base, at_" ~ j ~ "_" ~ n ~ ", (" ~ c ~ ") * 4u)" %}
            let k_{{ j }}_{{ n }} = {{ tile if "k" in tiles else direct }};
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
{% if unroll > 1 %}
        }
{% endif %}
{% endfor %}
        }
{% endmacro %}

{# own ← max or sum, written by `caller(x, y)`, of the invocations that share a row. #}
{% macro combined(identity="") %}
{% if kernel.combine != "tree" %}
{% set far = namespace(size=1) %}
{% for _ in range(8) if far.size < kernel.wx %}
{% for i in rows %}
        own_{{ i }} = {{ caller("own_" ~ i, "subgroupShuffleXor(own_" ~ i ~ ", " ~ far.size ~ "u)") }};
{% endfor %}
{% set far.size = far.size * 2 %}
{% endfor %}
{% else %}
{% set place = "team * WX + " if teams else "" %}
{% for i in rows %}
        parts[ly + {{ i }}u * WY][{{ place }}lx] = own_{{ i }};
        own_{{ i }} = {{ identity }};
{% endfor %}
        workgroupBarrier(); // the parts are there before anyone reads them
        for (var x = 0u; x < WX; x++) {
{% for i in rows %}
            own_{{ i }} = {{ caller("own_" ~ i, "parts[ly + " ~ i ~ "u * WY][" ~ place ~ "x]") }};
{% endfor %}
        }
{% endif %}
{% endmacro %}

{# Scores become weights; maxima and sums follow. #}
{% macro weigh() %}
{% if tested %}
        let whole = k0 >= last.x && k0 + {{ step }}u <= first.y;
{% endif %}
{% for i in rows %}
{% for j in keys %}
{% set key = "key_" ~ i ~ "_" ~ j %}
        let {{ key }} = k0 + ({{ lk }}{{ " + " ~ j ~ "u * WX" if j }}) * 4u;
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
            dbg(TOP, {{ watched }}{{ i }}, {{ any_column }}, {{ last_key }}, larger);
            sum_{{ i }} *= shrink;
{% for j in keys %}
            score_{{ i }}_{{ j }} = exp2(score_{{ i }}_{{ j }} - larger);
            sum_{{ i }} += dot(score_{{ i }}_{{ j }}, vec4f(1.0));
            dbg_k(WEIGHT, {{ watched }}{{ i }}, {{ any_column }}, key_{{ i }}_{{ j }}, score_{{ i }}_{{ j }});
{% if kernel.combine != "shuffle" %}
            weights[ly + {{ i }}u * WY][{{ lk }}{{ " + " ~ j ~ "u * WX" if j }}] = score_{{ i }}_{{ j }};
{% endif %}
{% endfor %}
            dbg(SUM, {{ watched }}{{ i }}, {{ any_column }}, key_{{ i }}_{{ kernel.tk // 4 - 1 }} + 3u, sum_{{ i }});
{% for j in cols %}
            acc_{{ i }}_{{ j }} *= shrink;
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{# acc += weight · v, of the four keys `at` of a step; `caller(i)` is their weight. #}
{% macro multiply_four(at) %}
{% for i in rows %}
            let weight_{{ i }} = {{ caller(i) }};
{% endfor %}
{% for n in range(4) %}
{% for j in cols %}
{% set column = "lx" ~ (" + " ~ j ~ "u * WX" if j else "") %}
{% set row = at ~ " * 4u + " ~ n ~ "u" %}
{% set direct = "load_v4(v_base, min(k0 + " ~ row ~ ", end), (" ~ column ~ ") * 4u)" %}
            let v_{{ n }}_{{ j }} = {{ "v_tile[" ~ row ~ "][" ~ column ~ "]" if "v" in tiles else direct }};
{% endfor %}
{% for i in rows %}
{% for j in cols %}
            acc_{{ i }}_{{ j }} = fma(vec4f(weight_{{ i }}.{{ "xyzw"[n] }}), v_{{ n }}_{{ j }}, acc_{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# acc += weights · v, for the keys of a step, with weights from workgroup memory. #}
{% macro multiply_values() %}
{% set unroll = kernel.unrolled(kernel.bk // 4) %}
        for (var at = 0u; at < BK / 4u; at{{ " += " ~ unroll ~ "u" if unroll > 1 else "++" }}) {
{% for u in range(unroll) %}
{% if unroll > 1 or teams %}
        {
            let four = {{ "team * (BK / 4u) + " if teams }}at + {{ u }}u;
{% endif %}
{% set at = "four" if unroll > 1 or teams else "at" %}
{% call(i) multiply_four(at) %}weights[ly + {{ i }}u * WY][{{ at }}]{% endcall %}
{% if unroll > 1 or teams %}
        }
{% endif %}
{% endfor %}
        }
{{ recorded() }}
{% endmacro %}

{# Debugger: the sums after a step. #}
{% macro recorded() %}
{% for i in rows %}
{% for j in cols %}
        dbg_n(ACC, {{ watched }}{{ i }}, (lx{{ " + " ~ j ~ "u * WX" if j }}) * 4u, {{ last_key }}, acc_{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# own ← the sum of a row's weights. #}
{% macro sum_up() %}
{% for i in rows %}
    var own_{{ i }} = sum_{{ i }};
{% endfor %}
{% call(x, y) combined("0.0") %}{{ x }} + {{ y }}{% endcall %}
{% endmacro %}

{# o = acc / own #}
{% macro store() %}
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
{% endmacro %}
