// gemv: C = A·B where C has few rows or few columns, so that memory, not arithmetic, is the limit.
//
// Storage: A (m, k), B (k, n), C (m, n), each with its own row length; bound as array<vec4> where the contiguous length
// is a multiple of 4; accumulation in f32.
{% set w, v = ("a", "b") if s.wide == "a" else ("b", "a") %}
{% set apart = s.along_k and not s.short_along_k %}
{% set i_size, j_size = ("m", "n") if s.wide == "a" else ("n", "m") %}
// {{ w | upper }} is the wide operand here: i counts its rows (params.{{ i_size }}), j those of {{ v | upper }} (params.{{ j_size }}), TJ of which are read at a time.
{% if s.along_k %}
// It is contiguous along k, which LANES invocations read side by side, for TI of its rows each.
{% if apart %}
// {{ v | upper }} is not: its vec4 are of four j at one k. Lanes take neighbouring k, one by one, so that what they read of it are
// neighbours, too; with four k in a row per lane, 8 columns took 78 µs in place of 32 (4096×8×4096 on an H200).
{% endif %}
{% else %}
// It is contiguous along i, which LANES invocations read side by side; GROUPS of them take turns along k.
{% endif %}
// Changed from split_k: nothing of the wide operand is read twice, so nothing of it is kept; the sums of the
// invocations are added up in workgroup memory. Each has the loads of UNROLL steps in flight.
// On an H200, which copies at 4.27 TB/s: 4.4 TB/s for one vector and a matrix of 16384², either way round; 2.8 TB/s at
// 4096², where 64 MiB take 23 µs and starting and ending shows; cuBLAS reads 2.7 and 3.2 there.
{% set parts = kernel.lanes if s.along_k else kernel.groups %}
{% if parts > 32 %}
// The sums of so many invocations are added up in two steps, or the end would take longer than a short k.
{% endif %}
// Shapes: any; for more than TJ of j the wide operand is read again. Workgroup memory: TI·TJ·16 bytes per invocation.
{% import "common/matrix.wgsl" as matrix with context %}
{% include "common/header.wgsl" %}

const WORKGROUP = LANES * GROUPS;
{% if s.along_k %}
const TILE_I = GROUPS * TI; // rows of the wide operand per workgroup
const OUTPUTS = GROUPS * TI * TJ; // sums per workgroup, of PARTS each
const PARTS = LANES;
var<workgroup> sums: array<array<f32, OUTPUTS>, PARTS>;
{% else %}
const TILE_I = LANES * TI * 4u; // rows of the wide operand per workgroup
const OUTPUTS = LANES * TI * TJ; // vec4 of sums per workgroup, of PARTS each
const PARTS = GROUPS;
var<workgroup> sums: array<array<vec4f, OUTPUTS>, PARTS>;
{% endif %}
{% if parts > 32 %}
const SHARES = 8u; // of the parts, each added up by an invocation of its own
{% endif %}

