{#
  Loading tiles: from storage to registers, and from there to workgroup memory.

  Storage that cannot be bound by vec4 is loaded element by element: neighbouring invocations load consecutive elements,
  and rows of the tile are padded by a vec4, so that elements along k are written to different banks of workgroup
  memory.

  Loads have no branches. Elements loaded from beyond the last row or column only reach sums that are never stored, and
  the engine keeps such loads within the binding; elements beyond the end of k are replaced by zero.
#}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/register_tiles/tiles.wgsl" as tiles with context %}
{% set operands, is_f64 = tiles.operands, tiles.is_f64 %}

{#
  The tiles, with `buffers` copies for each of `slices` groups of invocations, and the functions that load from storage;
  `load_b4`, if given, is the text of the function for B.
#}
{% macro declarations(buffers=1, slices=1, load_b4="") %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

// Nested arrays let the compiler hoist the engine's bounds checks out of the inner loop, whose indices are constants
// except for the invocation's position.
{% for buffer in range(buffers) %}
{% for o in operands %}
var<workgroup> {{ o.x }}_tile{{ buffer or "" }}: {{ tiles.tile_type(o, slices) }}; //
{%- if slices > 1 %} [slice]{% endif %} [kk]{{ "[half]" if is_f64 }}[{{ o.axis }}/4]
{% endfor %}
{% endfor %}

{{ load_function(operands[0]) }}
{{ load_b4 or load_function(operands[1]) }}
{% endmacro %}

{#
  The function that loads a vec4 or an element of an operand; `index` counts vec4 or elements, as it is bound. Only a
  stage's load_b4() uses the row or column.
#}
{% macro load_function(o) %}
{% set zero = ", zero beyond the end of k" if s.edge_k else "" %}
{% if o.vec %}
{% set place, k = (o.axis ~ "..+3", "k") if o.across_k else (o.axis, "k..+3") %}
// Four consecutive elements of storage,
// {{ "A[" ~ place ~ ", " ~ k ~ "]" if o.x == "a" else "B[" ~ k ~ ", " ~ place ~ "]" }}{{ zero }}
fn load_{{ o.x }}4(index: u32, {{ o.axis }}: u32, k: u32) -> {{ vec4r }} {
    let value = {{ matrix.as_vec4f(o.x ~ "[index]") }};
    return {{ "select(" ~ vec4r ~ "(), value, k < params.k)" if s.edge_k else "value" }};
}
{% else %}
// An element of {{ o.x | upper }} in storage{{ zero }}
fn load_{{ o.x }}(index: u32, k: u32) -> {{ real }} {
    let value = {{ matrix.element(o.x, "index") }};
    return {{ "select(0.0, value, k < params.k)" if s.edge_k else "value" }};
}
{% endif %}
{% endmacro %}

{#
  The vec4 that this invocation loads: for each, its position in the tile (kk, and row or col), and its index in storage
  in the first step (start). Neighbouring invocations load consecutive vec4. Starts are computed once, so that a load in
  the loop costs one addition.

  An operand loaded element by element has one position and start; kk_offset() and axis_offset() are the distances of
  the other elements from it. `index` is as in place.invocation_position().
#}
{% macro plan_loads(index="local_index") %}
{% for o in operands %}
{% set by_four, times_four = ("", "") if o.by_element else (" / 4u", " * 4u") %}
{% for i in range(1 if o.by_element else o.loads) %}
{% set at, kk, place = o.x ~ "_index" ~ i, o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i %}
    let {{ at }} = {{ index }} + {{ i * kernel.sharers }}u;
{% if o.across_k %}
    let {{ kk }} = {{ at }} / ({{ o.extent }}{{ by_four }});
    let {{ place }} = {{ at }} % ({{ o.extent }}{{ by_four }}){{ times_four }};
{% set start %}{{ o.base }} + {{ kk }} * {{ o.stride }} + {{ o.origin }} + {{ place }}{% endset %}
{% else %}
    let {{ kk }} = {{ at }} % (BK{{ by_four }}){{ times_four }};
    let {{ place }} = {{ at }} / (BK{{ by_four }});
{% set start %}{{ o.base }} + ({{ o.origin }} + {{ place }}) * {{ o.stride }} + {{ kk }}{% endset %}
{% endif %}
    let {{ o.x }}_start{{ i }} = ({{ start }}){{ " / 4u" if o.vec }};
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  The distance of an invocation's element `i` from its first one, along k and along the operand's other axis, for an
  operand loaded element by element. At a time, all invocations of a tile load one run of its elements: several whole
  lines of the tile, or an even part of one line, as the kernel's constraints() require.
#}
{% macro kk_offset(o, i) -%}
{{ i * kernel.sharers // o.length if o.across_k else i * kernel.sharers % kernel.bk }}u
{%- endmacro %}

{% macro axis_offset(o, i) -%}
{{ i * kernel.sharers % o.length if o.across_k else i * kernel.sharers // kernel.bk }}u
{%- endmacro %}

{# Variables for the elements that an invocation loads per step. #}
{% macro declare_registers() %}
{% for o in operands %}
{% for i in range(4 * o.loads if o.by_element else o.loads) %}
    var {{ o.x }}_next{{ i }}: {{ real if o.by_element else vec4r }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers: the tiles whose first inner element is k0 #}
{% macro load_next(k0) %}
{% for o in operands %}
{% if o.by_element %}
{% for i in range(4 * o.loads) %}
{{ load_element(o, i, k0) }}
{%- endfor %}
{% else %}
{% for i in range(o.loads) %}
{{ load_vec4(o, i, k0) }}
{%- endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro load_element(o, i, k0) %}
{% set next, offset = o.x ~ "_next" ~ i, axis_offset(o, i) %}
{% set k %}{{ k0 }} + {{ kk_offset(o, i) }}{% endset %}
{% set ahead = "(" ~ k ~ ") * " ~ o.stride ~ " + " ~ offset if o.across_k else offset ~ " * " ~ o.stride ~ " + " ~ k %}
        {{ next }} = load_{{ o.x }}({{ o.x }}_start0 + {{ ahead }}, {{ k }} + {{ o.x }}_kk0);
{{ record_loaded(o, "dbg", o.x ~ "_" ~ o.axis ~ "0 + " ~ offset, k ~ " + " ~ o.x ~ "_kk0", next) }}
{%- endmacro %}

{% macro load_vec4(o, i, k0) %}
{% set next, place = o.x ~ "_next" ~ i, o.x ~ "_" ~ o.axis ~ i %}
{% set k %}{{ k0 }} + {{ o.x }}_kk{{ i }}{% endset %}
{% set start = o.x ~ "_start" ~ i ~ " + " ~ step_offset(o, k0) %}
        {{ next }} = load_{{ o.x }}4({{ start }}, {{ o.origin }} + {{ place }}, {{ k }});
{% set dbg = "dbg_k" if not o.across_k else "dbg_m" if o.x == "a" else "dbg_n" %}
{{ record_loaded(o, dbg, place, k, next) }}
{%- endmacro %}

{# The distance in storage from step 0 to the step at k0, in units of the binding. #}
{% macro step_offset(o, k0) -%}
{% if o.across_k -%}
{{ k0 }} * {{ "(" ~ o.stride ~ " / 4u)" if o.vec else o.stride }}
{%- else -%}
{{ "(" ~ k0 ~ " / 4u)" if o.vec else k0 }}
{%- endif %}
{%- endmacro %}

{# For debug shaders: record a value loaded at row or column `place` of the tile; `dbg` is from common/debug.wgsl. #}
{% macro record_loaded(o, dbg, place, k, value) %}
{% if o.x == "a" %}
        {{ dbg }}(LOADED_A, row0 + {{ place }}, dbg_col(col0, BN), {{ k }}, {{ value }});
{% else %}
        {{ dbg }}(LOADED_B, dbg_row(row0, BM), col0 + {{ place }}, {{ k }}, {{ value }});
{% endif %}
{% endmacro %}

{# registers → workgroup memory. `buffer` follows the tiles' names: a number if not 0, or an index "[slice]". #}
{% macro write_tiles(buffer=0) %}
{% for o in operands %}
{% set tile = o.x ~ "_tile" ~ (buffer or "") %}
{% if o.by_element %}
{% for i in range(4 * o.loads) %}
{% set row %}{{ tile }}[{{ o.x }}_kk0 + {{ kk_offset(o, i) }}]{% endset %}
{% set place %}({{ o.x }}_{{ o.axis }}0 + {{ axis_offset(o, i) }}){% endset %}
        {{ tiles.tile_element(row, place) }} = {{ o.x }}_next{{ i }};
{% endfor %}
{% else %}
{% for i in range(o.loads) %}
{{ write_vec4(o, i, tile) }}
{%- endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro write_vec4(o, i, tile) %}
{% set kk, place, next = o.x ~ "_kk" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_next" ~ i %}
{% if o.across_k and is_f64 %}
        {{ tile }}[{{ kk }}][0][{{ place }} / 4u] = {{ next }}.xy;
        {{ tile }}[{{ kk }}][1][{{ place }} / 4u] = {{ next }}.zw;
{% elif o.across_k %}
        {{ tile }}[{{ kk }}][{{ place }} / 4u] = {{ next }};
{% elif o.swizzled %}
{% for j in range(4) %}
{% set at %}[{{ place }} % 4u / 2u][{{ tiles.swizzle(o, place ~ " / 4u", kk) }}][{{ place }} % 2u]{% endset %}
        {{ tile }}[{{ kk }} + {{ j }}u]{{ at }} = {{ next }}[{{ j }}];
{% endfor %}
{% else %}
{% for j in range(4) %}
        {{ tiles.tile_element(tile ~ "[" ~ kk ~ " + " ~ j ~ "u]", place) }} = {{ next }}[{{ j }}];
{% endfor %}
{% endif %}
{% endmacro %}
