"""8-bit products on matrix units: the stage in Tint's dialect, bit for bit, with emulated fragments.

No driver in CI has matrix units, and naga has no integer fragments. The tests therefore run the shader for Tint with
each opaque fragment replaced by an array distributed over the lanes of the subgroup, and each operation on fragments by
a function over such arrays; the rest of the shader is unchanged.
"""

import dataclasses
import re

import numpy as np
import pytest
from emulation import MULTIPLY, compile_by, queued, stand_in, without_subgroups
from test_quantized import F32, I8, I32, U8, check, draw, scheme_of

from tests.sampled import sampled
from webmm.cases import OPS
from webmm.errors import ConfigError
from webmm.kernels.quantized.matrix_unit import MatrixUnit
from webmm.wgsl.render import render

SMALL = {"bm": 32, "bn": 16, "bk": 64, "sm": 16, "sn": 16, "fm": 8, "fn": 16, "fk": 32, "group": 1}
TINT_ONLY = ("enable subgroups;", "enable chromium_experimental_subgroup_matrix;", "diagnostic(off, chromium")

LOAD = re.compile(r"subgroupMatrixLoad<(Left, row|Right, col)_major>\(&(\w)_tile\[(\w+)\], ([^,]+), \w+\)")
STORE = re.compile(r"subgroupMatrixStore<row_major>\(&([ab]_tile\[\w+\]), ([^,]+), (\w+), C_LINE\);")
EMULATION = """
const OWN: u32 = FM * FN / LANES; // elements of C per lane, in row-major order

fn byte(word: u32, i: u32) -> i32 {{
    return {byte};
}}

fn multiply(step: Step, lane: u32) {{
    let count = min(params.k, 1u); // unknown at compile time, so that drivers do not unroll the loops
    let left = step.left;
    let right = step.right;
    let sums = &sums_of[step.sums];
    for (var own = 0u; own < OWN * count; own++) {{
        let i = (lane * OWN + own) / FN;
        let j = (lane * OWN + own) % FN;
        for (var k = 0u; k < FK * count; k++) {{
            let a = a_tile[left.x][left.y + i * A_LINE + k / 16u][k / 4u % 4u];
            let b = b_tile[right.x][right.y + j * B_LINE + k / 16u][k / 4u % 4u];
            (*sums)[own] += byte(a, k % 4u) * byte(b, k % 4u);
        }}
    }}
}}
"""
BYTES = {"i8": "bitcast<i32>(word << (24u - 8u * i)) >> 24u", "u8": "i32((word >> (8u * i)) & 0xffu)"}


def emulated(wgsl):
    """Return the shader with emulated fragments, distributed over the lanes of a subgroup."""
    kind = re.search(r"alias Left = subgroup_matrix_left<(\w+)", wgsl)[1]
    text = without_subgroups(wgsl)
    text = "\n".join(line for line in text.splitlines() if not line.startswith((*TINT_ONLY, "alias ")))
    text = LOAD.sub(r"vec3u(\3, \4, 0u)", text)
    own = "for (var own = 0u; own < OWN * min(params.k, 1u); own++) {{ let e = local_index % LANES * OWN + own; {} }}"
    place = "{}[{} + e / FN * C_LINE + e % FN / 4u][e % 4u] = bitcast<u32>({}[own]);"
    text = queued(STORE.sub(lambda m: own.format(place.format(*m.groups())), text), MULTIPLY, "i32")
    assert "subgroupMatrix" not in text
    return text + EMULATION.format(byte=BYTES[kind])


def shapes_of(kernel):
    """Return the fragment shapes that the stage uses, for int8 and uint8."""
    return {dataclasses.replace(kernel, operands=x).matrix_shape for x in ("i8", "u8")}


@pytest.fixture
def small(device, monkeypatch):
    """Return the stage with small tiles, on a device with emulated matrix units."""
    kernel = MatrixUnit(lanes=device.capabilities.subgroup_size, **SMALL)
    return stand_in(device, monkeypatch, kernel, emulate=emulated, shapes=shapes_of(kernel))


ALIGNED = ((64, 64, 128), (0, 0), (0, 0))  # (m, n, k), padding of rows, offsets of operands
BY_WORDS = ((36, 44, 52), (0, 4), (4, 8))
RAGGED = ((33, 35, 39), (0, 3), (1, 2))


@pytest.mark.parametrize("layout", sampled(["nn", "nt", "tn", "tt"], 3))
def test_layouts_and_alignments(device, small, layout):
    rng = np.random.default_rng(2)
    ta, tb = (x == "t" for x in layout)
    for (m, n, k), pads, offsets in (ALIGNED, RAGGED) if ta != tb else (ALIGNED, BY_WORDS, RAGGED):
        a, b = draw(rng, (m, k), U8), draw(rng, (k, n), I8)
        check(device, small, a, b, scheme_of(0.02, 3, 0.03, -7, 0.5, 5), I8, ta=ta, tb=tb, pads=pads, offsets=offsets)


