"""Fragments of the matrix units of every vendor: every combination is a valid shader for Tint."""

import dataclasses
import itertools

import pytest

from tests.sampled import crossed
from webmm.cases import fragments
from webmm.cases.fragments import BYTES, FLOATS, LANES, SPELLINGS
from webmm.errors import ConfigError
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.problems.gemm import gemm
from webmm.problems.product import LAYOUTS
from webmm.wgsl import tint
from webmm.wgsl.render import render

Shape = tuple[int, int, int]


@pytest.mark.parametrize(("shapes", "lanes"), crossed(zip(FLOATS, BYTES, strict=True), LANES, step=2))
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
