{#
  The tiles in workgroup memory, and the operands that they hold.

  Both tiles are k-major, [kk][row] and [kk][col], so that one vec4 load reads four rows or columns of a fragment. If
  storage is contiguous across k (B as (k, n), A transposed), a vec4 from storage is written to the tile as it is. If
  storage is contiguous along k, its four elements are written to four rows of the tile. Such a tile is an array of
  array<f32, 4>, not of vec4: WGSL lets a store to one component of a vec4 write all four (Metal and D3D do), so
  invocations that write different components of one vec4 would race. Drivers still read the four f32 as one vector:
  48.2 TFLOP/s at 4096³ on an H200, against 46.1 if each invocation gathers four rows of A into a vec4, and 42 if it
  transposes 4 × 4 blocks in registers.

  A tile of float64 stores the two halves of its vec4 separately, [kk][half][row/4], so that an invocation reads 16
  bytes at once. Reads of 16 bytes at a stride of 32 have bank conflicts: 17.7 against 20.7 TFLOP/s at 4096³ with tiles
  of 64 × 128 × 8. Two more arrangements avoid conflicts (4096³ on the same GPU, tiles of 128 × 128 × 16):
  - of 32 consecutive invocations, 4 × 8 fragments, neighbours share columns, and every second one rows (interleaved):
    21.6 → 22.3 TFLOP/s;
  - if storage is contiguous along k, the vec4 of a tile's row are permuted differently for every four kk (swizzle), so
    that invocations write elements of different kk to different banks: 22.3 → 22.9; both together, with B transposed,
    18.7 → 21.1.

  Measured on the same GPU and rejected: for float64, loading from neighbouring lines of storage, which avoids bank
  conflicts when writing data that is contiguous along k (−3 %); padding the rows of tiles of vec4 (−2 %); for float64,
  writing pairs of rows as vec2 (−2 %), sums as scalars (nn 1 %, tn −3 %), loading fragments for the next kk (0), and a
  second buffer in workgroup memory without conditions in the loop (nn −6 %, tn 1 %). Without any load, it reaches 25.5.
#}

{#
  What webmm/kernels/register_tiles.py knows of each operand:

    x, axis                  its letter, and the axis that it shares with C: row or col
    base, origin, stride     variables: index of its first element, first row or column of the tile, row stride
    extent, length           extent of its tile along that axis: the constant's name, and its value
    vec                      whether storage is bound by vec4
    across_k                 whether storage is contiguous across k (along m or n), not along k
    by_element               whether storage is loaded element by element
    vec4_tile                whether its tile consists of vec4, not of arrays of four
    swizzled                 whether the vec4 of its tile's rows are permuted
    loads                    vec4 that an invocation loads per step; if by_element, it loads 4·loads elements
#}
{% import "common/register_tiles/layout.wgsl" as layout with context %}
{% set operands = kernel.operands(s) %}
{% set is_f64 = s.dtype.itemsize == 8 %}

{#
  The type of a tile: k-major, [slice][kk][half][vec4], without the first and third index if there is only one.
#}
{% macro tile_type(o, slices) %}
{% set width, vector = (2, vec2r) if is_f64 else (4, vec4r) %}
{% set four = vector if o.vec4_tile else "array<" ~ real ~ ", " ~ width ~ ">" %}
{% set row %}array<{{ four }}, {{ o.extent }} / 4u{{ " + 1u" if o.by_element }}>{% endset %}
{% set tile %}array<{{ "array<" ~ row ~ ", 2>" if is_f64 else row }}, BK>{% endset %}
{{ "array<" ~ tile ~ ", SLICES>" if slices > 1 else tile }}
{%- endmacro %}

{# Element `at`, an expression, of a row of a tile. #}
{% macro tile_element(row, at) -%}
{% if is_f64 -%}
{{ row }}[{{ at }} % 4u / 2u][{{ at }} / 4u][{{ at }} % 2u]
{%- else -%}
{{ row }}[{{ at }} / 4u][{{ at }} % 4u]
{%- endif %}
{%- endmacro %}

{# Component `i` of vec4 `index` of a row of a tile; `i` is a number, `index` an expression. #}
{% macro vec4_component(row, index, i) -%}
{{ row }}
{%- if is_f64 %}[{{ i // 2 }}][{{ index }}][{{ i % 2 }}]{% else %}[{{ index }}][{{ i }}]{% endif %}
{%- endmacro %}

{# Index `at` of a vec4 in row `kk` of a tile, which is permuted in groups of eight if the tile is swizzled. #}
{% macro swizzle(o, at, kk) -%}
{{ "(" ~ at ~ ") ^ ((" ~ kk ~ ") / 4u % 4u * 2u)" if o.swizzled else at }}
{%- endmacro %}

{# Vec4 `index` of a row of a tile, as a vec4f. #}
{% macro read_vec4(row, index, o) -%}
{% if is_f64 and o.vec4_tile -%}
{{ vec4r }}({{ row }}[0][{{ index }}], {{ row }}[1][{{ index }}])
{%- elif is_f64 -%}
{{ vec4r }}({% for i in range(4) %}{{ vec4_component(row, index, i) }}{{ ", " if i < 3 }}{% endfor %})
{%- else -%}
{{ layout.as_vector(row ~ "[" ~ index ~ "]", o.vec4_tile) }}
{%- endif %}
{%- endmacro %}
