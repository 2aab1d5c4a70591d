{#
  k divided among workgroups: a tile's SPLITS workgroups along z each store sums of a part of k to `partial` (batch,
  split, row, column), rows padded to whole vec4; a second dispatch adds them.
#}
{% import "common/matrix.wgsl" as matrix with context %}

{# The function that stores four partial sums, in place of that which stores C; `base` is from partial_base(). #}
{% macro store_partial() %}
// partial[row, col..col+3] ← value{% if s.edge_m or s.edge_n %}, nothing outside the matrix{% endif %}

fn store_c4(base: u32, row: u32, col: u32, value: {{ vec4r }}) {
    let row_length = (params.n + 3u) / 4u;
{% set outside = matrix.guards([(s.edge_m, "row", "m"), (s.edge_n, "col", "n")]) %}
{% if outside %}
    if ({{ outside }}) {
        return;
    }
{% endif %}
    partial[base + row * row_length + col / 4u] = value;
}
{% endmacro %}

{# The index of the first partial sum of this workgroup's split, in vec4. #}
{% macro partial_base() -%}
workgroup.z * params.m * ((params.n + 3u) / 4u)
{%- endmacro %}

{#
  Part number `part` of k, from `k_first` to before `k_end`, in whole steps of `step` elements: the parts are equal,
  except that the first ones have one step more if steps remain. Without batches, a workgroup's part is its z.
#}
{% macro part_of_k(step, part="workgroup.z") %}
    //# splits
    let steps = (params.k + {{ step }} - 1u) / ({{ step }});
    let first_step = {{ part }} * (steps / SPLITS) + min({{ part }}, steps % SPLITS);
    let last_step = first_step + steps / SPLITS + select(0u, 1u, {{ part }} < steps % SPLITS);
    let k_first = first_step * {{ step }};
    let k_end = last_step * {{ step }};
    //# end
{% endmacro %}

{# For the second dispatch: the invocations that share a vec4 of C, and their sums; `vector` is the type of four. #}
{% macro adders(vector=vec4r) %}
const VECTORS = {{ kernel.invocations // kernel.adders }}u; // vec4 of C per workgroup
{% if kernel.adders > 1 %}
var<workgroup> sums: array<array<{{ vector }}, VECTORS>, {{ kernel.adders }}u>; // [adder][vector]
{% endif %}
{% endmacro %}

{#
  The second dispatch: `value`, the sum of all parts for vec4 number `vector` of C, which has rows of `row_length` vec4.
  With many splits, each invocation of a group adds some of them, and their sums are added in workgroup memory, since a
  small C has too few elements to occupy a GPU; only the first of a group goes on.
#}
{% macro add_splits(zero=vec4r ~ "()") %}
{% set adders = kernel.adders %}
    let row_length = (params.n + 3u) / 4u; // in vec4
    let matrix_length = params.m * row_length;
    let vector = (workgroup.x + workgroup.y * grid.x) * VECTORS + local_index % VECTORS;
    let first = workgroup.z * SPLITS * matrix_length + vector;
{% if adders > 1 %}
    let adder = local_index / VECTORS;
    var value = partial[first + adder * matrix_length];
{% for split in range(adders, kernel.splits, adders) %}
{% if split + adders <= kernel.splits %}
    value += partial[first + (adder + {{ split }}u) * matrix_length];
{% else %}
    value += select({{ zero }}, partial[first + (adder + {{ split }}u) * matrix_length], adder + {{ split }}u < SPLITS);
{% endif %}
{% endfor %}
    sums[adder][local_index % VECTORS] = value;
    workgroupBarrier(); // all sums are complete before they are added
    if (adder > 0u || vector >= matrix_length) {
        return;
    }
{% for other in range(1, adders) %}
    value += sums[{{ other }}][local_index];
{% endfor %}
{% else %}
    if (vector >= matrix_length) {
        return;
    }
    var value = partial[first];
{% for split in range(1, kernel.splits) %}
    value += partial[first + {{ split }}u * matrix_length];
{% endfor %}
{% endif %}
{% endmacro %}
