{#
  Tiles of short rows: contiguous rows of any length are contiguous in the tile, too. Neighbouring invocations load
  neighbouring elements, LANES per step. Then PER_ROW invocations share a row of the tile:

      place       0 1 2 3 4 5 6 7 8 9 …         of the row      0 1 0 1 0 | 2 3 2 3 2 | …     (PER_ROW = 2)
      x, tile     0 1 2 3 4 | 0 1 2 3 4 | …                     0 1 2 3 4 | 0 1 2 3 4 | …

  After every 32 elements the tile has PAD elements of padding, so that rows of a power of two begin in several banks.
#}
{% import "common/reduce.wgsl" as reduce with context %}
{% import "common/matrix.wgsl" as matrix with context %}

{# The index of element `at` in the padded tile. #}
{% macro place(at) -%}
{{ at }}{{ " + " ~ at ~ " / 32u * " ~ kernel.pad ~ "u" if kernel.pad }}
{%- endmacro %}

{% macro functions() %}
const ROWS: u32 = {{ kernel.rows }}u; // of a tile

var<workgroup> tile: array<{{ reduce.number() }}, {{ kernel.tile }}>;

// The tile's indices of elements k, k + PER_ROW, … of a row that begins at `base`
fn places4(base: u32, k: u32) -> vec4u {
    let at = vec4u(base + k) + vec4u(0u, 1u, 2u, 3u) * PER_ROW;
    return {{ place("at") }};
}

// These elements{{ reduce.beyond("the end of the row") }}
fn load4(base: u32, k: u32, end: u32) -> {{ reduce.number("4") }} {
{% set last = place("(base + end - 1u)") %}
    let at = {{ "min(places4(base, k), vec4u(" ~ last ~ "))" if s.edge and reduce.doubles else "places4(base, k)" }};
    let v = {{ reduce.by_fours() }}(tile[at.x], tile[at.y], tile[at.z], tile[at.w]);
{% if s.edge and not reduce.doubles %}
{% set outside %}{{ reduce.number("4") }}({{ reduce.outside() }}){% endset %}
    return select(v, {{ outside }}, vec4u(k) + vec4u(0u, 1u, 2u, 3u) * PER_ROW >= vec4u(end));
{% else %}
    return v;
{% endif %}
}

{% if kernel.per_row > 1 and kernel.combine == "tree" %}
var<workgroup> parts: array<{{ "f32" if s.operation == "logsumexp" else reduce.part() }}, LANES>;

{% endif %}
{% if s.operation == "logsumexp" %}
{{ combined("row_maximum", "f32", "max") }}
{{ combined("row_sum", "f32", "sum_of") }}
fn sum_of(a: f32, b: f32) -> f32 {
    return a + b;
}

{% else %}
{{ combined("combined", reduce.part(), "merge") }}
{% endif %}
{% endmacro %}

{# A function that combines the values of the invocations of a row by `merge`. #}
{% macro combined(name, type, merge) %}
// The result of all invocations of a row, in each of them
fn {{ name }}(own: {{ type }}, place: u32) -> {{ type }} {
    var all = own;
{% set half = namespace(size=1) %}
{% for _ in range(6) if half.size < kernel.per_row %}
{% if kernel.combine == "tree" %}
    parts[place] = all;
    workgroupBarrier(); // all parts are written before they are read
    all = {{ merge }}(all, parts[place ^ {{ half.size }}u]);
    workgroupBarrier(); // all are read before they are written again
{% elif type == "Part" %}
    all = {{ merge }}(all, Part(
{% for field in reduce.fields %}
        subgroupShuffleXor(all.{{ field }}, {{ half.size }}u),
{% endfor %}
    ));
{% else %}
    all = {{ merge }}(all, subgroupShuffleXor(all, {{ half.size }}u));
{% endif %}
{% set half.size = half.size * 2 %}
{% endfor %}
    return all;
}

{% endmacro %}

{#
  `all` of a row: with the maximum known first, each element takes a single exponential, power0, power1 …, and the
  sums of the invocations need no rescaling.
#}
{% macro exponentials() %}
{% set step = 4 * kernel.per_row %}
{% for u in range(kernel.unroll) %}
    let x{{ u }} = load4(base, k + {{ step * u }}u, params.length);
    dbg_far(LOADED, row, 0u, k + {{ step * u }}u, PER_ROW, x{{ u }});
{% endfor %}
{% set xs = [] %}
{% for u in range(kernel.unroll) %}
{% set _ = xs.append("x" ~ u) %}
{% endfor %}
    let tops = {{ reduce.top(xs) }};
    let top = row_maximum(max(max(tops.x, tops.y), max(tops.z, tops.w)), place);
{% for u in range(kernel.unroll) %}
    let power{{ u }} = power4(x{{ u }} - top);
{% endfor %}
    let sums = {{ reduce.added("power%d", kernel.unroll) }};
    let all = Part(top, row_sum((sums.x + sums.y) + (sums.z + sums.w), place));
    dbg(ACC, row, 0u, k + {{ step * kernel.unroll - kernel.per_row }}u, result(all));
{% endmacro %}

{% macro builtins() %}
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) place: u32,
{%- endmacro %}

{# The offset of an invocation's i-th element in the tile, and its index in the tile without padding. #}
{% macro next(i) -%}
{{ " + " ~ (i * (kernel.lanes + kernel.lanes // 32 * kernel.pad)) ~ "u" if i }}
{%- endmacro %}

{% macro after(i) -%}
place{{ " + " ~ (i * kernel.lanes) ~ "u" if i }}
{%- endmacro %}

{#
  Fill the tile; declare `row` and `lane` of an invocation, `base`, where its row begins in the tile, and `k`.
#}
{% macro fetch() %}
    let first = (workgroup.x + workgroup.y * grid.x) * ROWS;
    if (first >= params.outer) {
        return;
    }
    let count = min(ROWS, params.outer - first) * params.length; // elements of the tile
    let x_base = params.x_offset + first * params.length;
    let own_place = place{{ " + place / 32u * " ~ kernel.pad ~ "u" if kernel.pad }};
{% for i in range(4 * kernel.unroll) %}
    let fetched{{ i }} = {{ matrix.element("x", "x_base + min(" ~ after(i) ~ ", count - 1u)") }};
{% endfor %}
{% for i in range(4 * kernel.unroll) %}
    if ({{ after(i) }} < count) {
        tile[own_place{{ next(i) }}] = fetched{{ i }};
    }
{% endfor %}
    workgroupBarrier(); // the tile is written before it is read
    let row = first + place / PER_ROW;
    let lane = place % PER_ROW;
    let base = place / PER_ROW * params.length;
    let k = lane;
{% endmacro %}
