"""The fields from which the model of cost chooses, and what it takes on an H200, on lavapipe and on SwiftShader."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest

from webmm.cases import op_of
from webmm.choose import COLUMNS, adapted, cpu, quantized, ranked, weights
from webmm.choose.field import MOST_PARTS_BYTES, on_matrix_units
from webmm.dtypes import F32
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.quantized.matrix_unit import MatrixUnit as ByteUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.weights.cpu_lanes import CpuLanes as WeightLanes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.gemm import gemm
from webmm.problems.product import Operand, partial_bytes
from webmm.problems.weights import WeightOnly

FRAGMENT = MatrixShape("f16", "f32", 16, 16, 16)
BYTE_FRAGMENTS = frozenset(
    [*(MatrixShape("i8", "i32", 16, n, 32) for n in (8, 16)), MatrixShape("u8", "u32", 16, 16, 32)]
)
FRAGMENTS = frozenset({FRAGMENT, *BYTE_FRAGMENTS})
LIMITS = {
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-size-y": 1024,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroup-storage-size": 49152,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 2**31 - 4,
    "max-buffer-size": 2**32 - 2**20,
    "max-texture-dimension-2d": 8192,
    "max-texture-array-layers": 256,
}
ABLE = Capabilities("able", LIMITS, frozenset(), subgroup_size=32)
UNITS = dataclasses.replace(ABLE, features=frozenset({"shader-f16"}), matrix_shapes=FRAGMENTS)


def on(able=ABLE, name="NVIDIA H200", kind="discrete", engine="wgpu"):
    info = SimpleNamespace(name=name, kind=kind, driver="1")
    return SimpleNamespace(info=info, engine=SimpleNamespace(name=engine), capabilities=able)


DAWN = on(UNITS, engine="dawn")
LAVAPIPE = on(dataclasses.replace(ABLE, subgroup_size=8), "llvmpipe (LLVM 15.0.6, 256 bits)", "cpu")


def likely(problem, device):
    return [kernel for kernel, _ in ranked(COLUMNS[problem.op], problem, device, "cached")[0]]


def byte_product(size, dtype="int8", layout="nn"):
    return op_of("quantized").problem(size, dtype, layout)


def weighted(m, n, k, variant="4bit-32", dtype="float32"):
    return op_of("weights", variant).dense((m, n, k, 1), dtype, "")


# float16 on matrix units


@pytest.mark.parametrize(
    "sizes",
    [
        *((4096, 4096, 4096), (4095, 4097, 4093), (512, 8192, 2048), (8, 11_008, 1536)),
        *((400_000, 30, 16), (12, 4096, 64), (40_000, 6, 64)),
    ],
)
def test_tiles_fit_the_shape(sizes):
    problem = gemm(*sizes, dtype="f16")
    kernel, *others = likely(problem, DAWN)
    assert isinstance(kernel, MatrixUnit)
    assert kernel.splits == 1
    assert kernel.bm <= max(16, 2 * sizes[0])
    assert kernel.bn <= max(32, 4 * sizes[1])
    assert all(k.check(problem, UNITS) is None for k in (kernel, *others))


@pytest.mark.parametrize("sizes", [(97, 507, 189_653), (512, 512, 8192), (64, 4096, 14_336), (128, 4096, 4096)])
def test_k_is_divided_if_there_are_few_tiles(sizes):
    problem = gemm(*sizes, dtype="f16")
    kernel = likely(problem, DAWN)[0]
    assert kernel.splits > 1
    assert math.prod(kernel.dispatch(problem)) >= 66
    most = [max(k.splits for k in on_matrix_units(problem, UNITS, count)) for count in (132, 16)]
    assert most[0] > most[1]


def test_a_batch_counts_towards_the_number_of_tiles():
    problem = gemm(256, 256, 8192, dtype="f16")
    assert likely(problem, DAWN)[0].splits > 1
    assert likely(dataclasses.replace(problem, batch=256), DAWN)[0].splits == 1


def test_some_tiles_fit_a_small_workgroup_memory():
    for memory in (32_768, 16_384):
        able = dataclasses.replace(UNITS, limits={**LIMITS, "max-compute-workgroup-storage-size": memory})
        for sizes in ((128, 4096, 4096), (4096, 4096, 4096), (40_000, 30, 16)):
            assert isinstance(likely(gemm(*sizes, dtype="f16"), on(able, engine="dawn"))[0], MatrixUnit)


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
    field = COLUMNS["gemm"].field(problem, DAWN, 132)
    assert field
    assert not any(kernel.matrix_shape for kernel in field), why


def test_devices_without_float16_matrix_units():
    problem = gemm(4096, 4096, 4096, dtype="f16")
    for shapes in (frozenset(), BYTE_FRAGMENTS):
        able = dataclasses.replace(UNITS, matrix_shapes=shapes)
        assert not any(kernel.matrix_shape for kernel in COLUMNS["gemm"].field(problem, on(able), 132))


def test_fragments_are_those_of_the_device():
    apple = dataclasses.replace(UNITS, matrix_shapes=frozenset({MatrixShape("f16", "f32", 8, 8, 8)}))
    problem = gemm(4096, 4096, 4096, dtype="f16")
    kernel, *_ = likely(problem, on(apple, "Apple M2", "integrated", "dawn"))
    assert kernel.matrix_shape in apple.matrix_shapes
    assert kernel.check(problem, apple) is None


# 8-bit integers


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_large_integer_products_use_matrix_units(layout):
    for dtype in ("int8", "uint8"):
        problem = byte_product((2048, 2048, 2048), dtype, layout)
        kernel = likely(problem, DAWN)[0]
        assert isinstance(kernel, ByteUnit)
        assert kernel.operands == ("u8" if dtype == "uint8" else "i8")
        assert (kernel.fm, kernel.fn, kernel.fk, kernel.lanes) == (16, 16, 32, 32)


def test_uint8_is_converted_if_the_device_multiplies_int8_only():
    able = dataclasses.replace(UNITS, matrix_shapes=frozenset(s for s in BYTE_FRAGMENTS if s.operands == "i8"))
    made = quantized.on_matrix_units(byte_product((512, 512, 64), "uint8"), able)
    assert {kernel.operands for kernel in made} == {"i8"}


def test_more_subgroups_only_for_results_of_bytes():
    problem = byte_product((2048, 2048, 64), layout="nt")
    floats = dataclasses.replace(problem, out_dtype=F32)
    whole = [[(k.bm, k.bn, k.sn) for k in quantized.on_matrix_units(p, UNITS)] for p in (problem, floats)]
    assert [(128, 128, 32) in each for each in whole] == [True, False]


def test_no_matrix_units_without_byte_fragments():
    for shapes in (frozenset(), frozenset({FRAGMENT})):
        assert not quantized.on_matrix_units(
            byte_product((2048, 2048, 64)), dataclasses.replace(UNITS, matrix_shapes=shapes)
        )
    assert ByteUnit.on(dataclasses.replace(UNITS, matrix_shapes=frozenset())) == ByteUnit()


def test_a_long_k_is_divided():
    assert likely(byte_product((72, 58, 189_109)), on())[0].splits >= 32
    assert likely(weighted(48, 1024, 14_336), on())[0].splits >= 4
    assert likely(byte_product((4096, 4096, 64)), on())[0].splits == 1


def test_partial_sums_have_little_memory():
    for size in ((4096, 4096, 4096), (600, 600, 300_000), (20_000, 20_000, 20_000)):
        problem = byte_product(size)
        field = quantized.field(problem, on(), 132)
        assert all(partial_bytes(problem, x.splits) <= MOST_PARTS_BYTES or x.splits == 1 for x in field)
        assert {type(kernel) for kernel in field} == {Packed}


def test_a_kernel_without_partial_sums_is_among_the_candidates():
    from webmm.choose import candidates

    for problem in (byte_product((72, 58, 189_109)), weighted(48, 1024, 14_336), gemm(64, 64, 300_000)):
        assert any(not kernel.scratch(problem) for kernel in candidates(problem, on(), "cached"))


# Quantised weights


def test_few_rows_read_the_weights_once():
    for m, n, k in ((1, 4096, 4096), (1, 14_336, 4096), (4, 8192, 2560)):
        kernel = likely(weighted(m, n, k), on())[0]
        assert isinstance(kernel, Vector)
        assert kernel.tm >= m
    assert isinstance(likely(weighted(64, 4096, 4096), on())[0], Tiles)
    assert weights.vectors(weighted(weights.MOST_VECTOR_ROWS + 1, 64, 64)) == []


def test_many_rows_of_float16_use_matrix_units():
    assert likely(weighted(1024, 4096, 4096, dtype="float16"), DAWN)[0].matrix_shape == FRAGMENT
    assert likely(weighted(1024, 4096, 4096, dtype="float32"), DAWN)[0].matrix_shape is None


# CPUs


@pytest.mark.parametrize(
    ("m", "n", "tm", "tn"),
    [
        (512, 512, 32, 8),
        (503, 513, 32, 8),
        (27, 76, 32, 8),
        (48, 1536, 16, 16),  # a second tile of 32 rows would be half empty
        (200, 200, 32, 8),  # so is the last of seven, which costs less
        (23_777, 14, 32, 4),
        (5, 1536, 8, 16),
        (1, 1024, 1, 16),
    ],
)
def test_tiles_with_four_lanes(m, n, tm, tn):
    assert list(cpu.field(gemm(m, n, 99), 4)) == [CpuLanes(4, tm, tn)]


@pytest.mark.parametrize(
    ("m", "n", "k", "stage"),
    [
        (512, 512, 512, CpuTexture),
        (64, 896, 896, CpuLanes),  # copying B to a texture would take longer than it saves
        (64, 64, 64, CpuLanes),  # too little work for a tile that takes long to compile
        (251, 251, 251, CpuTexture),
        (100, 30, 99, CpuLanes),
        (5, 1536, 99, CpuLanes),
    ],
)
def test_tiles_with_eight_lanes(m, n, k, stage):
    problem = gemm(m, n, k)
    made = likely(problem, LAVAPIPE)
    assert type(made[0]) is stage
    assert any(type(kernel) is CpuLanes for kernel in made), "needs a kernel without a texture"
    large = [kernel for kernel in made if kernel.tm * kernel.tn * kernel.lanes >= cpu.LARGE]
    assert not large or problem.flops >= cpu.ENOUGH


def test_tiles_with_sixteen_lanes_have_the_same_columns():
    columns = [{k.tn * k.lanes for k in cpu.field(gemm(512, 512, 512), lanes)} for lanes in (8, 16)]
    assert columns == [{32, 64, 128}, {64, 128}]  # a lane computes four columns at least


def test_none_without_subgroups():
    assert list(cpu.field(gemm(512, 512, 512), 0)) == []
    assert adapted.model_of(on(kind="cpu", name="a CPU")).machine.cpu


@pytest.mark.parametrize(
    ("m", "n", "lanes", "kernel"),
    [
        (128, 1024, 4, WeightLanes(4, 16, 8)),
        (128, 1024, 8, WeightLanes(8, 16, 8)),
        (5, 1024, 16, WeightLanes(8, 8, 8)),
        (1, 16, 4, WeightLanes(4, 1, 4)),
    ],
)
def test_tiles_of_quantised_weights(m, n, lanes, kernel):
    problem = WeightOnly(m, n, 64, F32, F32, Operand(64), 4, 32)
    assert weights.made_for_cpus(problem, lanes) == [kernel]
    assert weights.made_for_cpus(problem, 0) == []
