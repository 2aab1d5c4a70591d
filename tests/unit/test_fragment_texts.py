"""Fragments of the matrix units of every vendor: every combination is a valid shader for Tint."""

import dataclasses
import itertools

import pytest

from tests.sampled import crossed
from webmm.cases import fragments
from webmm.cases.fragments import BYTES, FLOATS, LANES, SPELLINGS
from webmm.choose.model import Machine, Model
from webmm.engine.rates import Rates, of_fragments
from webmm.errors import ConfigError
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.measure.roofline import UNIT_SETTINGS
from webmm.problems.gemm import gemm
from webmm.problems.product import LAYOUTS
from webmm.wgsl import tint
from webmm.wgsl.render import environment, render, tidy

Shape = tuple[int, int, int]


@pytest.mark.parametrize(("shapes", "lanes"), crossed(zip(FLOATS, BYTES, strict=True), LANES, step=3))
def test_every_combination_is_valid_for_tint(shapes: tuple[Shape, Shape], lanes: int) -> None:
    for layout, spelling in zip(LAYOUTS, itertools.cycle(SPELLINGS), strict=False):
        for kernel in fragments.units(*(fragments.settings(shape, lanes) for shape in shapes), spelling):
            assert kernel.invalid() is None
            for problem in fragments.problems(kernel, layout):
                tint.validate(render(kernel, problem, "tint").wgsl, f"{kernel} {layout}")


def test_naga_expresses_square_fragments_only() -> None:
    problem = gemm(64, 64, 64, dtype="f16")
    with pytest.raises(ConfigError, match="cannot be written for naga: its fragments are square"):
        render(MatrixUnit(fm=8), problem, "naga")
    assert "coop_mat8x8<f16, A>" in render(MatrixUnit(fm=8, fn=8, fk=8), problem, "naga").wgsl


def test_the_fastest_fragments_are_taken() -> None:
    shapes = [MatrixShape("f16", "f32", *sizes) for sizes in FLOATS]
    device = Capabilities("it", {}, frozenset(), subgroup_size=32, matrix_shapes=frozenset(shapes))
    assert device.fragment("f16", "f32") == shapes[0]  # the largest, if none was measured
    assert device.fragment("f32", "f32") is None
    rated = dataclasses.replace(device, fragment_rates={str(shapes[3]): 2.0, str(shapes[0]): 1.0})
    assert rated.fragment("f16", "f32") == shapes[3]
    assert (MatrixUnit.on(rated).fm, MatrixUnit.on(rated).fn) == (8, 16)


def test_rates_are_measured_by_valid_shaders() -> None:
    for (operands, result), shapes in (
        *((types, FLOATS) for types in (("f16", "f32"), ("f16", "f16"), ("f32", "f32"))),
        *((types, BYTES) for types in (("i8", "i32"), ("u8", "u32"), ("u8", "i32"))),
    ):
        for shape, lanes in zip(
            (MatrixShape(operands, result, *each) for each in shapes), itertools.cycle(LANES), strict=False
        ):
            values = UNIT_SETTINGS | {"shape": shape, "lanes": lanes, "pinned": lanes > 8, "dialect": "tint"}
            tint.validate(tidy(environment().get_template("roofline/fragments.wgsl").render(values)), str(shape))


def test_a_probe_decides_the_time_on_matrix_units() -> None:
    shape = MatrixUnit().matrix_shape
    rates = Rates(1e4, 1e4, 1e5, 0.1, 16)
    assert of_fragments(rates, shape) == of_fragments(None, shape) == 8
    assert of_fragments(dataclasses.replace(rates, fragments={str(shape): 2e4}), shape) == 2
    slow, fast = (dataclasses.replace(rates, fragments={str(shape): rate}) for rate in (2e3, 2e5))
    problem = gemm(4096, 4096, 4096, dtype="f16")
    slowest, fastest = (Model(Machine(16), {}, each).times([MatrixUnit()], problem)[0] for each in (slow, fast))
    assert slowest > 2 * fastest
    assert Rates.of(dataclasses.asdict(fast)) == fast
    assert Rates.of(dataclasses.asdict(fast) | {"fragments": {"16": -1.0}}) is None
