// The same functions of four elements at once
{% set f = "vec4f" %}
{% include "elementwise/functions_of.wgsl" %}
