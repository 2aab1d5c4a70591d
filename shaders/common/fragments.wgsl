{#
  Fragments: small matrices that a subgroup loads, multiplies and stores as a whole, in Tint's two spellings and naga's.
  A subgroup owns SM × SN of C, FM × FN at a time. Each row of subgroups has a panel of A in workgroup memory, each column
  a panel of B, written by chunks: the 16 bytes that a lane moves at once, kernel.chunk elements.

  A stage gives `operands`, a mapping for A and one for B:

    x, at             its letter, and its own axis (row or col)
    tile, part        extent of the workgroup's tile along that axis, and of a subgroup's share
    fragment, kind    extent of a fragment along it, and the alias of the fragment's type
    along_k           a line of its tile runs along k, not across
    loads             chunks that each lane moves per step
    base, vec         its first element, and whether it is bound by chunks, for positions() and fetch()
    next              where its chunks wait in registers, if not in its own
    places            whose places in panels its chunks take, if not its own

  Where not all lanes move both, `lane` in positions() is the number among the `lanes` that move these.
#}

{# Tint's current spelling loads fragments from arrays of any type; the others from arrays of the fragment's own. #}
{% set wide = dialect == "tint" and kernel.spelling == "current" %}
{% set per = kernel.chunk if wide else 1 %}
{% set count = {8: "eight", 16: "sixteen"}[kernel.chunk] %}
{% set shape = kernel.matrix_shape %}
{% set own = kernel.subgroups // kernel.slices %}

{% macro types() %}
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
{% macro panels(operands, line) %}
// A line of a tile {{ line }}. {{ count.capitalize() ~ " elements are stored at once; lines" if wide else "Lines" }} are 16 bytes longer than they need to be, so that
// the eight lines that a matrix unit reads at a time lie in different banks: 204 TFLOP/s, without 92 (4096³, H200).
{% for o in operands %}
const {{ o.x | upper }}_LINE: u32 = {{ ((kernel.share if o.along_k else o.part) + kernel.chunk) // per }}u; // from line to line of the tile of {{ o.x | upper }}, in {{ "vec4<u32>" if wide else "elements" }}
const {{ o.x | upper }}_PANEL: u32 = {{ o.part if o.along_k else kernel.share }}u * {{ o.x | upper }}_LINE; // what one {{ "row" if o.at == "row" else "column" }} of subgroups{{ ", of one slice," if kernel.slices > 1 }} reads of it
{% endfor %}
// Panels are arrays of their own, so that the place of a fragment in its panel is a constant: an engine then knows it to
// be within, and need not ask at every load (284 TFLOP/s; 204 with one array for all panels).
{% for o in operands %}
var<workgroup> {{ o.x }}_tile: array<array<{{ "vec4<u32>" if wide else shape.operands }}, {{ o.x | upper }}_PANEL>, {{ o.tile // o.part * kernel.slices }}>;
{% endfor %}
{% endmacro %}

{# Of a place along k within a step: the first panel of its slice, as a term, and the place within the slice. #}
{% macro slice_of(k, o) %}{{ "%s / %du * %du + " % (k, kernel.share, o.tile // o.part) if kernel.slices > 1 }}{% endmacro %}
{% macro within_slice(k) %}{{ k }}{{ " %% %du" % kernel.share if kernel.slices > 1 }}{% endmacro %}

{#
  Which slice, row and column of subgroups this one is, and which chunks this lane moves: their places in a panel, and
  where they start in storage, if a stage does not say itself. Lines that run along k are short. Eight neighbouring lanes, whose 16 bytes are stored
  together, then take lines so far apart that they meet no bank twice: 294 TFLOP/s, 284 with neighbouring lines.
#}
{% macro positions(operands, lane="lane", lanes=kernel.invocations, starts=true) %}
{% if kernel.slices > 1 %}
    let slice = subgroup / {{ own }}u;
    let subgroup_row = subgroup % {{ own }}u / (BN / SN);
{% else %}
    let subgroup_row = subgroup / (BN / SN);
{% endif %}
    let subgroup_col = subgroup % (BN / SN);
{% for o in operands %}
{% set chunks = (kernel.bk if o.along_k else o.tile) // kernel.chunk %}
{% set spread = o.along_k and chunks < 8 %}
{% for i in range(o.loads) %}
    let {{ o.x }}_chunk{{ i }} = {{ lane }} + {{ i * lanes }}u;
{% if spread %}
    let {{ o.x }}_line{{ i }} = {{ o.x }}_chunk{{ i }} / {{ 8 * chunks }}u * 8u + {{ o.x }}_chunk{{ i }} / {{ chunks }}u % {{ 8 // chunks }}u * {{ chunks }}u + {{ o.x }}_chunk{{ i }} / 8u % {{ chunks }}u;
{% else %}
    let {{ o.x }}_line{{ i }} = {{ o.x }}_chunk{{ i }} / {{ chunks }}u;
{% endif %}
{% if o.along_k %}
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.at }}0 + {{ o.x }}_line{{ i }};
    let {{ o.x }}_k{{ i }} = {{ o.x }}_chunk{{ i }} % {{ chunks }}u * {{ kernel.chunk }}u;
    let {{ o.x }}_panel{{ i }} = {{ slice_of("%s_k%d" % (o.x, i), o) }}{{ o.x }}_line{{ i }} / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ o.x }}_line{{ i }} % {{ o.part }}u * {{ o.x | upper }}_LINE + {{ within_slice("%s_k%d" % (o.x, i)) }} / {{ per }}u;
{% if starts %}
    let {{ o.x }}_start{{ i }} = ({{ o.base }} + {{ o.x }}_{{ o.at }}{{ i }} * params.ld{{ o.x }} + {{ o.x }}_k{{ i }}){{ " / %du" % kernel.chunk if o.vec }};
{% endif %}
{% else %}
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.at }}0 + {{ o.x }}_chunk{{ i }} % {{ chunks }}u * {{ kernel.chunk }}u;
    let {{ o.x }}_k{{ i }} = {{ o.x }}_line{{ i }};
    let {{ o.x }}_panel{{ i }} = {{ slice_of("%s_k%d" % (o.x, i), o) }}{{ o.x }}_chunk{{ i }} % {{ chunks }}u * {{ kernel.chunk }}u / {{ o.part }}u;
    let {{ o.x }}_put{{ i }} = {{ within_slice("%s_k%d" % (o.x, i)) }} * {{ o.x | upper }}_LINE + {{ o.x }}_chunk{{ i }} * {{ kernel.chunk }}u % {{ o.part }}u / {{ per }}u;
{% if starts %}
    let {{ o.x }}_start{{ i }} = ({{ o.base }} + {{ o.x }}_k{{ i }} * params.ld{{ o.x }} + {{ o.x }}_{{ o.at }}{{ i }}){{ " / %du" % kernel.chunk if o.vec }};
{% endif %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers #}
{% macro fetch(operands, k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set step = k0 if o.along_k else k0 ~ " * params.ld" ~ o.x %}
{% set step = step if not o.vec else "%s / %du" % (k0, kernel.chunk) if o.along_k else "%s * (params.ld%s / %du)" % (k0, o.x, kernel.chunk) %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}{{ kernel.chunk }}({{ o.x }}_start{{ i }} + {{ step }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(operands) %}
{% for o in operands %}
{% set places = o.places | default(o.x) %}
{% for i in range(o.loads) %}
{% if wide %}
        {{ o.x }}_tile[{{ places }}_panel{{ i }}][{{ places }}_put{{ i }}] = {{ o.next | default(o.x ~ "_next") }}{{ i }};
{% else %}
{% for j in range(kernel.chunk) %}
        {{ o.x }}_tile[{{ places }}_panel{{ i }}][{{ places }}_put{{ i }} + {{ j }}u] = f16(unpack2x16float({{ o.x }}_next{{ i }}.{{ "xyzw"[j // 2] }}).{{ "xy"[j % 2] }});
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# The panel of A or B that a subgroup reads. #}
{% macro panel_of(o) %}{{ "slice * %du + " % (o.tile // o.part) if kernel.slices > 1 }}subgroup_{{ o.at }}{% endmacro %}

{# A fragment of a panel: its lines are rows of A or of B, or the columns where storage is transposed. #}
{% macro fragment(o, i, kk) %}
{% set rows = o.along_k == (o.at == "row") %}
{% set line, within = (i * o.fragment, kk * kernel.fk) if o.along_k else (kk * kernel.fk, i * o.fragment) %}
{% set panel = "%s_tile[%s]" % (o.x, panel_of(o)) %}
{% set place = "%du * %s_LINE + %du" % (line, o.x | upper, within // per) %}
{% set stride = o.x | upper ~ "_LINE" %}
{% if dialect == "naga" %}
            let {{ o.x }}_{{ i }} = {{ "coopLoadT" if rows else "coopLoad" }}<{{ o.kind }}>(&{{ panel }}[{{ place }}], {{ stride }});
{% elif wide %}
            let {{ o.x }}_{{ i }} = subgroupMatrixLoad<{{ o.kind }}, {{ "row_major" if rows else "col_major" }}>(&{{ panel }}, {{ place }}, {{ stride }});
{% else %}
            let {{ o.x }}_{{ i }} = subgroupMatrixLoad<{{ o.kind }}>(&{{ panel }}, {{ place }}, {{ "false" if rows else "true" }}, {{ stride }});
{% endif %}
{% endmacro %}

{# acc += A tile · B tile #}
{% macro multiply(operands) %}
{% for kk in range(kernel.share // kernel.fk) %}
        { // kk = {{ kk * kernel.fk }}
{% for r in range(kernel.sm // kernel.fm) %}
{{ fragment(operands[0], r, kk) }}
{%- endfor %}
{% for q in range(kernel.sn // kernel.fn) %}
{{ fragment(operands[1], q, kk) }}
{%- endfor %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
            acc_{{ r }}_{{ q }} = {{ "subgroupMatrixMultiplyAccumulate" if dialect == "tint" else "coopMultiplyAdd" }}(a_{{ r }}, b_{{ q }}, acc_{{ r }}_{{ q }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{# acc = A · B: `fetch` and `put` are macros of the stage, the tile's first k in, statements out. #}
{% macro product(operands, fetch, put) %}
{% for r in range(kernel.sm // kernel.fm) %}
{% for q in range(kernel.sn // kernel.fn) %}
    var acc_{{ r }}_{{ q }} = Result();
{% endfor %}
{% endfor %}
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

{# Store a fragment row by row: `to` is an array, `place` an index into it. #}
{% macro store(fragment, to, place, stride) %}
{% if dialect == "naga" %}
    coopStoreT({{ fragment }}, &{{ to }}[{{ place }}], {{ stride }});
{% elif wide %}
    subgroupMatrixStore<row_major>(&{{ to }}, {{ place }}, {{ fragment }}, {{ stride }});
{% else %}
    subgroupMatrixStore(&{{ to }}, {{ place }}, {{ fragment }}, false, {{ stride }});
{% endif %}
{% endmacro %}
