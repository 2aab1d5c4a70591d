{#
  What the register-tiled stages share. A workgroup of WY × WX invocations owns BM × BN of C; invocation (ly, lx) owns
  TM/4 × TN/4 fragments of 4 × 4, spread over the tile so that neighbouring lanes read neighbouring vec4:

                lx = 0 1 2 …   0 1 2 …         rows    (ly + i*WY)*4 .. +3,  i < TM/4
        ly = 0     ■ □ □       ■ □ □           columns (lx + j*WX)*4 .. +3,  j < TN/4
             1     □ □ □       □ □ □
             0     ■ □ □       ■ □ □           a contiguous TM × TN costs bank conflicts: 37.6 against 44.7 TFLOP/s
             1     □ □ □       □ □ □           at 4096³ on an H200

  Everything of an invocation is a named variable, written out here: an indexed array would live in memory.

  Both tiles are stored k-major, so that fragments are read four elements at a time. Where storage runs along the
  fragment (B as (k, n), A transposed) a vec4 goes straight in ("direct"). Where it runs along k, its four elements go to
  four rows of the tile, which is then an array of f32 by fours: WGSL lets a store to one component of a vec4 write all
  four (Metal and D3D do), so lanes that fill different components of one vec4 would race. Drivers read the four f32 as
  one vector all the same: 48.2 TFLOP/s at 4096³ on an H200, against 46.1 with lanes that gather four rows of A into a
  whole vec4, and 42 with lanes that transpose 4 × 4 blocks in registers.

  Measured there, too, and left out: padding the rows of a tile (−2 %), lanes in 8 × 4 per subgroup (−1 %).
#}
{% import "common/matrix.wgsl" as matrix with context %}

{% set operands = [
  {"x": "a", "at": "row", "tile": "BM", "size": "m", "edge": s.edge_m, "vec": s.vec_a, "direct": s.trans_a,
   "loads": kernel.a_loads},
  {"x": "b", "at": "col", "tile": "BN", "size": "n", "edge": s.edge_n, "vec": s.vec_b, "direct": not s.trans_b,
   "loads": kernel.b_loads},
] %}

{% macro declarations(buffers=1, slices=1, load_b4="") %}
{{ inputs(buffers, slices, load_b4) }}
{{ matrix.store_c4(row=s.edge_m, col=s.edge_n) }}
{% endmacro %}

{#
  The tiles, for each of `slices` groups of invocations, and the loads that fill them; `load_b4`, where given, stands in
  for that of B.
#}
{% macro inputs(buffers=1, slices=1, load_b4="") %}
{% set of, each = ("array<", ", SLICES>") if slices > 1 else ("", "") %}
const WX = BN / TN; // invocations along N
const WY = BM / TM; // invocations along M

// Nested, so that the engine's bounds checks are hoisted out of the inner loop: only the lane is no constant there.
{% for buffer in range(buffers) %}
{% for o in operands %}
var<workgroup> {{ o.x }}_tile{{ buffer or "" }}: {{ of }}array<array<{{ "vec4f" if o.direct else "array<f32, 4>" }}, {{ o.tile }} / 4u>, BK>{{ each }}; // {{ "[slice]" if slices > 1 }}[kk][{{ o.at }}/4]
{% endfor %}
{% endfor %}

{{ load4(operands[0]) }}
{{ load_b4 or load4(operands[1]) }}
{% endmacro %}

{# Four neighbours in storage; `index` counts what the binding holds, `at` and `k` only serve the guards. #}
{% macro load4(o) %}
{% set outside = matrix.guards([(o.edge, o.at, o.size), (s.edge_k, "k", "k")]) %}
{% set at, k = (o.at ~ "..+3", "k") if o.direct else (o.at, "k..+3") %}
// Four neighbours in storage, {{ "A[%s, %s]" % (at, k) if o.x == "a" else "B[%s, %s]" % (k, at) }}{% if outside %}, zero outside the matrix{% endif %}

fn load_{{ o.x }}4(index: u32, {{ o.at }}: u32, k: u32) -> vec4f {
{% if o.vec %}
{% if outside %}
    if ({{ outside }}) {
        return vec4f();
    }
{% endif %}
    return {{ matrix.as_vec4f(o.x ~ "[index]") }};
{% else %}
    var v = vec4f();
{% for j in range(4) %}
{% set at, k = (o.at ~ " + %du" % j, "k") if o.direct else (o.at, "k + %du" % j) %}
{% set outside = matrix.guards([(o.edge, at, o.size), (s.edge_k, k, "k")]) %}
{% if outside %}
    if (!({{ outside }})) {
        v[{{ j }}] = {{ matrix.element(o.x, "index + %du" % j) }};
    }
{% else %}
    v[{{ j }}] = {{ matrix.element(o.x, "index + %du" % j) }};
{% endif %}
{% endfor %}
    return v;
{% endif %}
}
{% endmacro %}

{% macro tile_count() %}
    let tiles_m = (params.m + BM - 1u) / BM;
    let tiles_n = (params.n + BN - 1u) / BN;
{% endmacro %}

{# Tile number → its first row and column. Tiles are walked down GROUP rows, then along N, to share B in cache. #}
{% macro tile_position() %}
    let first = tile / (GROUP * tiles_n) * GROUP;
    let rows = min(tiles_m - first, GROUP);
    let row0 = (first + tile % (GROUP * tiles_n) % rows) * BM;
    let col0 = tile % (GROUP * tiles_n) / rows * BN;
{% endmacro %}

{# The tile of this workgroup; surplus workgroups of a folded grid leave at once. #}
{% macro own_tile() %}
    let tile = workgroup.x + workgroup.y * grid.x;
{{ tile_count() }}
    if (tile >= tiles_m * tiles_n) {
        return;
    }
{{ tile_position() }}
{% endmacro %}

{% macro lanes() %}
    let lx = lane % WX;
    let ly = lane / WX;
{% endmacro %}

{#
  Which vec4 this lane moves: its place in the tile, and where it starts in storage. Neighbouring lanes read neighbours
  in storage. The starts are worked out once, so that a load in the loop costs one addition.
#}
{% macro positions() %}
{% for o in operands %}
{% for i in range(o.loads) %}
    let {{ o.x }}_at{{ i }} = lane + {{ i * kernel.sharers }}u;
{% if o.direct %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_at{{ i }} / ({{ o.tile }} / 4u);
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.x }}_at{{ i }} % ({{ o.tile }} / 4u) * 4u;
    let {{ o.x }}_start{{ i }} = ({{ o.x }}_base + {{ o.x }}_kk{{ i }} * params.ld{{ o.x }} + {{ o.at }}0 + {{ o.x }}_{{ o.at }}{{ i }}){{ " / 4u" if o.vec }};
{% else %}
    let {{ o.x }}_kk{{ i }} = {{ o.x }}_at{{ i }} % (BK / 4u) * 4u;
    let {{ o.x }}_{{ o.at }}{{ i }} = {{ o.x }}_at{{ i }} / (BK / 4u);
    let {{ o.x }}_start{{ i }} = ({{ o.x }}_base + ({{ o.at }}0 + {{ o.x }}_{{ o.at }}{{ i }}) * params.ld{{ o.x }} + {{ o.x }}_kk{{ i }}){{ " / 4u" if o.vec }};
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro accumulators() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    var acc_{{ r }}_{{ j }} = vec4f();
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro registers() %}
{% for o in operands %}
{% for i in range(o.loads) %}
    var {{ o.x }}_next{{ i }}: vec4f;
{% endfor %}
{% endfor %}
{% endmacro %}

{# storage → registers #}
{% macro fetch(k0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set step = k0 ~ " * params.ld" ~ o.x if o.direct else k0 %}
{% set step = "(%s / 4u)" % step if o.vec and not o.direct else "%s * (params.ld%s / 4u)" % (k0, o.x) if o.vec else step %}
        {{ o.x }}_next{{ i }} = load_{{ o.x }}4({{ o.x }}_start{{ i }} + {{ step }}, {{ o.at }}0 + {{ o.x }}_{{ o.at }}{{ i }}, {{ k0 }} + {{ o.x }}_kk{{ i }});
{% if o.x == "a" %}
        dbg_{{ "m" if o.direct else "k" }}(LOADED_A, row0 + a_row{{ i }}, dbg_col(col0, BN), {{ k0 }} + a_kk{{ i }}, a_next{{ i }});
{% else %}
        dbg_{{ "n" if o.direct else "k" }}(LOADED_B, dbg_row(row0, BM), col0 + b_col{{ i }}, {{ k0 }} + b_kk{{ i }}, b_next{{ i }});
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{# registers → workgroup memory #}
{% macro put(buffer=0) %}
{% for o in operands %}
{% for i in range(o.loads) %}
{% set tile = o.x ~ "_tile" ~ (buffer or "") %}
{% if o.direct %}
        {{ tile }}[{{ o.x }}_kk{{ i }}][{{ o.x }}_{{ o.at }}{{ i }} / 4u] = {{ o.x }}_next{{ i }};
{% else %}
{% for j in range(4) %}
        {{ tile }}[{{ o.x }}_kk{{ i }} + {{ j }}u][{{ o.x }}_{{ o.at }}{{ i }} / 4u][{{ o.x }}_{{ o.at }}{{ i }} % 4u] = {{ o.x }}_next{{ i }}[{{ j }}];
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro fragment(name, element, direct, vector="vec4f") %}
{% if direct %}
            let {{ name }} = {{ element }};
{% else %}
            let {{ name }} = {{ vector }}({{ element }}[0], {{ element }}[1], {{ element }}[2], {{ element }}[3]);
{% endif %}
{% endmacro %}

{#
  One kk: an outer product of TM rows and TN columns. In serpentine order the columns alternate in direction from row to
  row, so that neighbouring FMAs share an operand: 50.3 against 49.7 TFLOP/s at 8192³ on an H200. With tiles of 128 × 128
  the driver allots registers otherwise, and plain rows win: 48.8 against 47.1 at 4096³. Column by column loses by 6 %.
#}
{% macro step(kk, buffer, k0) %}
{% for i in range(kernel.tm // 4) %}
{{ fragment("a_reg%d" % i, "a_tile%s[%s][ly + %du * WY]" % (buffer or "", kk, i), operands[0].direct) }}
{%- endfor %}
{% for j in range(kernel.tn // 4) %}
{{ fragment("b_reg%d" % j, "b_tile%s[%s][lx + %du * WX]" % (buffer or "", kk, j), operands[1].direct) }}
{%- endfor %}
{% for r in range(kernel.tm) %}
{% set columns = range(kernel.tn // 4) | list %}
{% for j in (columns | reverse if kernel.order == "serpentine" and r % 2 else columns) %}
            acc_{{ r }}_{{ j }} = fma(vec4f(a_reg{{ r // 4 }}.{{ "xyzw"[r % 4] }}), b_reg{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% for i in range(kernel.tm // 4) %}
{% for j in range(kernel.tn // 4) %}
            dbg_fragment(row0 + (ly + {{ i }}u * WY) * 4u, col0 + (lx + {{ j }}u * WX) * 4u, {{ k0 }} + {{ kk }}, a_reg{{ i }}, b_reg{{ j }}, {% for r in range(4) %}acc_{{ 4 * i + r }}_{{ j }}{{ ", " if r < 3 }}{% endfor %});
{% endfor %}
{% endfor %}
{% endmacro %}

{# acc += A tile · B tile, the tiles that start at k0 along k. #}
{% macro multiply(buffer=0, k0="k0") %}
{{ unrolled(step, buffer, k0) }}
{% endmacro %}

{# `step` for every kk. UNROLL are written out: engines guard loops, which keeps drivers from unrolling them. #}
{% macro unrolled(step, buffer=0, k0="k0") %}
{% if kernel.unroll == kernel.bk %}
{% for kk in range(kernel.bk) %}
        { // kk = {{ kk }}
{{ step("%du" % kk, buffer, k0) }}
        }
{% endfor %}
{% else %}
        for (var kk = 0u; kk < BK; kk += UNROLL) {
{% for u in range(kernel.unroll) %}
            {
{{ step("kk + %du" % u if u else "kk", buffer, k0) }}
            }
{% endfor %}
        }
{% endif %}
{% endmacro %}

{% macro store_fragment(r, j) -%}
store_c4(c_base, row0 + (ly + {{ r // 4 }}u * WY) * 4u + {{ r % 4 }}u, col0 + (lx + {{ j }}u * WX) * 4u, acc_{{ r }}_{{ j }});
{%- endmacro %}

{% macro store() %}
{% for r in range(kernel.tm) %}
{% for j in range(kernel.tn // 4) %}
    {{ store_fragment(r, j) }}
{% endfor %}
{% endfor %}
{% endmacro %}
