"""The stage for matrix units: refused without them, valid for naga, and right with emulated fragments.

No driver in CI has matrix units: emulation.py emulates them.
"""

import dataclasses
import re

import numpy as np
import pytest
import wgpu
from emulation import compile_by, emulated, stand_in
from products import check, check_exactly, exact, fractions, multiply, view, whole_numbers

from tests.sampled import sampled
from webmm.engine import probe
from webmm.engine.wgpu import WGPU
from webmm.errors import UnsupportedError
from webmm.kernels.base import MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.problems.gemm import gemm
from webmm.problems.product import LAYOUTS
from webmm.wgsl import naga
from webmm.wgsl.epilogues import ACTIVATIONS
from webmm.wgsl.render import render

SMALL = {"bm": 16, "bn": 16, "bk": 16, "sm": 8, "sn": 16, "fm": 8, "fn": 8, "fk": 8, "group": 1}

FEATURE = WGPU.matrix_units


@pytest.fixture(params=["tint"])
def small(device, monkeypatch, request):
    """Return the stage with small tiles, on a device with emulated matrix units and the dialect of the parameter."""
    kernel = MatrixUnit(lanes=device.capabilities.subgroup_size, **SMALL)
    return stand_in(device, monkeypatch, kernel, dialect=request.param)


# Several whole tiles; edges in chunks of eight elements; edges in single elements.
SHAPES = [(32, 32, 32), (40, 24, 24), (33, 21, 19)]


@pytest.mark.parametrize(
    ("small", "layout"),
    [*(("tint", layout) for layout in ("nn", "nt", "tn", "tt")), ("naga", "nn"), ("naga", "tt")],
    indirect=["small"],
)
def test_layouts_and_shapes(device, small, layout, request):
    # Each with one of the shapes, "nn" with all.
    for m, n, k in SHAPES if request.node.callspec.id == "tint-nn" else SHAPES[LAYOUTS.index(layout) % 3 :][:1]:
        turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
        problem = view(m, n, k, "float16", batch=2, pads=(8, 8, 8), offsets=(8, 16, 24), out_dtype="float32", **turned)
        check(device, small, problem)


@pytest.mark.parametrize("shape", [(32, 64, 32), (33, 39, 40)])
def test_results_in_float16(device, small, shape):
    check(device, small, gemm(*shape, dtype="f16"))


# Rows that start at odd and even elements; k shorter than a step, and of several steps.
@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize(
    ("shape", "pads"), [((33, 21, 35), (0, 0, 0)), ((40, 40, 5), (4, 1, 3)), ((24, 17, 48), (3, 2, 1))]
)
def test_rows_that_do_not_start_at_sixteen_bytes(device, small, layout, shape, pads):
    turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
    problem = view(*shape, "float16", batch=2, pads=pads, offsets=(1, 2, 3), out_dtype="float32", **turned)
    check_exactly(device, small, problem)


