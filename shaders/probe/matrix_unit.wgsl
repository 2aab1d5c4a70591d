{% set line = shape.k * size // 16 %}
// matrix_unit: does the engine accept loads of fragments with spelling={{ spelling }}? Compiled, never run.
//
// The current spelling loads from arrays of any type; the deprecated one from arrays of the fragment's element type.

{% if shape.operands == "f16" %}
enable f16;
{% endif %}
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<{{ shape.operands }}, {{ shape.k }}, {{ shape.m }}>; // columns, rows

{% set entry, length = ("vec4<u32>", line) if spelling == "current" else (shape.operands, shape.k) %}
var<workgroup> tile: array<{{ entry }}, {{ shape.m * length }}>;

@compute @workgroup_size({{ lanes }})
fn main() {
{% if spelling == "current" %}
    let fragment = subgroupMatrixLoad<Left, row_major>(&tile, 0u, {{ line }}u);
{% else %}
    let fragment = subgroupMatrixLoad<Left>(&tile, 0u, false, {{ shape.k }}u);
{% endif %}
}
