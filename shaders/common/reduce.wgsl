{#
  Shared by all reductions. A `Part` is the partial result of some elements of a row; `Part4` holds four of them, one
  per component. Every operation has the same four functions:

      none()          the partial result of no elements
      lift(x)         the partial result of the element x; for positions, lift(x, at) with its index along k
      merge(a, b)     the partial result of the elements of both
      result(part)    the value stored in y

  Sums have levels: after CHAIN additions at a level, the result is added to the next level and the sum restarts, so
  that the rounding error grows with the logarithm of the number of elements, as in a pairwise sum.

  Elements are f32; i32, whose sums and products wrap around; f64, for products, logsumexp and normalisations; or
  doubles, for maxima, minima and positions: vec2u of the low and the high word (common/keys.wgsl).
#}
{% import "common/matrix.wgsl" as matrix with context %}
{% import "common/keys.wgsl" as keys with context %}
{% set integers = keys.integers %}
{% set doubles = keys.doubles %}
{% set native = s.dtype.wgsl == "f64" and s.native %}{# render() replaces f32 by f64 #}

{% set plain = s.operation in ("sum", "mean", "prod") %}
{% set keyed = keys.keyed %}
{% set positions = keys.positions %}
{% set fields = keys.fields %}
{% set struct = positions or doubles or s.operation == "logsumexp" %}

{# The type of an element, and of four. #}
{% macro number(four="") -%}
{% set types = ("i32", "vec4i") if integers else ("vec2u", "Doubles") if doubles else ("f32", "vec4f") %}
{{ types[1 if four else 0] }}
{%- endmacro %}

{# The constructor of number("4") from four elements. #}
{% macro by_fours() -%}
{{ "doubles" if doubles else number("4") }}
{%- endmacro %}

{# The types of one element and of four, of their keys and of their bits. #}
{% set widths = [("", number(), "u32", "i32"), ("4", number("4"), "vec4u", "vec4i")] %}

{% macro part(four="") -%}
{{ "Part" ~ four if struct else ("vec4u" if four else "u32") if keyed else number(four) }}
{%- endmacro %}

{# The identity of the operation, used beyond the end. #}
{% macro outside() -%}
{{ s.outside if integers else "params.outside" }}
{%- endmacro %}

{% macro functions(vector=true) %}
{% if native and s.operation == "logsumexp" %}
{% import "common/double_activations.wgsl" as native_doubles with context %}
const MOST: f32 = 1.7976931348623157e308; // the largest double: with a finite maximum, infinities are not subtracted

{{ native_doubles.exponentials() }}
{{ native_doubles.logarithm() }}
{% elif s.operation == "logsumexp" %}
const MOST: f32 = 0x1.fffffep+127f; // the largest float: with a finite maximum, infinities are not subtracted

{% endif %}
{% if doubles and vector %}
struct Doubles {
    low: vec4u,
    high: vec4u,
}

fn doubles(a: vec2u, b: vec2u, c: vec2u, d: vec2u) -> Doubles {
    return Doubles(vec4u(a.x, b.x, c.x, d.x), vec4u(a.y, b.y, c.y, d.y));
}

{% endif %}
{% for four, f, u, i in (widths if vector else widths[:1]) %}
{{ part_functions(four, f, u, i) }}
{% endfor %}
{% if vector %}
fn component(four: {{ part("4") }}, i: u32) -> {{ part() }} {
{% if positions or doubles %}
    return Part({% for field in fields %}four.{{ field }}[i]{{ ", " if not loop.last }}{% endfor %});
{% elif s.operation == "logsumexp" %}
    return Part(four.top[i], four.sum[i]);
{% else %}
    return four[i];
{% endif %}
}

{% endif %}
fn result(part: {{ part() }}) -> {{ "i32" if positions else number() }} {
{% if s.operation in ("sum", "prod") %}
    return part;
{% elif s.operation == "mean" %}
    return part / f32(params.length);
{% elif positions %}
    return i32(part.at);
{% elif s.operation == "logsumexp" and native %}
    if (part.sum > MOST) {
        return part.sum; // infinity
    }
    return select(part.top + logarithm(part.sum), params.outside, part.sum == 0.0); // -∞ if there are only -∞
{% elif s.operation == "logsumexp" %}
    return select(part.top + log(part.sum), part.sum, is_nan(part.sum));
{% else %}
{{ keys.result() }}
{% endif %}
}
{% endmacro %}

{% macro part_functions(four, f, u, i) %}
{% if keyed or positions %}
{{ keys.functions(four, f, u, i) }}
{% elif s.operation == "logsumexp" %}
struct Part{{ four }} {
    top: {{ f }}, // the largest element
    sum: {{ f }}, // Σ exp(x - top)
}

fn none{{ four }}() -> Part{{ four }} {
    return Part{{ four }}({{ f }}(-MOST), {{ f }}());
}

{% if native %}
fn power{{ four }}(x: {{ f }}) -> {{ f }} {
    return {{ "exponential(x)" if four else "exponential(vec4f(x)).x" }};
}
{% else %}
fn is_nan{{ four }}(x: {{ f }}) -> {{ "vec4<bool>" if four else "bool" }} {
    return (bitcast<{{ u }}>(x) & {{ u }}(0x7fffffffu)) > {{ u }}(0x7f800000u);
}

// exp(x); some drivers return a number for NaN
fn power{{ four }}(x: {{ f }}) -> {{ f }} {
    return select(exp(x), x, is_nan{{ four }}(x));
}
{% endif %}

fn lift{{ four }}(x: {{ f }}) -> Part{{ four }} {
    let top = clamp(x, {{ f }}(-MOST), {{ f }}(MOST));
    return Part{{ four }}(top, power{{ four }}(x - top));
}

fn merge{{ four }}(a: Part{{ four }}, b: Part{{ four }}) -> Part{{ four }} {
    let top = max(a.top, b.top);
    return Part{{ four }}(top, a.sum * power{{ four }}(a.top - top) + b.sum * power{{ four }}(b.top - top));
}
{% else %}
fn none{{ four }}() -> {{ f }} {
    return {{ f }}({{ "1" if s.operation == "prod" }});
}

fn merge{{ four }}(a: {{ f }}, b: {{ f }}) -> {{ f }} {
    return a {{ "*" if s.operation == "prod" else "+" }} b;
}
{% endif %}

{% endmacro %}

{# The partial result of an element; for sums and products the element. #}
{% macro lift(four, x, place) -%}
{% if plain -%}
{{ x }}
{%- else -%}
lift{{ four }}({{ x }}{% if positions %}, {{ place }}{% endif %})
{%- endif %}
{%- endmacro %}

{# A comment: what load4() returns beyond an end. #}
{% macro beyond(end) -%}
{% if s.edge %}; {{ "the last element" if doubles else outside() }} beyond {{ end }}{% endif %}
{%- endmacro %}

{# The index of the first element of a row. #}
{% macro base() -%}
{% if s.dense -%}
params.x_offset + row * params.outer_stride
{%- else -%}
params.x_offset + row / params.inner * params.outer_stride + row % params.inner * params.inner_stride
{%- endif %}
{%- endmacro %}

{# x[k] of a row, for the stages that load single elements. #}
{% macro element() -%}
{{ matrix.element("x", "base + k * params.stride") }}
{%- endmacro %}

{#
  Four elements of a row, `spread` apart if x is bound as single elements, so that neighbouring invocations read
  neighbouring elements. Beyond `end` the last element is loaded, and replaced by the identity; without a branch, the
  loads are in flight at once. Doubles are not replaced: the last element again changes neither a maximum nor the
  position of the first one. `inside4` is for elements that are known to be before the end.
#}
{% macro load4(spread) %}
{% if s.edge and s.vec %}
// Elements k, k + 1, … of a row{{ beyond("its end") }}
fn load4(base: u32, k: u32, end: u32) -> {{ number("4") }} {
{% set within = matrix.as_vec4f("x[(base + min(k, end - 4u)) / 4u]") %}
    return select({{ within }}, {{ number("4") }}({{ outside() }}), k >= end);
}

{% elif s.edge %}
// Elements k, k + {{ spread }}, … of a row{{ beyond("its end") }}
fn load4(base: u32, k: u32, end: u32) -> {{ number("4") }} {
    let at = vec4u(k) + vec4u(0u, 1u, 2u, 3u) * {{ spread }}u;
{% if doubles %}
    return gather4(base, min(at, vec4u(end - 1u)));
{% else %}
    let v = gather4(base, min(at, vec4u(end - 1u)));
    return select(v, {{ number("4") }}({{ outside() }}), at >= vec4u(end));
{% endif %}
}

{% endif %}
{% if not s.vec %}
fn gather4(base: u32, at: vec4u) -> {{ number("4") }} {
    let place = vec4u(base) + at{% if not s.dense %} * params.stride{% endif %};
    return {{ by_fours() }}(
{% for c in "xyzw" %}
        {{ matrix.element("x", "place." ~ c) }},
{% endfor %}
    );
}

{% endif %}
// Elements k, k + {{ 1 if s.vec else spread }}, … of a row, all before its end
fn inside4(base: u32, k: u32) -> {{ number("4") }} {
{% if s.vec %}
    return {{ matrix.as_vec4f("x[(base + k) / 4u]") }};
{% else %}
    return gather4(base, vec4u(k) + vec4u(0u, 1u, 2u, 3u) * {{ spread }}u);
{% endif %}
}

{% endmacro %}

{# Merges four elements at a time with those that follow them. #}
{% set in_order = "merge_in_order" if positions and not (integers or doubles) else "merge4" %}

{% macro tree(terms) -%}
{%- if terms | length == 1 -%}
{{ terms[0] }}
{%- else -%}
{%- set half = (terms | length) // 2 -%}
{{ in_order }}({{ tree(terms[:half]) }}, {{ tree(terms[half:]) }})
{%- endif -%}
{%- endmacro %}

{# The accumulators of an invocation, one per level. #}
{% macro accumulators(four) %}
{% for level in range(s.levels) %}
    var acc{{ level }} = none{{ four }}();
{% endfor %}
{% if s.levels > 1 %}
    var steps = 0u;
{% endif %}
{% endmacro %}

{# After an iteration: add the sums of full levels to the next level. #}
{% macro carry(four) %}
{% if s.levels > 1 %}
        steps++;
{{ carry_level(four, 1) }}
{% endif %}
{% endmacro %}

{% macro carry_level(four, level) %}
{% if level < s.levels %}
        if (steps % {{ kernel.chain ** level }}u == 0u) {
            acc{{ level }} = merge{{ four }}(acc{{ level }}, acc{{ level - 1 }});
            acc{{ level - 1 }} = none{{ four }}();
{{ carry_level(four, level + 1) }}
        }
{% endif %}
{% endmacro %}

{% macro all_levels(four, level=0) -%}
{%- if level + 1 == s.levels -%}
acc{{ level }}
{%- else -%}
merge{{ four }}(acc{{ level }}, {{ all_levels(four, level + 1) }})
{%- endif -%}
{%- endmacro %}

{# Merge the vec4 x0, x1 … at positions place(u) into acc0. #}
{% macro take(unroll, place) %}
{% if s.operation == "logsumexp" %}
{% set tops = [] %}
{% for u in range(unroll) %}
{% set _ = tops.append("x" ~ u) %}
{% endfor %}
        let top = {{ top(["acc0.top"] + tops) }};
{% for u in range(unroll) %}
        let powers{{ u }} = power4(x{{ u }} - top);
{% endfor %}
        acc0 = Part4(top, acc0.sum * power4(acc0.top - top) + {{ added("powers%d", unroll) }});
{% else %}
{% set terms = [] %}
{% for u in range(unroll) %}
{% set _ = terms.append(lift("4", "x" ~ u, place(u))) %}
{% endfor %}
        acc0 = {{ in_order }}(acc0, {{ tree(terms) }});
{% endif %}
{% endmacro %}

{# The maximum of some vec4 by component, clamped as in a Part. #}
{% macro top(terms) -%}
clamp({{ maximum(terms) }}, vec4f(-MOST), vec4f(MOST))
{%- endmacro %}

{% macro maximum(terms) -%}
{{ terms[0] if terms | length == 1 else "max(" ~ terms[0] ~ ", " ~ maximum(terms[1:]) ~ ")" }}
{%- endmacro %}

{# The sum of `count` numbered terms, by halves. #}
{% macro added(term, count, first=0) -%}
{%- if count == 1 -%}
{{ term % first }}
{%- else -%}
({{ added(term, count // 2, first) }} + {{ added(term, count - count // 2, first + count // 2) }})
{%- endif -%}
{%- endmacro %}

{# The first element of an invocation in a step of its workgroup. #}
{% macro first(lanes) -%}
{{ "lane * 4u" if s.vec and lanes > 1 else "lane" if lanes > 1 else "0u" }}
{%- endmacro %}

{% macro element4(u, k, end, inside) -%}
{{ "inside4(base, " ~ k ~ ")" if inside or not s.edge else "load4(base, " ~ k ~ ", " ~ end ~ ")" }}
{%- endmacro %}

{# Whether vec4 number u is inside each row that a single step covers. #}
{% macro inside(u) -%}
{{ "inside" if s.full and u < kernel.unroll - 1 }}
{%- endmacro %}

{#
  Reduce the elements of x[begin..end] of a row that belong to invocation `lane` of `lanes`. `load(u, k, end, inside)`
  is vec4 number `u` of the step that begins at k, and needs no check if all of it is `inside`. With `once`, a row takes
  a single step, and k is declared. `tag` and `acc` are the names under which debug shaders record the elements and
  their partial result.
#}
{% macro walk(lanes, begin="0u", end="params.length", load=element4, once=false, tag="LOADED", acc="ACC") %}
{% macro k(u) %}k{{ " + " ~ (4 * lanes * u) ~ "u" if u }}{% endmacro %}
{{ accumulators("4") }}
{% if once %}
{% for u in range(kernel.unroll) %}
    let x{{ u }} = {{ load(u, k(u), end, inside(u)) }};
{% endfor %}
{% else %}
    for (var k0 = {{ begin }}; k0 < {{ end }}; k0 += {{ 4 * lanes * kernel.unroll }}u) {
        let k = k0{{ " + " ~ first(lanes) if lanes > 1 }};
{% for u in range(kernel.unroll) %}
        var x{{ u }}: {{ number("4") }};
{% endfor %}
{% for whole in ([true, false] if s.edge else [true]) %}
{% if s.edge %}
        {{ "if (k0 + " ~ (4 * lanes * kernel.unroll) ~ "u <= " ~ end ~ ")" if whole else "else" }} {
{% endif %}
{% for u in range(kernel.unroll) %}
            x{{ u }} = {{ load(u, k(u), end, whole) }};
{% endfor %}
{% if s.edge %}
        }
{% endif %}
{% endfor %}
{% endif %}
{% macro place(u) -%}
vec4u(k) + vec4u(0u, 1u, 2u, 3u)
{%- if not s.vec %} * {{ lanes }}u{% endif %}
{%- if u %} + {{ 4 * lanes * u }}u{% endif %}
{%- endmacro %}
{{ take(kernel.unroll, place) }}
{{ carry("4") }}
{% set far = 1 if s.vec else lanes %}
{% for u in range(kernel.unroll) %}
        dbg_far({{ tag }}, row, 0u, k + {{ 4 * lanes * u }}u, {{ far }}u, vec4f(x{{ u }}));
{% endfor %}
        dbg({{ acc }}, row, 0u, k + {{ 4 * lanes * (kernel.unroll - 1) + 3 * far }}u, {{ merged(all_levels("4")) }});
{% if not once %}
    }
{% endif %}
    let four = {{ all_levels("4") }};
    let own = merge(merge(component(four, 0u), component(four, 1u)), merge(component(four, 2u), component(four, 3u)));
{% endmacro %}

{# The result of the four components of an invocation, as a float. #}
{% macro merged(four) -%}
{% set first %}merge(component({{ four }}, 0u), component({{ four }}, 1u)){% endset %}
{% set last %}merge(component({{ four }}, 2u), component({{ four }}, 3u)){% endset %}
f32(result(merge({{ first }}, {{ last }})))
{%- endmacro %}

{# Functions and workgroup memory that combine the partial results of a workgroup. #}
{% macro combined(lanes) %}
{% if kernel.combine == "tree" and lanes > 1 %}
var<workgroup> parts: array<{{ part() }}, {{ lanes }}>;

// The result of the whole workgroup, in every invocation
fn combined(own: {{ part() }}, lane: u32) -> {{ part() }} {
    parts[lane] = own;
{% set half = namespace(size=lanes // 2) %}
{% for _ in range(12) if half.size %}
{% set done = "all parts are there" if loop.first else "the halves are merged" %}
    workgroupBarrier(); // {{ done }} before anyone reads them
    if (lane < {{ half.size }}u) {
        parts[lane] = merge(parts[lane], parts[lane + {{ half.size }}u]);
    }
{% set half.size = half.size // 2 %}
{% endfor %}
    workgroupBarrier(); // the result is written before it is read
    return parts[0];
}
{% elif kernel.combine == "tree" %}
fn combined(own: {{ part() }}, lane: u32) -> {{ part() }} {
    return own;
}
{% else %}
// The result of a subgroup, in each of its lanes
fn combined_in_subgroup(own: {{ part() }}) -> {{ part() }} {
{% if doubles %}
    let high = subgroupMax(own.high);
    let low = subgroupMax(select(0u, own.low, own.high == high));
{% if positions %}
    let at = subgroupMin(select(0xffffffffu, own.at, (own.high == high) & (own.low == low)));
{% endif %}
    return Part({{ fields | join(", ") }});
{% elif positions %}
    let key = subgroupMax(own.key);
    return Part(key, subgroupMin(select(0xffffffffu, own.at, own.key == key)));
{% elif s.operation == "logsumexp" %}
    let top = subgroupMax(own.top);
    return Part(top, subgroupAdd(own.sum * power(own.top - top)));
{% else %}
    return {{ "subgroupMax" if keyed else "subgroupMul" if s.operation == "prod" else "subgroupAdd" }}(own);
{% endif %}
}

{% if kernel.combine == "subgroup" %}
var<workgroup> parts: array<{{ part() }}, {{ kernel.shared_parts }}>;

// The result of the whole workgroup, in every invocation; subgroups have `size` lanes
fn combined(own: {{ part() }}, lane: u32, size: u32) -> {{ part() }} {
    let subgroup_part = combined_in_subgroup(own);
    if (lane % size == 0u) {
        parts[lane / size] = subgroup_part;
    }
    workgroupBarrier(); // the parts of all subgroups are written before they are read
    var others = none();
    for (var i = lane % size; i < {{ lanes }}u / size; i += size) {
        others = merge(others, parts[i]);
    }
    return combined_in_subgroup(others);
}
{% endif %}
{% endif %}
{% endmacro %}

{# The call of these functions in main(). #}
{% macro whole() -%}
{% set calls = {
  "tree": "combined(own, lane)", "subgroup": "combined(own, lane, size)", "alone": "combined_in_subgroup(own)",
} %}
{{ calls[kernel.combine] }}
{%- endmacro %}

{% macro builtins() %}
    @builtin(workgroup_id) workgroup: vec3u,
    @builtin(num_workgroups) grid: vec3u,
    @builtin(local_invocation_index) lane: u32,
{% if kernel.combine == "subgroup" %}
    @builtin(subgroup_size) size: u32,
{% endif %}
{%- endmacro %}

{# The row of a workgroup; surplus workgroups of a folded grid return at once. #}
{% macro row() %}
    let row = workgroup.x + workgroup.y * grid.x;
    if (row >= params.outer * params.inner) {
        return;
    }
{% endmacro %}

{#
  Begin and end of the part of the reduced axis that belongs to workgroup.z: a multiple of the step, except for the
  last.
#}
{% macro split() %}
    let chunk = (params.length - 1u) / {{ kernel.step * kernel.splits }}u * {{ kernel.step }}u + {{ kernel.step }}u;
    let begin = workgroup.z * chunk;
    let end = min(begin + chunk, params.length);
{% endmacro %}

{% macro pack(part) -%}
{% if doubles -%}
vec4u({{ part }}.high, {{ part }}.low, {{ part ~ ".at" if positions else "0u" }}, 0u)
{%- elif native -%}
{{ "vec2f(" ~ part ~ ".top, " ~ part ~ ".sum)" if struct else "vec2f(" ~ part ~ ", 0.0)" }}
{%- elif positions -%}
vec2u({{ part }}.key, {{ part }}.at)
{%- elif s.operation == "logsumexp" -%}
vec2u(bitcast<u32>({{ part }}.top), bitcast<u32>({{ part }}.sum))
{%- else -%}
vec2u({{ part if keyed else "bitcast<u32>(" ~ part ~ ")" }}, 0u)
{%- endif %}
{%- endmacro %}

{% macro unpack(pair) -%}
{% if doubles -%}
Part({{ pair }}.x, {{ pair }}.y{{ ", " ~ pair ~ ".z" if positions }})
{%- elif native -%}
{{ "Part(" ~ pair ~ ".x, " ~ pair ~ ".y)" if struct else pair ~ ".x" }}
{%- elif positions -%}
Part({{ pair }}.x, {{ pair }}.y)
{%- elif s.operation == "logsumexp" -%}
Part(bitcast<f32>({{ pair }}.x), bitcast<f32>({{ pair }}.y))
{%- else -%}
{{ pair ~ ".x" if keyed else "bitcast<" ~ number() ~ ">(" ~ pair ~ ".x)" }}
{%- endif %}
{%- endmacro %}
