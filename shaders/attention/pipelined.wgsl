// pipelined: attention, as blocked, with the next tiles on their way while these are multiplied.
//
// Storage: q, k, v and o with a stride per axis; sums in f32.
// Changed from blocked: the loads of the next tile of k are issued before the scores of this one are computed, those of
// v before the product with this one; they wait in registers until everyone is done with the tile in workgroup memory.
// That takes two barriers in a step, if rows of q and k fit as a whole.
{% if kernel.direct != "none" %}
// Read through caches, without tiles: {{ "v" if kernel.direct == "v" else "k and v" }}. Workgroup memory then has room
// for more queries of long rows.
{% endif %}
{% if kernel.combine == "shuffle" %}
// Weights stay in the registers of the invocation that computed them, and are handed over by shuffles.
{% endif %}
{% if kernel.teams > 1 %}
// Of a step of {{ kernel.tile_k }} keys each of {{ kernel.teams }} teams has BK, with its own maximum, sum and result.
// These combine at the end. More invocations have as many queries, where few workgroups leave a GPU idle.
{% endif %}
//
// Edges: loads beyond the last query or key repeat it. Workgroup memory: tiles and weights, as in blocked.
{% import "common/attention_tiles.wgsl" as tiles with context %}
{% import "common/attention.wgsl" as attention with context %}
{% include "common/header.wgsl" %}
{% set held = kernel.tiles %}
{% set whole_rows = kernel.at_once == kernel.columns %}
{% set by_spans = "k" in held and not whole_rows %}
{% set handed = kernel.combine != "shuffle" %}
{# The loads of the next tile of x, into registers. #}
{% macro fetch(x, first, last, from="") %}
{% for u in range(kernel.shares(x)) %}
        {
{{ tiles.place(x, u) }}
            next_{{ x }}_{{ u }} = load_{{ x }}4({{ x }}_base, min({{ first }} + row, {{ last }}), {{ from }}c * 4u);
        }
{% endfor %}
{% endmacro %}
{# The tiles of `xs` from registers to workgroup memory. #}
{% macro place_next(xs) %}
{% for x in xs %}
{% call(u) tiles.put(x) %}next_{{ x }}_{{ u }}{% endcall %}
{% endfor %}
{% endmacro %}
{% set moving = "qk" if by_spans else "k" if "k" in held else "" %}

{{ tiles.declarations() }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) local_index: u32,
{% if not handed %}
    @builtin(subgroup_invocation_id) lane: u32,
{% endif %}
) {
{{ attention.tile_of("BQ") }}
    let lx = local_index % WX;
{% if kernel.teams > 1 %}
    let ly = local_index / WX % WY;
    let team = local_index / (WX * WY);
    let lk = team * (BK / 4u) + lx;
{% else %}
    let ly = local_index / WX;
{% endif %}
{% if not handed %}
    let lane0 = lane - lx;
{% endif %}
{{ attention.bases() }}
{{ tiles.begin() }}
    let end = max(last.y, 1u) - 1u; // the last key that is read
{% if "q" in held %}
{{ tiles.copy("q", "start", "params.queries - 1u") }}
{% endif %}
{% if "k" in held %}
{{ tiles.copy("k", "first.x", "end") }}
{% endif %}
{% if "v" in held %}
{{ tiles.copy("v", "first.x", "end") }}
{% endif %}
{% for x in held if x in moving ~ "v" %}
{% for u in range(kernel.shares(x)) %}
    var next_{{ x }}_{{ u }} = vec4f();
{% endfor %}
{% endfor %}
{% if held %}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
{% endif %}
    for (var k0 = first.x; k0 < last.y; k0 += {{ kernel.tile_k }}u) {
{{ tiles.no_scores() }}
{% if by_spans %}
        for (var c0 = 0u; c0 < COLUMNS; c0 += SPAN) {
            let more = c0 + SPAN < COLUMNS;
            let c1 = select(0u, c0 + SPAN, more);
            let k1 = select(k0 + {{ kernel.tile_k }}u, k0, more);
{{ fetch("q", "start", "params.queries - 1u", "c1 + ") }}
{{ fetch("k", "k1", "end", "c1 + ") }}
{{ tiles.multiply_keys() }}
            if (more) {
                workgroupBarrier(); // everyone is done with these columns before they are overwritten
{{ place_next("qk") }}
                workgroupBarrier(); // the next columns are complete before anyone reads them
            }
        }
{% else %}
{% if "k" in held %}
{{ fetch("k", "k0 + " ~ kernel.tile_k ~ "u", "end") }}
{% endif %}
{{ tiles.multiply_keys() }}
{% endif %}
{{ tiles.weigh() }}
        //# ahead
{% if handed %}
        workgroupBarrier(); // the weights are complete, and everyone is done with the tile of k
{% elif "k" in held or "v" in held %}
        workgroupBarrier(); // everyone is done with the tile of k, and that of v is complete
{% endif %}
{{ place_next(moving) }}
{% if "v" in held %}
{{ fetch("v", "k0 + " ~ kernel.tile_k ~ "u", "end") }}
{% endif %}
        //# end
{% if handed %}
{{ tiles.multiply_values() }}
{% else %}
        for (var x = 0u; x < WX; x++) {
{% for j in range(kernel.tk // 4) %}
        {
            let four = {{ "team * (BK / 4u) + " if kernel.teams > 1 }}x + {{ j }}u * WX;
{% call(i) tiles.multiply_four("four") %}subgroupShuffle(score_{{ i }}_{{ j }}, lane0 + x){% endcall %}
        }
{% endfor %}
        }
{{ tiles.recorded() }}
{% endif %}
{% if "k" in held or "v" in held or kernel.combine == "subgroup" %}
        workgroupBarrier(); // everyone is done with weights and v before they are overwritten, and the next k is there
{% endif %}
{% if "v" in held %}
{{ place_next("v") }}
{% endif %}
    }
{{ tiles.sum_up() }}
{% if kernel.teams > 1 %}
{% set others = range(1, kernel.teams) %}
{% for i in range(kernel.tm) %}
    weights[ly + {{ i }}u * WY][team * WX + lx] = vec4f(top_{{ i }}, own_{{ i }}, 0.0, 0.0);
{% endfor %}
    workgroupBarrier(); // maxima and sums of all teams are there before anyone reads them
{% for i in range(kernel.tm) %}
    {
        var larger = FLOOR;
        for (var t = 0u; t < {{ kernel.teams }}u; t++) {
            larger = max(larger, weights[ly + {{ i }}u * WY][t * WX + lx].x);
        }
        own_{{ i }} = 0.0;
        for (var t = 0u; t < {{ kernel.teams }}u; t++) {
            let each = weights[ly + {{ i }}u * WY][t * WX + lx];
            own_{{ i }} += each.y * exp2(each.x - larger);
        }
        let shrink = exp2(top_{{ i }} - larger);
{% for j in range(kernel.tn // 4) %}
        acc_{{ i }}_{{ j }} *= shrink;
{% endfor %}
    }
{% endfor %}
{% for j in range(kernel.tn // 4) %}
    workgroupBarrier(); // everyone is done with what was handed over before it is overwritten
    if (team > 0u) {
{% for i in range(kernel.tm) %}
        weights[ly + {{ i }}u * WY][team * WX + lx] = acc_{{ i }}_{{ j }};
{% endfor %}
    }
    workgroupBarrier(); // the results of the other teams are there before the first one reads them
    if (team == 0u) {
{% for t in others %}
{% for i in range(kernel.tm) %}
        acc_{{ i }}_{{ j }} += weights[ly + {{ i }}u * WY][{{ t }}u * WX + lx];
{% endfor %}
{% endfor %}
    }
{% endfor %}
    if (team == 0u) {
{{ tiles.store() }}
    }
{% else %}
{{ tiles.store() }}
{% endif %}
}
