{#
  Short rows, each shared by PER_ROW neighbouring invocations, which load its elements directly or from a tile in
  workgroup memory. Contiguous rows of any length are contiguous in the tile, too; neighbouring invocations load
  neighbouring elements of it, LANES per step:

      place       0 1 2 3 4 5 6 7 8 9 …         of the row      0 1 0 1 0 | 2 3 2 3 2 | …     (PER_ROW = 2)
      x, tile     0 1 2 3 4 | 0 1 2 3 4 | …                     0 1 2 3 4 | 0 1 2 3 4 | …

  After every 32 elements the tile has PAD elements of padding, so that rows of a power of two begin in several banks.
#}
{% import "common/reduce/elements.wgsl" as elements with context %}
{% import "common/reduce/parts.wgsl" as parts with context %}
{% import "common/reduce/loads.wgsl" as loads with context %}
{% import "reduce/operations/" ~ s.operation ~ ".wgsl" as operation with context %}
{% import "common/matrix.wgsl" as matrix with context %}

{# The index of element `at` in the padded tile. #}
{% macro place(at) -%}
{{ at }}{{ " + " ~ at ~ " / 32u * " ~ kernel.pad ~ "u" if kernel.pad }}
{%- endmacro %}

{% set tiled = kernel.op == "normalise" and kernel.load == "tile" %}

{% macro functions() %}
const ROWS: u32 = {{ kernel.rows }}u; // of a workgroup

{% if tiled %}
var<workgroup> tile: array<{{ elements.number() }}, {{ kernel.tile }}>;

// The tile's indices of elements k, k + PER_ROW, … of a row that begins at `base`
fn places4(base: u32, k: u32) -> vec4u {
    let at = vec4u(base + k) + vec4u(0u, 1u, 2u, 3u) * PER_ROW;
    return {{ place("at") }};
}

// These elements{{ elements.beyond("the end of the row") }}
fn load4(base: u32, k: u32, end: u32) -> {{ vec4r }} {
    let at = places4(base, k);
    let v = {{ vec4r }}(tile[at.x], tile[at.y], tile[at.z], tile[at.w]);
{% if s.edge %}
    return select(v, {{ vec4r }}({{ elements.outside() }}), vec4u(k) + vec4u(0u, 1u, 2u, 3u) * PER_ROW >= vec4u(end));
{% else %}
    return v;
{% endif %}
}

{% else %}
{{ loads.load4(kernel.per_row) }}
{% endif %}
{% if kernel.per_row > 1 and kernel.combine == "tree" %}
var<workgroup> parts: array<{{ real if s.operation == "logsumexp" else parts.part() }}, LANES>;

{% endif %}
{% if s.operation == "logsumexp" %}
{{ combined("row_maximum", real, "max") }}
{{ combined("row_sum", real, "sum_of") }}
fn sum_of(a: {{ real }}, b: {{ real }}) -> {{ real }} {
    return a + b;
}

{% else %}
{{ combined("combined", parts.part(), "merge") }}
{% endif %}
{% endmacro %}

{# A function that combines the values of the invocations of a row by `merge`. #}
{% macro combined(name, type, merge) %}
//# combine
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
{% for field in parts.fields %}
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
//# end

{% endmacro %}

{# Vec4 number u of an invocation. #}
{% macro loaded(u) -%}
{% set k = "k + " ~ (4 * kernel.per_row * u) ~ "u" %}
{{ "load4(base, " ~ k ~ ", params.length)" if tiled else loads.element4(u, k, "params.length", loads.inside(u)) }}
{%- endmacro %}

{#
  `all` of a row: with the maximum known first, each element takes a single exponential, powers0, powers1 …, and the
  sums of the invocations need no rescaling.
#}
{% macro exponentials() %}
{% set step = 4 * kernel.per_row %}
{% for u in range(kernel.unroll) %}
    let x{{ u }} = {{ loaded(u) }};
    dbg_far(LOADED, row, 0u, k + {{ step * u }}u, PER_ROW, x{{ u }});
{% endfor %}
{% set xs = [] %}
{% for u in range(kernel.unroll) %}
{% set _ = xs.append("x" ~ u) %}
{% endfor %}
    let tops = {{ operation.top(xs) }};
    let top = row_maximum(max(max(tops.x, tops.y), max(tops.z, tops.w)), place);
{% for u in range(kernel.unroll) %}
    let powers{{ u }} = power4(x{{ u }} - top);
{% endfor %}
    let sums = {{ operation.added("powers", kernel.unroll) }};
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

{# Declare `row` and `lane` of an invocation, `base`, where its row begins in x or in the tile, and `k`. #}
{% macro rows() %}
    let first = (workgroup.x + workgroup.y * grid.x) * ROWS;
    if (first >= params.outer) {
        return;
    }
    let row = first + place / PER_ROW;
    let lane = place % PER_ROW;
{% if tiled %}
{{ fill() }}
    let base = place / PER_ROW * params.length;
{% else %}
    let base = params.x_offset + min(row, params.outer - 1u) * params.outer_stride;
{{ loads.other_base("min(row, params.outer - 1u)") }}
{% endif %}
    let k = lane;
{% endmacro %}

{% macro fill() %}
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
{% endmacro %}
