"""Emulation of matrix units, for running their shaders on a driver that has none.

Each opaque fragment becomes an array, distributed over the lanes of the subgroup, and each operation on fragments a
function over such arrays; the rest of the shader is unchanged.
"""

import dataclasses
import re

import pytest

from webmm.wgsl.render import render

# How each dialect loads and stores a fragment.
LOADS = {
    "naga": r"coop(?P<rows>LoadT?)<(?:Left|Right)>\(&(?P<x>\w)_tile\[(?P<panel>[^]]+)\]\[(?P<place>[^]]+)\], \w+\)",
    "tint": r"subgroupMatrixLoad<\w+, (?P<rows>\w+)>\(&(?P<x>\w+?)_tile\[(?P<panel>[^]]+)\], (?P<place>[^,]+), \w+\)",
}
STORES = {
    "naga": r"coopStoreT\((?P<acc>\w+), &(?P<to>c_tile\[subgroup\])\[(?P<place>\w+)\], (?P<stride>\w+)\);",
    "tint": r"subgroupMatrixStore<row_major>\(&(?P<to>[ab](?:_low)?_tile\[[^]]+\]|sums), (?P<place>[^,]+), "
    r"(?P<acc>\w+), (?P<stride>[^)]+)\);",
}
ROWS = ("LoadT", "row_major")
# How each dialect reads an element of a tile, and stores four adjacent elements: Tint's tiles hold vec4<u32>.
ELEMENT = {
    "naga": "f32({x}_tile[{at}.x][{at}.y + {e}])",
    "tint": "unpack2x16float({x}_tile[{at}.x][{at}.y + ({e}) / 8u][({e}) / 2u % 4u])[({e}) % 2u]",
}
FOUR = {
    "naga": "for (var j = 0u; j < 4u; j++) {{ {to}[{place} + e / FN * {stride} + e % FN + j] = {acc}[own + j]; }}",
    "tint": "let four = vec4f({acc}[own], {acc}[own + 1u], {acc}[own + 2u], {acc}[own + 3u]);"
    "{to}[{place} + e / FN * ({stride}) + e % FN / 4u] = bitcast<vec4<u32>>(four);",
}
EMULATION = """
const OWN: u32 = FM * FN / LANES; // elements of C per lane, in row-major order
alias Result = array<f32, OWN>;

// Fragments of A and B are positions in their tiles: (panel, offset, 1 for the tile of low halves).
fn multiply_add(left: vec3u, right: vec3u, sums: Result, lane: u32) -> Result {{
    var sum = sums;
    for (var own = 0u; own < OWN; own++) {{
        let i = (lane * OWN + own) / FN;
        let j = (lane * OWN + own) % FN;
        for (var k = 0u; k < FK; k++) {{
            sum[own] += {a} * {b};
        }}
    }}
    return sum;
}}

fn scaled_sums(sums: Result, scale: f32) -> Result {{
    var product: Result;
    for (var own = 0u; own < OWN; own++) {{
        product[own] = sums[own] * scale;
    }}
    return product;
}}
"""
PLACES = {  # position of element (i, k) of A and (k, j) of B, by operand and whether it is row-major
    ("a", True): "i * {line} + k",
    ("a", False): "k * {line} + i",
    ("b", True): "k * {line} + j",
    ("b", False): "j * {line} + k",
}


def emulated(wgsl):
    """Return the shader, of either dialect, with emulated fragments."""
    if "coop_mat" not in wgsl and "subgroup_matrix" not in wgsl:
        return re.sub(r"enable (?!f16).*\n", "", wgsl)
    dialect = "naga" if "coop_mat" in wgsl else "tint"
    rows = {load["x"]: load["rows"] in ROWS for load in re.finditer(LOADS[dialect], wgsl)}
    elements = {}
    for x, at in (("a", "left"), ("b", "right")):
        place = PLACES[x, rows[x]].format(line=f"{x.upper()}_LINE" + " * 8u" * (dialect == "tint"))
        high, low = (ELEMENT[dialect].format(x=tile, at=at, e=place) for tile in (x, f"{x}_low"))
        elements[x] = f"select({high}, {low}, {at}.z == 1u)" if f"{x}_low" in rows else high
    text = re.sub(r"alias (Left|Right|Result) = .*\n", "", wgsl)
    text = re.sub(r"enable (?!f16).*\n|diagnostic.*\n", "", text)
    text = re.sub(LOADS[dialect], lambda m: f"vec3u({m['panel']}, {m['place']}, {int('_low' in m['x'])}u)", text)
    text = text.replace("subgroupMatrixScalarMultiply", "scaled_sums")
    text = re.sub(r"(coop|subgroupMatrix)Multiply\w+\(([^)]*)\)", r"multiply_add(\2, local_index % LANES)", text)
    lanes = "for (var own = 0u; own < OWN; own += 4u) {{ let e = local_index % LANES * OWN + own; {} }}"
    text = re.sub(STORES[dialect], lambda m: lanes.format(FOUR[dialect].format(**m.groupdict())), text)
    assert not re.search("coop|subgroupMatrix|subgroup_matrix", text)
    return text + EMULATION.format(**elements)


def stand_in(device, monkeypatch, kernel, *, emulate=emulated, dialect="tint", shapes=(), compiled=None):
    """Make the device report the matrix units that `kernel` needs, or `shapes`, and emulate shaders that use them.

    Skips the test if the device lacks subgroups or a feature of the kernel. Caches pipelines in `compiled`, by their
    WGSL. Returns `kernel`.
    """
    able, compiled = device.capabilities, {} if compiled is None else compiled
    if not able.subgroup_size or not kernel.features <= able.features:
        pytest.skip("the emulation needs subgroups and the kernel's features")
    able = dataclasses.replace(able, matrix_shapes=frozenset(shapes or {kernel.matrix_shape}))
    plain = device.pipeline

    def pipeline(shader):
        if not shader.kernel.matrix_shape:
            return plain(shader)
        text = emulate(shader.wgsl)
        if text not in compiled:
            compiled[text] = device.compile(text, shader.label, shader.bindings)
        return compiled[text]

    def shader(kernel, problem, tags=None):
        return render(kernel, problem, dialect if kernel.matrix_shape else device.engine.dialect)

    monkeypatch.setattr(device, "capabilities", able)
    monkeypatch.setattr(device, "shader", shader)
    monkeypatch.setattr(device, "pipeline", pipeline)
    return kernel
