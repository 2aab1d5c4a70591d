{# Multiplying the tiles in workgroup memory. #}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% import "common/register_tiles/tiles.wgsl" as tiles with context %}
{% set a, b = tiles.operands %}

{#
  One kk: the outer product of TM elements of A and TN elements of B. In serpentine order every second row goes through
  the columns backwards, so that consecutive FMAs share an operand: 50.3 against 49.7 TFLOP/s at 8192³ on an H200. With
  tiles of 128 × 128 the driver allocates registers differently, and order=rows is faster: 48.8 against 47.1 at 4096³.
  Going through columns first is 6 % slower.
#}
{% macro multiply_step(kk, buffer, k0) %}
{% set a_row, b_row = "a_tile" ~ (buffer or "") ~ "[" ~ kk ~ "]", "b_tile" ~ (buffer or "") ~ "[" ~ kk ~ "]" %}
{% for i in range(kernel.tm // 4) %}
            let a_reg{{ i }} = {{ tiles.read_vec4(a_row, tiles.swizzle(a, layout.row_vec4(i), kk), a) }};
{% endfor %}
{% for j in range(kernel.tn // 4) %}
            let b_reg{{ j }} = {{ tiles.read_vec4(b_row, tiles.swizzle(b, layout.col_vec4(j), kk), b) }};
{% endfor %}
{% for r in range(kernel.tm) %}
{% set columns = range(kernel.tn // 4) | list %}
{% for j in (columns | reverse if kernel.order == "serpentine" and r % 2 else columns) %}
{% set a_element = "a_reg" ~ (r // 4) ~ "." ~ "xyzw"[r % 4] %}
            acc_{{ r }}_{{ j }} = fma({{ vec4r }}({{ a_element }}), b_reg{{ j }}, acc_{{ r }}_{{ j }});
{% endfor %}
{% endfor %}
{% for i in range(kernel.tm // 4) %}
{% for j in range(kernel.tn // 4) %}
{% set sums %}{% for r in range(4) %}acc_{{ 4 * i + r }}_{{ j }}{{ ", " if r < 3 }}{% endfor %}{% endset %}
{% set place %}{{ layout.first_row(i) }}, {{ layout.first_column(j) }}, {{ k0 }} + {{ kk }}{% endset %}
            dbg_fragment({{ place }}, a_reg{{ i }}, b_reg{{ j }}, {{ sums }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# sums += tile of A · tile of B; k0 is their first inner element, for debug shaders. #}
{% macro multiply_tiles(buffer=0, k0="k0") %}
{{ layout.for_each_kk(multiply_step, buffer, k0) }}
{% endmacro %}
