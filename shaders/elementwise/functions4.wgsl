// The same functions of four elements at once
{% set f, in_two = "vec4f", dialect == "naga" and s.dtype.name == "float16" %}
{% include "elementwise/functions_of.wgsl" %}
