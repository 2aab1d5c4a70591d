{# The beginning of every shader: extensions, tunables as constants, the uniform, the bindings. #}
{% for type in s.types if type.features and type.extension %}
enable {{ type.wgsl }};

{% endfor %}
{% if kernel.subgroup and dialect == "tint" %}
enable subgroups;
{% if pinned %}
enable subgroup_size_control;
{% endif %}

{% endif %}
{% if kernel.matrix_shape and dialect == "tint" %}
enable chromium_experimental_subgroup_matrix;

// Offsets are uniform within a subgroup, which Tint cannot prove.
diagnostic(off, chromium.subgroup_matrix_uniformity);

{% elif kernel.matrix_shape %}
enable wgpu_cooperative_matrix;

{% endif %}
{{ constants }}

{{ params_struct }}

@group(0) @binding(0) var<uniform> params: Params;
{% set spaces = {"read-only-storage": "<storage, read>", "storage": "<storage, read_write>"} %}
{% for x in bindings[1:] %}
@group(0) @binding({{ x.binding }}) var{{ spaces.get(x.type, "") }} {{ x.name }}: {{ x.wgsl_type }};
{% endfor %}
{% for type in s.types if type.packed %}

{% include "common/" ~ type.wgsl ~ ".wgsl" %}
{% endfor %}
{% if tags %}

{% include "common/debug.wgsl" %}
{% endif %}
