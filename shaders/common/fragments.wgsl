{#
  Products by matrix units: the macros of the stages called matrix_unit and of those like them.

  A matrix unit multiplies fragments: small matrices that a subgroup loads, multiplies and stores as a whole, and whose
  elements no shader can reach. Tint has two spellings of this, naga a third; all three are written here.

  A workgroup owns BM × BN of C, each of its subgroups SM × SN of that, as sums in fragments of FM × FN. In every step
  of BK along k, lanes fetch the tiles of A and B by chunks: the 16 bytes that a lane moves at once, kernel.chunk
  elements. Chunks go to panels in workgroup memory: one of A for each row of subgroups, one of B for each column. Where
  the kernel has several slices, that many groups of subgroups work on the same tile of C, each with its part of every
  step and its own panels. A stage calls the macros in the order in which they stand here:

    declare_types(), declare_panels()    the types of fragments; the panels
    builtins()                           what main() takes
    plan_moves()                         which chunks this lane moves in every step, from where and to where
    multiply_along_k()                   sums = A · B, by fetch(), put() and multiply() in every step
    store_fragment()                     sums → workgroup memory, from where the stage takes them on

  A stage says in `operands` what it has, a mapping for A and one for B:

    x, axis           its letter, and the axis that it shares with C (row or col)
    tile, part        extent of the workgroup's tile along that axis, and of a subgroup's part of it
    fragment, kind    extent of a fragment along it, and the alias of the fragment's type
    along_k           whether a line of its tile runs along k, not across
    loads             chunks that each lane moves per step
    base, vec         its first element, and whether it is bound by chunks, for plan_moves() and fetch()
    next              the registers in which its chunks wait, if they are not called after x
    places            the operand whose places its chunks take in panels of their own, if not x itself
#}

{# Whether panels are arrays of vec4<u32>: Tint's current spelling loads from these, the others only from elements. #}
{% set vec4_panels = dialect == "tint" and kernel.spelling == "current" %}
{% set entry = "vec4<u32>" if vec4_panels else kernel.matrix_shape.operands %}
{% set per_entry = kernel.chunk if vec4_panels else 1 %}
{% set shape = kernel.matrix_shape %}
{% set slice_subgroups = kernel.subgroups // kernel.slices %}

{% macro declare_types() %}
{% if dialect == "tint" %}
alias Left = subgroup_matrix_left<{{ shape.operands }}, {{ kernel.fk }}, {{ kernel.fm }}>; // columns, rows
alias Right = subgroup_matrix_right<{{ shape.operands }}, {{ kernel.fn }}, {{ kernel.fk }}>;
alias Result = subgroup_matrix_result<{{ shape.result }}, {{ kernel.fn }}, {{ kernel.fm }}>;
{% else %}
alias Left = coop_mat{{ kernel.fm }}x{{ kernel.fk }}<{{ shape.operands }}, A>;
alias Right = coop_mat{{ kernel.fk }}x{{ kernel.fn }}<{{ shape.operands }}, B>;
alias Result = coop_mat{{ kernel.fm }}x{{ kernel.fn }}<{{ shape.result }}, C>;
{% endif %}
{% endmacro %}

{% macro builtins() %}
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
{%- endmacro %}

{# `line` says in words what a line of a tile is. #}
{% macro declare_panels(operands, line) %}
// A line of a tile {{ line }}. Lines are 16 bytes longer than they need to be, so that the
// eight lines that a matrix unit reads at a time lie in different banks: 204 TFLOP/s, without 92 (4096³, H200).
{% if vec4_panels %}
// {{ {8: "Eight", 16: "Sixteen"}[kernel.chunk] }} elements, a vec4<u32>, are stored at once.
{% endif %}
{% for o in operands %}
{% set X, one = o.x | upper, "row" if o.axis == "row" else "column" %}
{% set length, lines = (kernel.share, o.part) if o.along_k else (o.part, kernel.share) %}
{% set unit, of_slice = "vec4<u32>" if vec4_panels else "elements", " for its slice" if kernel.slices > 1 else "" %}
// For {{ X }}: from line to line, in {{ unit }}; and what one {{ one }} of subgroups reads{{ of_slice }}
const {{ X }}_LINE: u32 = {{ (length + kernel.chunk) // per_entry }}u;
const {{ X }}_PANEL: u32 = {{ lines }}u * {{ X }}_LINE;
{% endfor %}
// Panels are separate arrays, so that the place of a fragment in its panel is a constant: an engine then knows that it
// is within bounds, and need not check that at every load (284 TFLOP/s; 204 with one array for all panels).
{% for o in operands %}
{% set panels = o.tile // o.part * kernel.slices %}
var<workgroup> {{ o.x }}_tile: array<array<{{ entry }}, {{ o.x | upper }}_PANEL>, {{ panels }}>;
{% endfor %}
{% endmacro %}

{#
  For a k within a step: the number of its slice's first panel, as the first term of a sum; and the k within that slice.
#}
{% macro first_panel(k, o) -%}
{% if kernel.slices > 1 %}{{ k }} / {{ kernel.share }}u * {{ o.tile // o.part }}u + {% endif %}
{%- endmacro %}
{% macro k_within_slice(k) %}{{ k }}{% if kernel.slices > 1 %} % {{ kernel.share }}u{% endif %}{% endmacro %}

{#
  Which slice, row and column of subgroups this one belongs to, and which chunks this lane moves: their places in a
  panel, and where they `start` in storage, unless a stage says that itself. `lane` is the number among the `lanes` that
  move these operands.
#}
{% macro plan_moves(operands, lane="lane", lanes=kernel.invocations, starts=true) %}
{% if kernel.slices > 1 %}
    let slice = subgroup / {{ slice_subgroups }}u;
    let subgroup_row = subgroup % {{ slice_subgroups }}u / (BN / SN);
{% else %}
    let subgroup_row = subgroup / (BN / SN);
{% endif %}
    let subgroup_col = subgroup % (BN / SN);
{% for o in operands %}
{% for i in range(o.loads) %}
    let {{ o.x }}_chunk{{ i }} = {{ lane }} + {{ i * lanes }}u;
{{ plan_move_along_k(o, i, starts) if o.along_k else plan_move_across_k(o, i, starts) }}
{%- endfor %}
{% endfor %}
{% endmacro %}

{#
  Lines that run along k are short. Eight neighbouring lanes, whose 16 bytes are stored at the same time, then take
  lines so far apart that they never use the same bank twice: 294 TFLOP/s, 284 with neighbouring lines.
#}
{% macro plan_move_along_k(o, i, starts) %}
{% set chunk, line, place, k = o.x ~ "_chunk" ~ i, o.x ~ "_line" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_k" ~ i %}
{% set chunks = kernel.bk // kernel.chunk %}
{% if chunks < 8 %}
{% set first_of_eight %}{{ chunk }} / {{ 8 * chunks }}u * 8u{% endset %}
{% set among_eight %}{{ chunk }} / {{ chunks }}u % {{ 8 // chunks }}u * {{ chunks }}u{% endset %}
    let {{ line }} = {{ first_of_eight }} + {{ among_eight }} + {{ chunk }} / 8u % {{ chunks }}u;
{% else %}
    let {{ line }} = {{ chunk }} / {{ chunks }}u;
{% endif %}
    let {{ place }} = {{ o.axis }}0 + {{ line }};
    let {{ k }} = {{ chunk }} % {{ chunks }}u * {{ kernel.chunk }}u;
    let {{ o.x }}_panel{{ i }} = {{ first_panel(k, o) }}{{ line }} / {{ o.part }}u;
{% set line_in_panel %}{{ line }} % {{ o.part }}u * {{ o.x | upper }}_LINE{% endset %}
    let {{ o.x }}_put{{ i }} = {{ line_in_panel }} + {{ k_within_slice(k) }} / {{ per_entry }}u;
{% if starts %}
{% set start %}{{ o.base }} + {{ place }} * params.ld{{ o.x }} + {{ k }}{% endset %}
    let {{ o.x }}_start{{ i }} = ({{ start }}){% if o.vec %} / {{ kernel.chunk }}u{% endif %};
{% endif %}
{% endmacro %}

{% macro plan_move_across_k(o, i, starts) %}
{% set chunk, line, place, k = o.x ~ "_chunk" ~ i, o.x ~ "_line" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_k" ~ i %}
{% set chunks = o.tile // kernel.chunk %}
{% set within_tile %}{{ chunk }} % {{ chunks }}u * {{ kernel.chunk }}u{% endset %}
    let {{ line }} = {{ chunk }} / {{ chunks }}u;
    let {{ place }} = {{ o.axis }}0 + {{ within_tile }};
    let {{ k }} = {{ line }};
    let {{ o.x }}_panel{{ i }} = {{ first_panel(k, o) }}{{ within_tile }} / {{ o.part }}u;
{% set within_line %}{{ chunk }} * {{ kernel.chunk }}u % {{ o.part }}u / {{ per_entry }}u{% endset %}
    let {{ o.x }}_put{{ i }} = {{ k_within_slice(k) }} * {{ o.x | upper }}_LINE + {{ within_line }};
{% if starts %}
{% set start %}{{ o.base }} + {{ k }} * params.ld{{ o.x }} + {{ place }}{% endset %}
    let {{ o.x }}_start{{ i }} = ({{ start }}){% if o.vec %} / {{ kernel.chunk }}u{% endif %};
{% endif %}
{% endmacro %}

{# storage → registers, the tiles that start at k0 #}
{% macro fetch(operands, k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set start = o.x ~ "_start" ~ i ~ " + " ~ ahead_of_start(o, k0) %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}{{ kernel.chunk }}({{ start }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# From the start of a chunk that a lane moves to the one for k0, counted in what the binding holds. #}
{% macro ahead_of_start(o, k0) -%}
{% set by_chunk = " / " ~ kernel.chunk ~ "u" %}
{% if o.along_k -%}
{{ k0 }}{{ by_chunk if o.vec }}
{%- else -%}
{{ k0 }} * {{ "(params.ld" ~ o.x ~ by_chunk ~ ")" if o.vec else "params.ld" ~ o.x }}
{%- endif %}
{%- endmacro %}

{# registers → workgroup memory #}
{% macro put(operands) %}
{% for o in operands %}
{% set places, next = o.places | default(o.x), o.next | default(o.x ~ "_next") %}
{% for i in range(o.loads) %}
{% set panel %}{{ o.x }}_tile[{{ places }}_panel{{ i }}]{% endset %}
{% if vec4_panels %}
        {{ panel }}[{{ places }}_put{{ i }}] = {{ next }}{{ i }};
{% else %}
{% for j in range(kernel.chunk) %}
{% set two %}unpack2x16float({{ o.x }}_next{{ i }}.{{ "xyzw"[j // 2] }}){% endset %}
        {{ panel }}[{{ places }}_put{{ i }} + {{ j }}u] = f16({{ two }}.{{ "xy"[j % 2] }});
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# The number of the panel of A or B that a subgroup reads. #}
{% macro own_panel(o) -%}
{% if kernel.slices > 1 %}slice * {{ o.tile // o.part }}u + {% endif %}subgroup_{{ o.axis }}
{%- endmacro %}

{# Load fragment `i` of a panel, for the part of k with number `kk`. #}
{% macro load_fragment(o, i, kk) %}
{% set lines_are_rows = o.along_k == (o.axis == "row") %}
{% set line, within = (i * o.fragment, kk * kernel.fk) if o.along_k else (kk * kernel.fk, i * o.fragment) %}
{% set panel %}{{ o.x }}_tile[{{ own_panel(o) }}]{% endset %}
{% set place %}{{ line }}u * {{ o.x | upper }}_LINE + {{ within // per_entry }}u{% endset %}
{% set stride = o.x | upper ~ "_LINE" %}
            let {{ o.x }}_{{ i }} =
{%- if dialect == "naga" %}
 {{ "coopLoadT" if lines_are_rows else "coopLoad" }}<{{ o.kind }}>(&{{ panel }}[{{ place }}], {{ stride }});
{% elif vec4_panels %}
{% set order = "row_major" if lines_are_rows else "col_major" %}
 subgroupMatrixLoad<{{ o.kind }}, {{ order }}>(&{{ panel }}, {{ place }}, {{ stride }});
{% else %}
 subgroupMatrixLoad<{{ o.kind }}>(&{{ panel }}, {{ place }}, {{ "false" if lines_are_rows else "true" }}, {{ stride }});
{% endif %}
{% endmacro %}

{# sums += A tile · B tile #}
{% macro multiply(operands) %}
{% set multiply_add = "subgroupMatrixMultiplyAccumulate" if dialect == "tint" else "coopMultiplyAdd" %}
{% for kk in range(kernel.share // kernel.fk) %}
        { // kk = {{ kk * kernel.fk }}
{% for r in range(kernel.sm // kernel.fm) %}
{{ load_fragment(operands[0], r, kk) }}
{%- endfor %}
{% for q in range(kernel.sn // kernel.fn) %}
{{ load_fragment(operands[1], q, kk) }}
{%- endfor %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
            acc_{{ r }}_{{ q }} = {{ multiply_add }}(a_{{ r }}, b_{{ q }}, acc_{{ r }}_{{ q }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{# The sums of a subgroup: acc_R_Q for the fragment in row R and column Q of its part of C. #}
{% macro declare_sums() %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
    var acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  sums = A · B, a step multiplied while the next is fetched. `fetch` and `put` are macros of the stage that take a k0.
#}
{% macro multiply_along_k(operands, fetch, put) %}
{{ declare_sums() }}
{% for o in operands %}
{% for i in range(o.loads) %}
    var {{ o.next | default(o.x ~ "_next") }}{{ i }}: vec4<u32>;
{% endfor %}
{% endfor %}
{{ fetch("0u") }}
{{ put("0u") }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    for (var k0 = BK; k0 < params.k; k0 += BK) {
{{ fetch("k0") }}
{{ multiply(operands) }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ put("k0") }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
{{ multiply(operands) }}
{% endmacro %}

{# Store a fragment row by row: `to` is an array, `place` an index into it, `stride` from row to row. #}
{% macro store_fragment(fragment, to, place, stride) %}
{% if dialect == "naga" %}
    coopStoreT({{ fragment }}, &{{ to }}[{{ place }}], {{ stride }});
{% elif vec4_panels %}
    subgroupMatrixStore<row_major>(&{{ to }}, {{ place }}, {{ fragment }}, {{ stride }});
{% else %}
    subgroupMatrixStore(&{{ to }}, {{ place }}, {{ fragment }}, false, {{ stride }});
{% endif %}
{% endmacro %}
