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
    "deprecated": r"subgroupMatrixLoad<\w+>\(&(?P<x>\w)_tile\[(?P<panel>[^]]+)\], (?P<place>[^,]+), "
    r"(?P<rows>\w+), \w+\)",
}
STORES = {
    "naga": r"coopStoreT\((?P<acc>\w+), &(?P<to>c_tile\[subgroup\])\[(?P<place>\w+)\], (?P<stride>\w+)\);",
    "tint": r"subgroupMatrixStore<row_major>\(&(?P<to>[ab](?:_low)?_tile\[[^]]+\]|sums), (?P<place>[^,]+), "
    r"(?P<acc>\w+), (?P<stride>[^)]+)\);",
    "deprecated": r"subgroupMatrixStore\(&(?P<to>c_tile\[subgroup\]), (?P<place>\w+), (?P<acc>\w+), false, "
    r"(?P<stride>\w+)\);",
}
MULTIPLY = r"(?P<acc>\w+) = (?:coop|subgroupMatrix)Multiply\w+\((?P<left>\w+), (?P<right>\w+), (?P=acc)\)"
SCALE = r"(\w+) = subgroupMatrixScalarMultiply\(\1, "
ROWS = ("LoadT", "row_major", "false")
# How each dialect reads an element of a tile, and stores four adjacent elements: Tint's tiles hold vec4<u32>.
ELEMENTS = "f32({x}_tile[{at}.x][{at}.y + {e}])"
ELEMENT = {
    ("naga", "f16"): ELEMENTS,
    ("naga", "f32"): ELEMENTS,
    ("deprecated", "f16"): ELEMENTS,
    ("deprecated", "f32"): ELEMENTS,
    ("tint", "f16"): "unpack2x16float({x}_tile[{at}.x][{at}.y + ({e}) / 8u][({e}) / 2u % 4u])[({e}) % 2u]",
    ("tint", "f32"): "bitcast<f32>({x}_tile[{at}.x][{at}.y + ({e}) / 4u][({e}) % 4u])",
}
PER_ENTRY = {"f16": 8, "f32": 4}
ONE_BY_ONE = "for (var j = 0u; j < 4u; j++) {{ {to}[{place} + e / FN * {stride} + e % FN + j] = {acc}[own + j]; }}"
FOUR = {
    "naga": ONE_BY_ONE,
    "deprecated": ONE_BY_ONE,
    "tint": "let four = vec4f({acc}[own], {acc}[own + 1u], {acc}[own + 2u], {acc}[own + 3u]);"
    "{to}[{place} + e / FN * ({stride}) + e % FN / 4u] = bitcast<vec4<u32>>(four);",
}
EMULATION = """
const OWN: u32 = max(4u, FM * FN / LANES); // elements of C per lane, in row-major order; the last lanes may have none

fn multiply(step: Step, lane: u32) {{
    let count = min(params.k, 1u); // unknown at compile time, so that drivers do not unroll the loops
    let left = step.left;
    let right = step.right;
    let sums = &sums_of[step.sums];
    for (var own = 0u; own < OWN * count && lane * OWN < FM * FN; own++) {{
        let i = (lane * OWN + own) / FN;
        let j = (lane * OWN + own) % FN;
        for (var k = 0u; k < FK * count; k++) {{
            (*sums)[own] += {a} * {b};
        }}
    }}
}}

fn scale_sums(sums: u32, scale: f32) {{
    for (var own = 0u; own < OWN * min(params.k, 1u); own++) {{
        sums_of[sums][own] *= scale;
    }}
}}
"""
# Drivers copy what is called to each place and take long to compile it, so the products of a step wait for one call.
# Fragments of A and B are positions in their tiles: (panel, offset, 1 for the tile of low halves), those of C numbers.
QUEUE = """
alias Result = array<{element}, OWN>;
struct Step {{ left: vec3u, right: vec3u, sums: u32 }}
var<private> sums_of: array<Result, {sums}>;
var<private> queue: array<Step, {steps}>;

fn multiply_all(steps: u32, lane: u32) {{
    for (var i = 0u; i < steps * min(params.k, 1u); i++) {{
        multiply(queue[i], lane);
    }}
}}
"""
WAITS = re.compile(r"\s*(?:let \w+ = .*;|//.*)?")  # lines that products may wait for
PLACES = {  # position of element (i, k) of A and (k, j) of B, by operand and whether it is row-major
    ("a", True): "i * {line} + k",
    ("a", False): "k * {line} + i",
    ("b", True): "k * {line} + j",
    ("b", False): "j * {line} + k",
}


def without_subgroups(wgsl):
    """Return the shader with subgroups of LANES consecutive invocations, of which it only asks for their numbers."""
    text, count = re.subn(r" *@builtin\(subgroup_(id|invocation_id|size)\) \w+: u32,\n", "", wgsl)
    text = re.sub(r"enable (?!f16).*\n", "", text)
    numbers = {"": "local_index / LANES", "_lane": "local_index % LANES", "_size": "LANES"}
    lines = "".join(f"\n    let subgroup{name} = {number};" for name, number in numbers.items())
    return re.sub(r"(fn main\([^{]*\{)", rf"\1{lines}", text) if count else text