{#
  Four elements along k or along the operand's rows, zero beyond the end of k. What is read beyond its last row goes into
  sums that nobody stores; an engine keeps such reads within the binding. No load hangs on a condition, so that all are in
  flight together: 31 µs for a row times 4097 × 4095 on an H200, 37 where each asked for its own place.
#}
{% macro four(x, name, along_k) %}
{% set distance = " * LANES" if apart and along_k else "" %}
{% set vec = s.vec_a if x == "a" else s.vec_b %}
{% set k_first = (x == "a" and s.trans_a) or (x == "b" and not s.trans_b) %}
{% set index = "base + k * params.ld%s + i" % x if k_first else "base + i * params.ld%s + k" % x %}
// {{ x | upper }}: four elements along {{ "k" if along_k else "i" }}{{ ", LANES apart" if distance }}, from (i, k) on{% if s.edge_k %}, zero beyond the end of k{% endif %}

fn {{ name }}(base: u32, i: u32, k: u32) -> vec4f {
{% if vec %}
    let value = {{ matrix.as_vec4f("%s[(%s) / 4u]" % (x, index)) }};
{% else %}
{% set step = "" if along_k != k_first else " * params.ld" ~ x %}
    let value = vec4f(
{% for e in range(4) %}
        {{ matrix.element(x, "%s + %du%s%s" % (index, e, distance, step)) }},
{% endfor %}
    );
{% endif %}
{% if not s.edge_k %}
    return value;
{% elif along_k and not vec %}
    return select(vec4f(), value, {{ "vec4u(k, k + 1u%s, k + 2u%s, k + 3u%s)" % (distance, distance, distance) }} < vec4u(params.k));
{% else %}
    return select(vec4f(), value, k < params.k);
{% endif %}
}
{% endmacro %}
{{ four(w, "load_wide4", s.along_k) }}
{{ four(v, "load_short4", s.short_along_k) }}
{{ matrix.store_c(row=s.edge_i if w == "a" else s.edge_j, col=s.edge_j if w == "a" else s.edge_i) }}
@compute @workgroup_size({{ kernel.invocations }})
fn main(
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) index: u32,
) {
    let tile = workgroup.x + workgroup.y * grid.x;
    let tiles_i = (params.{{ i_size }} + TILE_I - 1u) / TILE_I;
    let i0 = tile % tiles_i * TILE_I;
    let j0 = tile / tiles_i * TJ;
    if (j0 >= params.{{ j_size }}) {
        return;
    }
    let lane = index % LANES;
    let group = index / LANES;
{{ matrix.bases() }}
{% set last_i = ", params.%s - 1u)" % i_size %}
{% for j in range(0, kernel.tj, 1 if s.short_along_k else 4) %}
    let j_{{ j }} = {{ "min(" if s.edge_j and s.short_along_k }}j0 + {{ j }}u{{ ", params.%s - 1u)" % j_size if s.edge_j and s.short_along_k }};
{% endfor %}
{% for t in range(kernel.ti) %}
{% if s.along_k %}
    let i_{{ t }} = {{ "min(" if s.edge_i }}i0 + group * TI + {{ t }}u{{ last_i if s.edge_i }};
{% else %}
    let i_{{ t }} = i0 + ({{ t }}u * LANES + lane) * 4u;
{% endif %}
{% for j in range(kernel.tj) %}
    var acc_{{ t }}_{{ j }} = {{ "f32()" if s.along_k else "vec4f()" }};
{% endfor %}
{% endfor %}
{% set at, stride = ("lane", "LANES") if s.along_k else ("group", "GROUPS") %}
{% set apart_by = " * LANES" if apart else "" %}
    for (var k = {{ at }}{{ " * 4u" if not apart }}; k < params.k; k += {{ stride }} * UNROLL * 4u) {
{% for u in range(kernel.unroll) %}
{% set k = "k + %du * %s" % (4 * u, stride) if u else "k" %}
{% for t in range(kernel.ti) %}
{% if s.along_k %}
        let w_{{ u }}_{{ t }} = load_wide4({{ w }}_base, i_{{ t }}, {{ k }});
{% else %}
{% for e in range(4) %}
        let w_{{ u }}_{{ t }}_{{ e }} = load_wide4({{ w }}_base, i_{{ t }}, {{ k }}{{ " + %du" % e if e }});
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% for u in range(kernel.unroll) %}
{% set k = "k + %du * %s" % (4 * u, stride) if u else "k" %}
{% if not s.short_along_k %}
{% for e in range(4) %}
{% for j in range(0, kernel.tj, 4) %}
        let v_{{ u }}_{{ e }}_{{ j }} = load_short4({{ v }}_base, j_{{ j }}, {{ k }}{{ " + %du%s" % (e, apart_by) if e }});
{% endfor %}
{% endfor %}
{% endif %}
{% for j in range(kernel.tj) %}
{% if s.short_along_k %}
        let v_{{ u }}_{{ j }} = load_short4({{ v }}_base, j_{{ j }}, {{ k }});
{% endif %}
{% for t in range(kernel.ti) %}
{% for e in range(4) %}
{% set short = "v_%d_%d.%s" % (u, j, "xyzw"[e]) if s.short_along_k else "v_%d_%d_%d.%s" % (u, e, j // 4 * 4, "xyzw"[j % 4]) %}
{% set product = "w_%d_%d.%s, %s" % (u, t, "xyzw"[e], short) if s.along_k else "w_%d_%d_%d, vec4f(%s)" % (u, t, e, short) %}
        acc_{{ t }}_{{ j }} = fma({{ product }}, acc_{{ t }}_{{ j }});
{% set at_k = "%s + %du%s" % (k, e, apart_by) %}
{% set wide, vector_tag = ("w_%d_%d.%s" % (u, t, "xyzw"[e]) if s.along_k else "w_%d_%d_%d" % (u, t, e)), "dbg_m" if w == "a" else "dbg_n" %}
{% set place = "i_%d, j0 + %du" % (t, j) if w == "a" else "j0 + %du, i_%d" % (j, t) %}
{% set one = place if s.along_k else "dbg_row(i_%d, 4u), j0 + %du" % (t, j) if w == "a" else "j0 + %du, dbg_col(i_%d, 4u)" % (j, t) %}
        {{ "dbg" if s.along_k else vector_tag }}(LOADED_{{ w | upper }}, {{ place }}, {{ at_k }}, {{ wide }});
        dbg(LOADED_{{ v | upper }}, {{ one }}, {{ at_k }}, {{ short }});
        {{ "dbg" if s.along_k else vector_tag }}(ACC, {{ place }}, {{ at_k }}, acc_{{ t }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
    }
{% for t in range(kernel.ti) %}
{% for j in range(kernel.tj) %}
{% if s.along_k %}
    sums[lane][(group * TI + {{ t }}u) * TJ + {{ j }}u] = acc_{{ t }}_{{ j }};
{% else %}
    sums[group][({{ t }}u * TJ + {{ j }}u) * LANES + lane] = acc_{{ t }}_{{ j }};
{% endif %}
{% endfor %}
{% endfor %}
    workgroupBarrier(); // every invocation's sums are there before they are added up
{% if parts > 32 %}
    for (var place = index; place < OUTPUTS * SHARES; place += WORKGROUP) {
        let o = place % OUTPUTS;
        let share = place / OUTPUTS;
        var sum = sums[share][o];
        for (var part = share + SHARES; part < PARTS; part += SHARES) {
            sum += sums[part][o];
        }
        sums[share][o] = sum;
    }
    workgroupBarrier(); // each share is added up before all of them are
{% endif %}
    for (var o = index; o < OUTPUTS; o += WORKGROUP) {
        var sum = sums[0][o];
        for (var part = 1u; part < {{ "SHARES" if parts > 32 else "PARTS" }}; part++) {
            sum += sums[part][o];
        }
{% if s.along_k %}
        let i = i0 + o / TJ;
        let j = j0 + o % TJ;
        store_c(c_base, {{ "i, j" if w == "a" else "j, i" }}, sum);
{% else %}
        let i = i0 + (o / (TJ * LANES) * LANES + o % LANES) * 4u;
        let j = j0 + o / LANES % TJ;
{% for e in range(4) %}
        store_c(c_base, {{ ("i + %du, j" if w == "a" else "j, i + %du") % e }}, sum.{{ "xyzw"[e] }});
{% endfor %}
{% endif %}
    }
}
