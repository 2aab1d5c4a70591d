{#
  Products on matrix units: the macros of the stages called matrix_unit, matrix_unit_high and slices_unit.

  A matrix unit multiplies fragments: small matrices that a subgroup loads, multiplies and stores as a whole, and whose
  elements a shader cannot access. Tint has two syntaxes for this (kernel.spelling), naga a third; these macros write
  all three.

  A workgroup computes a BM × BN tile of C, and each of its subgroups an SM × SN part of that, whose sums are fragments
  of FM × FN. In each step of BK along k, invocations load the tiles of A and B from storage in chunks: the 16 bytes
  that an invocation loads at once, kernel.chunk elements. Chunks are written to panels in workgroup memory: one panel
  of A for each row of subgroups, one of B for each column. If the kernel has several slices, that many groups of
  subgroups compute the same tile of C, each from kernel.share of the BK of every step, with separate panels. A stage
  calls in this order:

    declare_types(), declare_panels()    the types of fragments; the panels
    builtins()                           the parameters of main()
    plan_loads()                         the chunks that this invocation loads in every step, and their panel positions
    multiply_along_k()                   sums = A · B: load_next(), write_tiles() and multiply_tiles() in each step
    store_fragment()                     sums → workgroup memory, from which the stage stores C

  A stage describes A and B in `operands`, with these keys:

    x, axis           its letter, and the axis that it shares with C (row or col)
    tile, subtile     extent of the workgroup's tile along that axis, and of a subgroup's part of it
    fragment, kind    extent of a fragment along it, and the alias of the fragment's type
    along_k           whether lines, the contiguous runs of its panels, are parts of a row of A or a column of B; if
                      not, a line holds the elements of all of a panel's rows or columns at one k
    loads             chunks that each invocation loads per step
    base, vec         index of its first element, and whether it is bound by chunks, for plan_loads() and load_next()
    next              the variables that hold its chunks between storage and panels, if not {x}_next
    positions         the operand whose variables hold the positions of its chunks in their panels, if not {x}
#}

{#
  Whether panels are arrays of vec4<u32>, otherwise of elements: only Tint's current syntax loads fragments from vec4.
  Indices and strides of a panel count such entries, which hold `per_entry` elements each.
#}
{% set vec4_panels = dialect == "tint" and kernel.spelling == "current" %}
{% set entry = "vec4<u32>" if vec4_panels else kernel.matrix_shape.operands %}
{% set per_entry = kernel.chunk if vec4_panels else 1 %}
{% set shape = kernel.matrix_shape %}
{% set slice_subgroups = kernel.subgroups // kernel.slices %}

{# The types of fragments: Left of A, Right of B, Result of the sums. #}
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
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
{%- endmacro %}

{# The panels; `line` completes the comment's sentence on what a line of a tile is. #}
{% macro declare_panels(operands, line) %}
// A line of a tile {{ line }}. Lines are padded by 16 bytes, so that the eight lines
// that a matrix unit reads at once are in different banks: 204 TFLOP/s, without padding 92 (4096³, H200).
{% if vec4_panels %}
// A vec4<u32> holds {{ {4: "four", 8: "eight", 16: "sixteen"}[kernel.chunk] }} elements.
{% endif %}
{% for o in operands %}
{% set X, one = o.x | upper, "row" if o.axis == "row" else "column" %}
{% set length, lines = (kernel.share, o.subtile) if o.along_k else (o.subtile, kernel.share) %}
{% set unit, of_slice = "vec4<u32>" if vec4_panels else "elements", " for its slice" if kernel.slices > 1 else "" %}
// {{ X }}, in {{ unit }}: stride between lines; panel that one {{ one }} of subgroups reads{{ of_slice }}
const {{ X }}_LINE: u32 = {{ (length + kernel.chunk) // per_entry }}u;
const {{ X }}_PANEL: u32 = {{ lines }}u * {{ X }}_LINE;
{% endfor %}
// Panels are separate arrays, so that the index of a fragment in its panel is a constant, which the engine need not
// check against the bounds at every load: 284 TFLOP/s, 204 with one array for all panels.
{% for o in operands %}
{% set panels = o.tile // o.subtile * kernel.slices %}
var<workgroup> {{ o.x }}_tile: array<array<{{ entry }}, {{ o.x | upper }}_PANEL>, {{ panels }}>;
{% endfor %}
{% endmacro %}

{# For a k within a step: the first panel of its slice, as a term "… + " of a sum; and the k within that slice. #}
{% macro first_panel_of_slice(k, o) -%}
{% if kernel.slices > 1 %}{{ k }} / {{ kernel.share }}u * {{ o.tile // o.subtile }}u + {% endif %}
{%- endmacro %}
{% macro k_within_slice(k) %}{{ k }}{% if kernel.slices > 1 %} % {{ kernel.share }}u{% endif %}{% endmacro %}

{#
  The slice, row and column of this subgroup, and the chunks that this invocation loads: their panel and index in it,
  and, if `starts`, their index in storage in the first step (start). `index` is the invocation's number among the
  `loaders` that load these operands.
#}
{% macro plan_loads(operands, index="local_index", loaders=kernel.invocations, starts=true) %}
{% if kernel.slices > 1 %}
    let slice = subgroup / {{ slice_subgroups }}u;
    let subgroup_row = subgroup % {{ slice_subgroups }}u / (BN / SN);
{% else %}
    let subgroup_row = subgroup / (BN / SN);
{% endif %}
    let subgroup_col = subgroup % (BN / SN);
{% for o in operands %}
{% for i in range(o.loads) %}
    let {{ o.x }}_chunk{{ i }} = {{ index }} + {{ i * loaders }}u;
{{ plan_load_along_k(o, i, starts) if o.along_k else plan_load_across_k(o, i, starts) }}
{%- endfor %}
{% endfor %}
{% endmacro %}

{#
  Lines along k are short. Eight neighbouring invocations, whose chunks are written at the same time, load from lines so
  far apart that their chunks are written to different banks: 294 TFLOP/s, 284 with neighbouring lines. If a line has
  n < 8 chunks, they load 8/n lines, n apart. With the padding, and without slices, these start at chunk 0, n·(n + 1),
  2·n·(n + 1), …: modulo 8, as many chunks as all banks hold, these are different multiples of n.
#}
{% macro plan_load_along_k(o, i, starts) %}
{% set chunk, line, place, k = o.x ~ "_chunk" ~ i, o.x ~ "_line" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_k" ~ i %}
{% set chunks = kernel.bk // kernel.chunk %}
{% if chunks < 8 %}
{% set block_of_eight_lines %}{{ chunk }} / {{ 8 * chunks }}u * 8u{% endset %}
{% set lines_apart %}{{ chunk }} / {{ chunks }}u % {{ 8 // chunks }}u * {{ chunks }}u{% endset %}
    let {{ line }} = {{ block_of_eight_lines }} + {{ lines_apart }} + {{ chunk }} / 8u % {{ chunks }}u;
{% else %}
    let {{ line }} = {{ chunk }} / {{ chunks }}u;
{% endif %}
    let {{ place }} = {{ o.axis }}0 + {{ line }};
    let {{ k }} = {{ chunk }} % {{ chunks }}u * {{ kernel.chunk }}u;
    let {{ o.x }}_panel{{ i }} = {{ first_panel_of_slice(k, o) }}{{ line }} / {{ o.subtile }}u;
{% set line_in_panel %}{{ line }} % {{ o.subtile }}u * {{ o.x | upper }}_LINE{% endset %}
    let {{ o.x }}_index{{ i }} = {{ line_in_panel }} + {{ k_within_slice(k) }} / {{ per_entry }}u;
{% if starts %}
{% set start %}{{ o.base }} + {{ place }} * params.ld{{ o.x }} + {{ k }}{% endset %}
    let {{ o.x }}_start{{ i }} = ({{ start }}){% if o.vec %} / {{ kernel.chunk }}u{% endif %};
{% endif %}
{% endmacro %}

{% macro plan_load_across_k(o, i, starts) %}
{% set chunk, line, place, k = o.x ~ "_chunk" ~ i, o.x ~ "_line" ~ i, o.x ~ "_" ~ o.axis ~ i, o.x ~ "_k" ~ i %}
{% set chunks = o.tile // kernel.chunk %}
{% set within_tile %}{{ chunk }} % {{ chunks }}u * {{ kernel.chunk }}u{% endset %}
    let {{ line }} = {{ chunk }} / {{ chunks }}u;
    let {{ place }} = {{ o.axis }}0 + {{ within_tile }};
    let {{ k }} = {{ line }};
    let {{ o.x }}_panel{{ i }} = {{ first_panel_of_slice(k, o) }}{{ within_tile }} / {{ o.subtile }}u;
{% set within_line %}{{ chunk }} * {{ kernel.chunk }}u % {{ o.subtile }}u / {{ per_entry }}u{% endset %}
    let {{ o.x }}_index{{ i }} = {{ k_within_slice(k) }} * {{ o.x | upper }}_LINE + {{ within_line }};
{% if starts %}
{% set start %}{{ o.base }} + {{ k }} * params.ld{{ o.x }} + {{ place }}{% endset %}
    let {{ o.x }}_start{{ i }} = ({{ start }}){% if o.vec %} / {{ kernel.chunk }}u{% endif %};
{% endif %}
{% endmacro %}

{# storage → registers: the tiles whose first inner element is k0 #}
{% macro load_next(operands, k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set start = o.x ~ "_start" ~ i ~ " + " ~ step_offset(o, k0) %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}{{ kernel.chunk }}({{ start }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# The distance in storage from step 0 to the step at k0, in units of the binding. #}
{% macro step_offset(o, k0) -%}
{% set by_chunk = " / " ~ kernel.chunk ~ "u" %}
{% if o.along_k -%}
{{ k0 }}{{ by_chunk if o.vec }}
{%- else -%}
{{ k0 }} * {{ "(params.ld" ~ o.x ~ by_chunk ~ ")" if o.vec else "params.ld" ~ o.x }}
{%- endif %}
{%- endmacro %}

{# registers → workgroup memory; without vec4_panels, chunks hold floats, and are written by elements #}
{% macro write_tiles(operands) %}
{% for o in operands %}
{% set positions, next = o.positions | default(o.x), o.next | default(o.x ~ "_next") %}
{% for i in range(o.loads) %}
{% set panel %}{{ o.x }}_tile[{{ positions }}_panel{{ i }}]{% endset %}
{% if vec4_panels %}
        {{ panel }}[{{ positions }}_index{{ i }}] = {{ next }}{{ i }};
{% else %}
{% for j in range(kernel.chunk) if shape.operands == "f32" %}
        {{ panel }}[{{ positions }}_index{{ i }} + {{ j }}u] = bitcast<f32>({{ next }}{{ i }}.{{ "xyzw"[j] }});
{% endfor %}
{% for j in range(kernel.chunk) if shape.operands == "f16" %}
{% set two %}unpack2x16float({{ next }}{{ i }}.{{ "xyzw"[j // 2] }}){% endset %}
        {{ panel }}[{{ positions }}_index{{ i }} + {{ j }}u] = f16({{ two }}.{{ "xy"[j % 2] }});
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# The panel of A or B that this subgroup reads. #}
{% macro subgroup_panel(o) -%}
{% if kernel.slices > 1 %}slice * {{ o.tile // o.subtile }}u + {% endif %}subgroup_{{ o.axis }}
{%- endmacro %}

{#
  Load fragment `i` of a panel, number `kk` along k. naga reads row-major by coopLoadT, column-major by coopLoad; Tint's
  deprecated syntax has a parameter, true for column-major.
#}
{% macro load_fragment(o, i, kk) %}
{% set lines_are_rows = o.along_k == (o.axis == "row") %}
{% set line, within = (i * o.fragment, kk * kernel.fk) if o.along_k else (kk * kernel.fk, i * o.fragment) %}
{% set panel %}{{ o.x }}_tile[{{ subgroup_panel(o) }}]{% endset %}
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

{# sums += tile of A · tile of B #}
{% macro multiply_tiles(operands) %}
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

{# The sums of a subgroup: acc_R_Q is the fragment in row R and column Q of its part of C. #}
{% macro declare_sums() %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
    var acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
{% endmacro %}

{#
  sums = A · B over k from `first` up to `end`; the loads of the next tiles overlap multiplying the current ones. The
  macros `load_next` and `write_tiles` are the stage's, and take k0.
#}
{% macro multiply_along_k(operands, load_next, write_tiles, first="0u", end="params.k") %}
{{ declare_sums() }}
{% for o in operands %}
{% for i in range(o.loads) %}
    var {{ o.next | default(o.x ~ "_next") }}{{ i }}: vec4<u32>;
{% endfor %}
{% endfor %}
{{ load_next(first) }}
{{ write_tiles(first) }}
    workgroupBarrier(); // the first tiles are complete before anyone reads them
    //# inner
    for (var k0 = {{ "BK" if first == "0u" else first ~ " + BK" }}; k0 < {{ end }}; k0 += BK) {
{{ load_next("k0") }}
{{ multiply_tiles(operands) }}
        workgroupBarrier(); // everyone is done with the tiles before they are overwritten
{{ write_tiles("k0") }}
        workgroupBarrier(); // the tiles are complete before anyone reads them
    }
    //# end
{{ multiply_tiles(operands) }}
{% endmacro %}

{# Store a fragment row-major into the array `to`, from index `place` on; `stride` is the distance between rows. #}
{% macro store_fragment(fragment, to, place, stride) %}
{% if dialect == "naga" %}
    coopStoreT({{ fragment }}, &{{ to }}[{{ place }}], {{ stride }});
{% elif vec4_panels %}
    subgroupMatrixStore<row_major>(&{{ to }}, {{ place }}, {{ fragment }}, {{ stride }});
{% else %}
    subgroupMatrixStore(&{{ to }}, {{ place }}, {{ fragment }}, false, {{ stride }});
{% endif %}
{% endmacro %}
