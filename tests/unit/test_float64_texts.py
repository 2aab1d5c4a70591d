"""float64: shaders, uniforms and the choice of kernels."""

import struct
from dataclasses import replace

import pytest

from webmm.choose.gemm import SLICES, made_of_doubles, made_of_integers
from webmm.errors import ConfigError, ProblemError, UnsupportedError
from webmm.kernels import LADDER
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.base import GemmParams
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.slices import SLICES as SLICE_COUNTS
from webmm.kernels.gemm.slices import DoubleParams, Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.kernels.gemm.split_k import SplitK
from webmm.problems.gemm import gemm
from webmm.wgsl.own import Epilogue
from webmm.wgsl.params import layout, pack
from webmm.wgsl.render import params_bytes, render

PROBLEM = gemm(1024, 1024, 1024, dtype="float64")
BYTES = MatrixShape("i8", "i32", 16, 16, 32)


@pytest.mark.parametrize("stage", [stage for stage in LADDER if stage.doubles], ids=lambda stage: stage.name)
def test_float64_shaders_use_no_float32_and_need_native_engines(stage):
    text = render(stage(), PROBLEM).wgsl
    assert "f64" in text
    assert not [word for word in ("f32", "vec4f", "vec2f", "enable f64") if word in text]
    with pytest.raises(ConfigError, match="has no f64"):
        render(stage(), PROBLEM, "tint")


@pytest.mark.parametrize("kernel", [Slices(), Software(), SlicesUnit()], ids=lambda kernel: kernel.name)
def test_integer_stages_use_no_floats(kernel):
    for step in kernel.dispatches:
        shader = render(step, PROBLEM, "tint")
        code = [line.partition("//")[0] for line in shader.wgsl.splitlines()]
        assert not [line for line in code if "f64" in line or "f32" in line]
        assert "shader-f64" not in shader.features


def test_a_debug_shader_records_float32():
    with pytest.raises(ConfigError, match="debug shaders record float32"):
        render(LADDER[0](), PROBLEM, debug=True)


def test_epilogue_numbers_are_stored_as_float64():
    scaled = replace(gemm(2, 3, 4, dtype="float64"), alpha=0.1)
    where = {m.name: m for m in layout(GemmParams, "f64").members}["alpha"]
    assert where.offset % 8 == 0
    assert struct.unpack_from("<d", params_bytes(LADDER[0](), scaled), where.offset) == (0.1,)
    where = {m.name: m for m in layout(DoubleParams).members}["alpha"]
    assert struct.unpack_from("<d", pack(DoubleParams.of(scaled)), where.offset) == (0.1,)


@pytest.mark.parametrize(
    ("size", "shapes", "kind", "first"),
    [
        (4096, {BYTES}, "discrete", SlicesUnit()),
        (1024, {BYTES}, "discrete", SlicesUnit(bm=64, bn=64, sm=32, sn=32)),
        (512, {BYTES}, "discrete", SlicesUnit(bm=32, bn=32, sm=16, sn=32)),
        (128, {BYTES}, "discrete", SlicesUnit(bm=32, bn=32, sm=16, sn=32)),
        (96, {BYTES}, "discrete", Slices()),
        (4096, set(), "discrete", SLICES),
        (4096, {MatrixShape("f16", "f32", 16, 16, 16)}, "discrete", SLICES),
        (1024, set(), "discrete", Slices()),
        (4096, set(), "cpu", Slices()),
        (16, {BYTES}, "discrete", Software()),
    ],
)
def test_choice_on_devices_without_float64(size, shapes, kind, first):
    device = Capabilities("some", {}, frozenset(), subgroup_size=32, matrix_shapes=frozenset(shapes))
    kernels = made_of_integers(gemm(size, size, size, dtype="float64"), kind, device)
    assert kernels[0] == first
    assert kernels[-1] == Software()
    assert all(kernel.invalid() is None for kernel in kernels)


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ((4096, 4096, 4096), Pipelined(bm=128, bn=128)),
        ((1024, 1024, 4096), Pipelined(bm=64, bn=64, bk=8, unroll=8)),
        ((512, 512, 512), SplitK(bm=32, bn=64, tm=4, tn=4, slices=2, splits=1)),
        ((128, 256, 2048), SplitK(bm=32, bn=64, tm=4, tn=4, slices=2, splits=8)),
        ((4096, 1, 4096), Gemv(lanes=32, groups=8, tj=1)),
    ],
)
def test_choice_on_gpus_with_float64(sizes, first):
    best, *_ = made_of_doubles(gemm(*sizes, dtype="float64"))
    assert best.invalid() is None
    assert best == first


def test_slices_hold_all_bits_of_a_double():
    assert 7 * SLICE_COUNTS["highest"] >= 53 > 7 * SLICE_COUNTS["high"] > 40
    assert Slices() in list(Slices.space())
    assert SLICES in list(Slices.space())


def test_float64_products_are_stored_as_float64():
    assert gemm(1, 1, 1, dtype="f64").out_dtype.name == "float64"
    for dtype, out in (("float64", "float32"), ("float16", "float64"), ("float64", "bfloat16")):
        with pytest.raises(ProblemError, match=f"a product of {dtype} cannot be stored as {out}"):
            gemm(1, 1, 1, dtype=dtype, out_dtype=out)
    own = Epilogue(wgsl="x * x", numpy=lambda x: x * x)
    with pytest.raises(UnsupportedError, match="float64 products do not support an Epilogue; map"):
        replace(gemm(1, 1, 1, dtype="float64"), activation=own.name)