def test_buffers_that_end_with_their_last_word(device, small):
    problem = gemm(33, 23, 19, dtype="f16", out_dtype="float32")
    a, b = (x[0] for x in whole_numbers(problem))
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST
    buffers = [device.wgpu_device.create_buffer(size=-(-2 * x.size // 4) * 4, usage=usage) for x in (a, b)]
    assert all(buffer.size % 16 for buffer in buffers)
    for buffer, x in zip(buffers, (a, b), strict=True):
        device.wgpu_device.queue.write_buffer(buffer, 0, np.resize(x.astype(np.float16), buffer.size // 2))
    with device.empty((33, 23)) as c:
        x, y = device.wrap(buffers[0], a.shape, "float16"), device.wrap(buffers[1], b.shape, "float16")
        device.run(small, problem, x, y, c)
        np.testing.assert_array_equal(c.numpy(), a @ b)


@pytest.mark.parametrize(
    ("out", "splits"), [("float32", 1), pytest.param("float16", 1, marks=pytest.mark.long), ("float16", 2)]
)
def test_epilogues(device, small, out, splits):
    small, problem = dataclasses.replace(small, splits=splits), gemm(40, 33, 24, dtype="f16", out_dtype=out)
    a, b = (x[0] for x in fractions(problem))
    before, tolerance = np.full((40, 33), 0.5, out), 1e-5 if out == "float32" else 2e-2
    for bias, activation in (("column", "relu"), ("row", "gelu"), ("matrix", "")):
        length = {"row": 40, "column": 33, "matrix": 40 * 33}[bias]
        values = np.linspace(-1, 1, length).astype("float32" if bias == "matrix" else "float16")
        p = dataclasses.replace(problem, alpha=0.75, beta=2.0, bias=bias, activation=activation)
        with (
            device.array(a.astype(np.float16)) as x,
            device.array(b.astype(np.float16)) as y,
            device.array(before) as c,
            device.array(values) as v,
        ):
            device.run(small, p, x, y, c, v)
            got = c.numpy()
        shape = {"row": (40, 1), "column": (1, 33), "matrix": (40, 33)}[bias]
        expected = 0.75 * (a.astype(np.float64) @ b) + values.reshape(shape)
        expected = ACTIVATIONS[activation].reference(expected) if activation else expected
        np.testing.assert_allclose(got, expected + 1.0, rtol=tolerance, atol=tolerance * 10)


def test_nan_and_infinities_affect_only_their_rows_and_columns(device, small):
    problem = gemm(33, 34, 35, dtype="f16", out_dtype="float32")
    a, b = whole_numbers(problem)
    a[0, 5, 7], b[0, 9, 11] = np.nan, np.inf
    got, _ = multiply(device, small, problem, a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("settings", sampled([{"bm": 32, "sm": 16}, {"bn": 32, "bk": 32, "group": 8}], first=1))
def test_other_tiles(device, small, settings):
    kernel = dataclasses.replace(small, **settings)
    check_exactly(device, kernel, gemm(72, 64, 64, dtype="f16"))


@pytest.mark.parametrize(
    ("small", "layout", "slices"),
    sampled([("tint", "nn", 2), ("tint", "tt", 2), ("tint", "nt", 4), ("naga", "tt", 2)]),
    indirect=["small"],
)
def test_slices_of_k_are_summed(device, small, layout, slices):
    kernel = dataclasses.replace(small, slices=slices, bk=16 * slices)
    turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
    for shape, pads in (((32, 32, 128), (0, 0, 0)), ((33, 21, 35), (3, 1, 2))):
        check_exactly(device, kernel, view(*shape, "float16", pads=pads, out_dtype="float32", **turned))


# Parts of one step and of several, the last one shorter; k that ends within a step; rows of C that are no whole vec4.
@pytest.mark.parametrize(
    ("layout", "shape", "pads", "splits", "out", "batch"),
    [
        ("nn", (32, 32, 128), (0, 0, 0), 4, "float32", 3),
        ("nt", (40, 24, 72), (8, 8, 8), 5, "float16", 1),
        ("tn", (33, 21, 75), (3, 1, 2), 3, "float32", 1),
        ("tt", (33, 21, 75), (3, 1, 2), 3, "float16", 3),
        ("tt", (40, 24, 72), (8, 8, 8), 5, "float32", 1),
    ],
)
def test_parts_of_k_are_summed(device, small, layout, shape, pads, splits, out, batch):
    kernel = dataclasses.replace(small, splits=splits)
    turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
    check_exactly(
        device, kernel, view(*shape, "float16", batch=batch, pads=pads, offsets=pads, out_dtype=out, **turned)
    )


def test_parts_and_slices_of_k_are_summed(device, small):
    kernel = dataclasses.replace(small, slices=2, bk=32, splits=3)
    check_exactly(device, kernel, view(33, 21, 150, "float16", batch=2, out_dtype="float32"))


def test_every_barrier_and_guard_is_needed(device, small, monkeypatch):
    if device.info.kind != "cpu":
        pytest.skip("a GPU may run the lanes of a workgroup in step, so that a missing barrier does not show")
    problem = view(40, 40, 40, "float16", pads=(8, 8, 8), out_dtype="float32")
    a, b = whole_numbers(problem)
    small = dataclasses.replace(small, sm=16, sn=8)  # two subgroups share a panel of A, and then its place
    shader = render(small, problem, "tint")
    text, bindings = emulated(shader.wgsl), shader.bindings

    def right(wgsl):
        compile_by(device, monkeypatch, lambda shader: device.compile(wgsl, "mutated", bindings))
        got, strays = multiply(device, small, problem, a, b)
        return np.array_equal(got, exact(problem, a, b)) and not strays

    assert right(text)
    barriers = list(re.finditer(r"workgroupBarrier\(\); // (.+)", text))
    comments = {match[1]: match for match in barriers}
    assert len(comments) == 6
    for comment, match in comments.items():
        if "the fragments" in comment or "next ones" in comment:
            continue  # these synchronise lanes of one subgroup, which this driver runs in lockstep
        assert not right(text[: match.start()] + text[match.end() :]), comment
    for guard, without in (
        (r"k0 \+ BK > params\.k\b", "false"),
        (r"before_end\((\w+), [^)]*\)", r"\1"),
        (r"select\(vec4<u32>\(\), (\w+), [^)]*\)", r"\1"),
        (r"\brow >= params\.m\b", "false"),
        (r"\bcol >= params\.n\b", "false"),
    ):
        main = text[text.index("fn store_c4(") :]
        mutated, count = re.subn(guard, without, main)
        assert count, guard
        assert not right(text.replace(main, mutated)), guard


# What needs no emulation


def test_without_matrix_units_it_is_refused(device):
    problem = gemm(64, 64, 64, dtype="f16")
    assert not device.capabilities.matrix_shapes
    assert (
        MatrixUnit()
        .check(problem, device.capabilities)
        .startswith("needs matrix units, lavapipe has none for shaders (")
    )
    with (
        device.empty((64, 64), "float16") as x,
        device.empty((64, 64), "float16") as c,
        pytest.raises(UnsupportedError, match="matrix_unit: needs matrix units"),
    ):
        device.run(MatrixUnit(), problem, x, x, c)


class Adapter:
    """An adapter that lists matrix units, but may refuse to enable them."""

    features = (FEATURE,)

    def __init__(self, enables):
        self.enables = enables

    def request_device_sync(self, required_features, required_limits):
        if FEATURE in required_features and not self.enables:
            raise RuntimeError("experimental features\nare not enabled")
        return required_features, required_limits


def test_matrix_units_are_optional():
    limits = {"max-bind-groups": 4}
    opened = WGPU.open(Adapter(enables=True), ["shader-f16"], limits)
    assert opened == ((["shader-f16", FEATURE], limits), "")
    (features, _), why = WGPU.open(Adapter(enables=False), ["shader-f16"], limits)
    assert features == ["shader-f16"]
    assert why == "wgpu does not enable cooperative-matrix: experimental features are not enabled"


def test_fragments_are_probed_by_multiplying(device, small, monkeypatch):
    before, shape = device.capabilities, small.matrix_shape
    tiles = {name: SMALL[name] for name in ("bm", "bn", "bk", "sm", "sn")}
    monkeypatch.setattr(probe, "TILES", tiles)  # a CPU compiles larger ones for minutes
    assert probe.multiplies(device, shape, device._product)
    assert device.capabilities is before
    wrong = lambda shader: device.compile(  # noqa: E731
        emulated(shader.wgsl).replace("(*sums)[own] +=", "(*sums)[own] -="), shader.label, shader.bindings
    )
    compile_by(device, monkeypatch, wrong)
    assert not probe.multiplies(device, shape, device._product)
    assert probe.matrix_shapes(device, device._product) == frozenset()  # wgpu lists no shapes


def test_fragments_are_probed_for_any_subgroup_size(device, monkeypatch):
    before = device.capabilities
    squares = frozenset(MatrixShape(kind, "f32", n, n, n) for kind in ("f16", "f32") for n in (8, 16))
    monkeypatch.setattr(device.engine, "matrix_units", next(iter(device.wgpu_device.features)))
    monkeypatch.setattr(
        device,
        "run",
        lambda kernel, problem, a, b, c: c.device.upload(
            a.numpy().astype(np.float32) @ b.numpy().astype(np.float32), c
        ),
    )
    features = before.features | {"shader-f16"}
    for lanes in (8, 16, 32, 64):
        able = dataclasses.replace(before, subgroup_size=lanes, features=features)
        monkeypatch.setattr(device, "capabilities", able)
        assert probe.matrix_shapes(device, device._product) == squares, lanes


def test_reasons(device):
    shape = MatrixUnit().matrix_shape
    it = dataclasses.replace(
        device.capabilities, name="it", matrix_shapes=frozenset({MatrixShape("f16", "f32", 8, 8, 8)}), subgroup_size=32
    )
    assert MatrixUnit().check(gemm(1, 1, 1), it) == "multiplies float16, not float32"
    problem = gemm(1, 1, 1, dtype="f16")
    assert MatrixUnit().check(problem, it) == (
        "needs matrix units that multiply 16×16×16 f16 into f32, those of it multiply 8×8×8 f16 into f32"
    )
    able = dataclasses.replace(it, matrix_shapes=frozenset({shape}))
    assert MatrixUnit().check(problem, able) is None
    assert MatrixUnit(lanes=16).check(problem, able) == "needs subgroups of exactly 16 lanes, it has 32"
    assert MatrixUnit(lanes=64).check(problem, able) == "needs subgroups of exactly 64 lanes, it has 32"


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("out", ["float32", "float16"])
def test_naga_translates_it(layout, out):
    turned = {"transpose_a": layout[0] == "t", "transpose_b": layout[1] == "t"}
    for sizes in ((128, 128, 64), (129, 131, 67)):
        shader = render(MatrixUnit(), gemm(*sizes, dtype="f16", out_dtype=out, **turned))
        assert b"simdgroup_multiply_accumulate" in naga.translate(shader.wgsl, f"{layout} {out} {sizes}")["MSL"]
