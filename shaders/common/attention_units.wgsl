{#
  What attention's matrix_unit is made of: loads of q, k and v by chunks of eight float16, which are copied as they are;
  and fragments of the result in workgroup memory, where lanes scale their elements.
#}
{# load_X8(base, token, column): eight columns as float16, zeros beyond the last one if `edge`. #}
{% macro load8(x, edge) %}
{% set columns = "width" if x in "qk" else "value_width" %}
// Eight columns of {{ x }}, from `column` on{{ "; zeros beyond the last one" if edge }}
fn load_{{ x }}8(base: u32, token: u32, column: u32) -> vec4<u32> {
    let place = base + token * params.{{ x }}_strides.z;
{% if s["vec_" ~ x] %}
{% if edge %}
    let at = min(column, params.{{ columns }} - 8u);
    return select({{ x }}[(place + at) / 8u], vec4<u32>(), column >= params.{{ columns }});
{% else %}
    return {{ x }}[(place + column) / 8u];
{% endif %}
{% else %}
    let last = params.{{ columns }} - 1u;
{% for j in range(8) %}
    let x{{ j }} = f32({{ x }}[place + min(column + {{ j }}u, last) * params.{{ x }}_strides.w]);
{% endfor %}
    let words = vec4<u32>(
{% for j in range(0, 8, 2) %}
        pack2x16float(vec2f(x{{ j }}, x{{ j + 1 }})),
{% endfor %}
    );
{% if edge %}
    let there = vec4<i32>(16 * i32(params.{{ columns }}) - 16 * i32(column)) - vec4<i32>(0, 32, 64, 96);
    let bits = vec4<u32>(clamp(there, vec4<i32>(), vec4<i32>(32)));
    return vec4<u32>(
{% for c in "xyzw" %}
        extractBits(words.{{ c }}, 0u, bits.{{ c }}),
{% endfor %}
    );
{% else %}
    return words;
{% endif %}
{% endif %}
}

{% endmacro %}

{#
  The lanes' turns over the vec4 of a fragment of o in this subgroup's slot of the panel `slot`, from its row of
  fragments `r`; `body` writes what is done with each.
#}
{% macro each_of_slot(slot, r, body) %}
{% for turn in range((kernel.slot + kernel.lanes - 1) // kernel.lanes) %}
            {
                let i = subgroup_lane{{ " + " ~ turn ~ "u * LANES" if turn }};
{% if kernel.slot % kernel.lanes %}
                if (i < SLOT) {
{% endif %}
                let member = subgroup_row * SM + {{ r * kernel.fm }}u + i / (FN / 4u);
                let value = bitcast<vec4f>({{ slot }}[slot + i]) * scales[member];
                {{ body() }}
{% if kernel.slot % kernel.lanes %}
                }
{% endif %}
            }
{% endfor %}
{% endmacro %}
