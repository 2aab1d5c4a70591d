"""When float16 products use matrix units by default: if the device has them and they were measured to be faster."""

import dataclasses

import pytest

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
        ((2048, 1024, 64), (128, 128)),
        ((4095, 4097, 4093), (128, 128)),
        ((1024, 1024, 1024), (64, 128)),
        ((128, 4096, 4096), (64, 64)),
        ((512, 512, 512), (32, 64)),
        ((256, 256, 256), (32, 32)),
        ((32, 4096, 4096), (32, 32)),
        ((4096, 9, 64), (32, 64)),
    ],
)
def test_float16_uses_matrix_units(sizes, tile):
    problem = gemm(*sizes, dtype="f16")
    kernel, *smaller = made_for_matrix_units(problem, ABLE)
    assert isinstance(kernel, MatrixUnit)
    assert (kernel.bm, kernel.bn) == tile
    assert all(k.check(problem, ABLE) is None for k in (kernel, *smaller))


def test_a_batch_counts_towards_the_number_of_tiles():
    problem = gemm(256, 256, 256, dtype="f16", batch=64)
    assert made_for_matrix_units(problem, ABLE)[0] == MatrixUnit()


def test_smaller_tiles_follow_if_workgroup_memory_is_small():
    problem, tight = gemm(128, 4096, 4096, dtype="f16"), {**LIMITS, "max-compute-workgroup-storage-size": 32768}
    able = dataclasses.replace(ABLE, limits=tight)
    fitting = [k for k in made_for_matrix_units(problem, able) if k.check(problem, able) is None]
    assert [(k.bm, k.bn) for k in fitting] == [(32, 32)]


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (gemm(4096, 4096, 4096), "float32"),
        (gemm(4096, 4096, 4096, dtype="bfloat16"), "bfloat16"),
        (gemm(128, 128, 128, dtype="f16"), "too few tiles"),
        (gemm(8, 4096, 4096, dtype="f16"), "few rows"),
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
