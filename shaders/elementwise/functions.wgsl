// Functions with NumPy's results where WGSL leaves them undefined, and for NaN, which drivers lose in max() and exp().
{% set f, in_two = "f32", false %}
{% include "elementwise/functions_of.wgsl" %}