@pytest.mark.parametrize(
    ("a_dtype", "b_dtype", "fragments"),
    [(U8, U8, "u8"), pytest.param(U8, U8, "i8", marks=pytest.mark.long), (I8, I8, "i8"), (I8, U8, "i8")],
)
def test_types_and_zero_points(device, small, a_dtype, b_dtype, fragments):
    rng = np.random.default_rng(1)
    kernel = dataclasses.replace(small, operands=fragments)
    a, b = draw(rng, (37, 45), a_dtype), draw(rng, (45, 19), b_dtype)
    a[:3], b[:, :3] = np.iinfo(a.dtype).min, np.iinfo(b.dtype).max  # the largest sums
    some = ((0, 0), (5, 0), (0, 9)) if a_dtype == b_dtype == I8 else ((0, 0),) if fragments == "u8" else ()
    for zero_a, zero_b in (*some, (draw(rng, 37, a_dtype), draw(rng, 19, b_dtype))):
        check(device, kernel, a, b, scheme_of(zero_a=zero_a, zero_b=zero_b), I32)


@pytest.mark.parametrize(("out", "n"), [(I8, 36), (U8, 37), (F32, 37), (I32, 36)])
def test_outputs_and_scales(device, small, out, n):
    rng = np.random.default_rng(3)
    requantised = out in (I8, U8)
    rows, columns = (np.exp(rng.uniform(-6, 1, size)) for size in (35, n))
    a, b, bias = draw(rng, (35, 70), I8), draw(rng, (70, n), I8), rng.integers(-(2**20), 2**20, n)
    scheme = scheme_of(rows, 3, columns, -4, 9.5 if requantised else None, 7 if requantised else 0, bias)
    check(device, small, a, b, scheme, out)


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            {"bn": 32, "bk": 128, "group": 8},
            {"bm": 16, "bn": 32, "sn": 32, "fk": 16},  # two adjacent fragments of C
            {"bm": 64, "bn": 64, "bk": 128, "fn": 8},  # sixteen subgroups: several share a panel
            {"bn": 24, "sn": 24, "fn": 8},  # half of the subgroups load A, half B
        ]
    ),
)
def test_other_tiles(device, small, monkeypatch, settings):
    kernel = dataclasses.replace(small, **settings)
    stand_in(device, monkeypatch, kernel, emulate=emulated, shapes=shapes_of(kernel))
    rng = np.random.default_rng(4)
    m, n, k = 72, 65, 130
    check(device, kernel, draw(rng, (m, k), I8), draw(rng, (k, n), I8), scheme_of(0.1, 1, 0.1, 2), F32)


def test_every_barrier_is_needed(device, small, monkeypatch):
    if device.info.kind != "cpu":
        pytest.skip("a GPU may run the lanes of a workgroup in step, so that a missing barrier does not show")
    rng = np.random.default_rng(5)
    a, b = draw(rng, (40, 200), I8), draw(rng, (200, 40), I8)
    # Both subgroups read the single panel of A, whose memory their fragments of C use afterwards.
    kernel = dataclasses.replace(small, bm=16, bn=32)
    stand_in(device, monkeypatch, kernel, emulate=emulated, shapes=shapes_of(kernel))

    def right(barrier="none", zero=0):
        def without(shader):
            lines = emulated(shader.wgsl).splitlines()
            kept = [line for line in lines if barrier not in line]
            assert (len(kept) < len(lines)) == (barrier != "none")
            return device.compile("\n".join(kept), "mutated", shader.bindings)

        compile_by(device, monkeypatch, without)
        try:
            check(device, kernel, a, b, scheme_of(zero_a=zero, zero_b=zero), I32)
        except AssertionError:
            return False
        return True

    assert right()
    for zero, comment in [
        (0, "the first tiles are complete"),
        (0, "everyone is done with the tiles before they are overwritten"),
        (0, "the tiles are complete before"),
        (0, "everyone is done with the tiles before C takes their place"),
        (3, "the sums are complete"),
    ]:
        assert not right(comment, zero), comment


# Tests without emulation


def test_unsupported_devices_and_problems_are_refused(device):
    problem = OPS["quantized"].problem((64, 64, 64), "int8")
    assert MatrixUnit().check(problem, device.capabilities).startswith("needs matrix units, lavapipe has none")
    with pytest.raises(ConfigError, match="quantized cannot be written for naga: its matrices hold floats only"):
        render(MatrixUnit(), problem)
    mixed = OPS["quantized"].problem((64, 64, 64), "int8")
    assert MatrixUnit(operands="u8").unsuited(mixed) == "multiplies uint8, not int8 by int8"
    reason = MatrixUnit(bm=32, bn=64, sm=16, sn=16).unsuited(problem)
    assert reason.startswith("has tiles without 4 chunks per invocation")
