"""When float16 products use matrix units by default: if the device has them and they were measured to be faster."""

import dataclasses
import math

import pytest

from webmm.choose.divided import MULTIPROCESSORS
from webmm.choose.gemm import made_for_matrix_units
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.problems.gemm import gemm

FRAGMENT = MatrixShape("f16", "f32", 16, 16, 16)
LIMITS = {
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-size-y": 1024,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroup-storage-size": 49152,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 2**31 - 4,
    "max-buffer-size": 2**32 - 2**20,
}
ABLE = Capabilities("able", LIMITS, frozenset({"shader-f16"}), subgroup_size=32, matrix_shapes=frozenset({FRAGMENT}))


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((4096, 4096, 4096), (128, 128)),
        ((4095, 4097, 4093), (128, 128)),
        ((512, 8192, 2048), (128, 128)),
        ((8, 11_008, 1536), (16, 32)),
        ((400_000, 30, 16), (64, 32)),
        ((12, 4096, 64), (16, 32)),
        ((40_000, 6, 64), (64, 32)),
    ],
)
def test_tiles_fit_the_shape(sizes, tile):
    problem = gemm(*sizes, dtype="f16")
    kernel, *others = made_for_matrix_units(problem, ABLE)
    assert isinstance(kernel, MatrixUnit)
    assert (kernel.bm, kernel.bn, kernel.splits) == (*tile, 1)
    assert all(k.check(problem, ABLE) is None for k in (kernel, *others))


@pytest.mark.parametrize("sizes", [(97, 507, 189_653), (512, 512, 8192), (64, 4096, 14_336), (128, 4096, 4096)])
def test_k_is_divided_if_there_are_few_tiles(sizes):
    problem = gemm(*sizes, dtype="f16")
    kernel = made_for_matrix_units(problem, ABLE)[0]
    assert kernel.splits > 1
    assert kernel.check(problem, ABLE) is None
    assert math.prod(kernel.dispatch(problem)) >= MULTIPROCESSORS // 2
    smaller = dataclasses.replace(ABLE, workgroups=16)
    assert math.prod(made_for_matrix_units(problem, smaller)[0].dispatch(problem)) < math.prod(kernel.dispatch(problem))


def test_a_batch_counts_towards_the_number_of_tiles():
    problem = gemm(256, 256, 8192, dtype="f16")
    assert made_for_matrix_units(problem, ABLE)[0].splits > 1
    assert made_for_matrix_units(dataclasses.replace(problem, batch=256), ABLE)[0].splits == 1


def test_some_tiles_fit_a_small_workgroup_memory():
    for memory in (32_768, 16_384):
        able = dataclasses.replace(ABLE, limits={**LIMITS, "max-compute-workgroup-storage-size": memory})
        for sizes in ((128, 4096, 4096), (4096, 4096, 4096), (40_000, 30, 16)):
            problem = gemm(*sizes, dtype="f16")
            assert any(k.check(problem, able) is None for k in made_for_matrix_units(problem, able))


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (gemm(4096, 4096, 4096), "float32"),
        (gemm(4096, 4096, 4096, dtype="bfloat16"), "bfloat16"),
        (gemm(2, 4096, 4096, dtype="f16"), "few rows"),
        (gemm(8, 2048, 1024, dtype="f16"), "few rows of a small product"),
    ],
)
def test_other_products_do_not_use_matrix_units(problem, why):
    assert not made_for_matrix_units(problem, ABLE), why


def test_devices_without_float16_matrix_units():
    problem = gemm(4096, 4096, 4096, dtype="f16")
    integers = MatrixShape("u8", "u32", 16, 16, 32)
    for shapes in (frozenset(), frozenset({integers})):
        assert not made_for_matrix_units(problem, dataclasses.replace(ABLE, matrix_shapes=shapes))


def test_fragments_are_those_of_the_device():
    apple = dataclasses.replace(ABLE, matrix_shapes=frozenset({MatrixShape("f16", "f32", 8, 8, 8)}))
    problem = gemm(4096, 4096, 4096, dtype="f16")
    kernel, *_ = made_for_matrix_units(problem, apple)
    assert kernel.matrix_shape in apple.matrix_shapes
    assert kernel.check(problem, apple) is None