def queued(text, multiply, element):
    """Return the shader with its sums in one array, and its products, which `multiply` finds, in a queue."""
    sums = re.findall(r"var (\w+) = Result\(\);", text)
    lines, waiting, longest = [], 0, 0
    for line in text.splitlines():
        if found := re.fullmatch(rf"\s*{multiply};", line):
            left, right, acc = found["left"], found["right"], found["acc"]
            line, waiting = f"queue[{waiting}] = Step({left}, {right}, {acc});", waiting + 1
        elif waiting and not WAITS.fullmatch(line):
            lines.append(f"multiply_all({waiting}u, local_index % LANES);")
            waiting, longest = 0, max(longest, waiting)
        lines.append(line)
    text = "\n".join(lines) + "\n"
    for number, acc in enumerate(sums):
        text = text.replace(f"var {acc} = Result();", f"const {acc} = {number}u; sums_of[{acc}] = Result();")
        text = text.replace(f"{acc}[own", f"sums_of[{acc}][own")
    return text + QUEUE.format(element=element, sums=len(sums), steps=longest)


def emulated(wgsl):
    """Return the shader, of either dialect, with emulated fragments and subgroups."""
    if "coop_mat" not in wgsl and "subgroup_matrix" not in wgsl:
        return re.sub(r"enable (?!f16).*\n", "", wgsl)
    dialect = "naga" if "coop_mat" in wgsl else "tint" if "_major>(" in wgsl else "deprecated"
    kind = re.search(r"alias Left = \w+<(\w+),", wgsl)[1]
    rows = {load["x"]: load["rows"] in ROWS for load in re.finditer(LOADS[dialect], wgsl)}
    elements = {}
    for x, at in (("a", "left"), ("b", "right")):
        place = PLACES[x, rows[x]].format(line=f"{x.upper()}_LINE" + f" * {PER_ENTRY[kind]}u" * (dialect == "tint"))
        high, low = (ELEMENT[dialect, kind].format(x=tile, at=at, e=place) for tile in (x, f"{x}_low"))
        elements[x] = f"select({high}, {low}, {at}.z == 1u)" if f"{x}_low" in rows else high
    text = re.sub(r"alias (Left|Right|Result) = .*\n", "", without_subgroups(wgsl))
    text = re.sub(r"diagnostic.*\n", "", text)
    text = re.sub(LOADS[dialect], lambda m: f"vec3u({m['panel']}, {m['place']}, {int('_low' in m['x'])}u)", text)
    text = re.sub(SCALE, r"scale_sums(\1, ", text)
    lanes = (
        "for (var own = 0u; own < OWN * min(params.k, 1u) && local_index % LANES * OWN < FM * FN; own += 4u) "
        "{{ let e = local_index % LANES * OWN + own; {} }}"
    )
    text = re.sub(STORES[dialect], lambda m: lanes.format(FOUR[dialect].format(**m.groupdict())), text)
    text = queued(text, MULTIPLY, "f32")
    assert not re.search("coop|subgroupMatrix|subgroup_matrix", text)
    return text + EMULATION.format(**elements)


def stand_in(device, monkeypatch, kernel, *, emulate=emulated, dialect="tint", shapes=(), compiled=None):
    """Make the device report the matrix units that `kernel` needs, or `shapes`, and emulate shaders that use them.

    Subgroups have the kernel's number of lanes. Skips the test if the device lacks a feature of the kernel. Caches
    pipelines in `compiled`, by their WGSL. Returns `kernel`.
    """
    able, compiled = device.capabilities, {} if compiled is None else compiled
    if not kernel.features <= able.features:
        pytest.skip("the emulation needs the kernel's features")
    shapes = frozenset(shapes or {kernel.matrix_shape})
    able = dataclasses.replace(able, matrix_shapes=shapes, subgroup_size=kernel.lanes)
    plain = device.pipeline

    def pipeline(shader):
        if not shader.kernel.matrix_shape:
            return plain(shader)
        text = emulate(shader.wgsl)
        if text not in compiled:
            compiled[text] = device.compile(text, shader.label, shader.bindings)
        return compiled[text]

    def shader(kernel, problem, tags=None):
        spoken = dialect if kernel.matrix_shape else device.engine.dialect
        return render(kernel, problem, spoken, debug=tags is not None, tags=tags)

    monkeypatch.setattr(device, "capabilities", able)
    monkeypatch.setattr(device, "shader", shader)
    compile_by(device, monkeypatch, pipeline)
    return kernel


def compile_by(device, monkeypatch, pipeline):
    """Let `pipeline` compile the shaders of the device's launches, also those that it prepared before."""
    monkeypatch.setattr(device, "pipeline", pipeline)
    # What was prepared for other capabilities is not used again: not now, and not after the test.
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities))
    device.launches.kept.clear()
