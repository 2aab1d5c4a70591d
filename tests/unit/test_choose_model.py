"""The model of cost: its predictions, and the work it counts."""

import dataclasses
import random
from types import SimpleNamespace

import pytest
from test_choose_fields import ABLE, FRAGMENTS

from webmm.cases import op_of
from webmm.choose import COLUMNS, LIKELY, adapted, candidates, model, ranked, tables, tuned
from webmm.choose.field import field
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.split_k import SplitK, SumSplits
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.gemm.vectorized import Vectorized
from webmm.kernels.gemm.workgroup_1d import Workgroup1D
from webmm.kernels.gemm.workgroup_2d import Workgroup2D
from webmm.kernels.quantized.matrix_unit import MatrixUnit as ByteUnit
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.traffic import loads_per_fma
from webmm.kernels.weights.cpu_lanes import CpuLanes as WeightLanes
from webmm.kernels.weights.matrix_unit import MatrixUnit as WeightUnit
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.problems.gemm import gemm
from webmm.problems.product import transposes

H200 = tables.shipped()["nvidia-h200"]


def device(name="NVIDIA H200", kind="discrete", engine="wgpu", able=ABLE):
    info = SimpleNamespace(name=name, kind=kind, driver="1")
    return SimpleNamespace(info=info, engine=SimpleNamespace(name=engine, version=lambda: engine), capabilities=able)


def predicted(problem, gpu):
    return ranked(COLUMNS[problem.op], problem, gpu, "cached")


def drawn(count):
    """Yield `count` random problems, some with few rows, few columns or a long k."""
    source = random.Random(7)
    ranges = ((1, 16), (17, 300), (300, 5000))
    for _ in range(count):
        m, n, k = (source.randint(*source.choice(ranges)) for _ in range(3))
        yield gemm(m, n, k * source.choice((1, 1, 20)), **transposes(source.choice(("nn", "nt", "tn", "tt"))))


# Predictions


def test_candidates_are_valid_and_the_best_can_run():
    for problem in drawn(60):
        kernels = list(field(problem, 132))
        assert len(set(kernels)) == len(kernels) > 0
        assert [str(k) for k in kernels if k.invalid()] == []
        for kernel, us, limit in H200.best(kernels, problem)[:4]:
            assert kernel.check(problem, ABLE) is None, (problem, kernel)
            assert us > 0
            assert limit in model.LIMITS


def test_predictions_are_deterministic():
    for problem in drawn(10):
        assert predicted(problem, device()) == predicted(problem, device())
        assert len(predicted(problem, device())[0]) in (LIKELY, LIKELY + 1)  # one more without scratch buffers


def test_kernels_beyond_a_limit_are_not_among_the_likely_ones():
    small = dataclasses.replace(ABLE, limits={**ABLE.limits, "max-compute-invocations-per-workgroup": 128})
    for problem in drawn(20):
        likely, _ = predicted(problem, device(able=small))
        assert likely
        assert all(kernel.invocations <= 128 for kernel, _ in likely)


@pytest.mark.parametrize("op", ["gemm", "quantized", "weights:4bit-32"])
@pytest.mark.parametrize(
    "where",
    [("NVIDIA H200", "discrete"), ("Apple M2", "integrated"), ("AMD Radeon RX 7900", "discrete"), ("a GPU", "other")],
)
def test_the_work_of_every_candidate_is_counted(op, where):
    row = op_of(op)
    units = dataclasses.replace(ABLE, features=frozenset({"shader-f16"}), matrix_shapes=FRAGMENTS)
    for size in ((64, 64, 64), (5, 4096, 4096), (3000, 20, 500)):
        for dtype in row.dtypes:
            if dtype.itemsize <= 4:
                likely, _ = predicted(row.problem(size, dtype.name, "nn"), device(*where, able=units))
                assert all(us.startswith("predicted ") for _, us in likely)
                assert likely


def test_only_records_of_almost_the_same_shape_precede_predictions():
    def first(*sizes):
        return next(iter(candidates(gemm(*sizes), device()).items()))

    assert first(4096, 4096, 4096)[1].startswith("shipped for this adapter at 4096×4096×4096")
    assert first(4096, 4096, 4080)[1].startswith("shipped for this adapter at 4096×4096×4096")
    assert first(4096, 4096, 3800)[1].startswith("predicted ")
    assert first(1540, 1536, 1536)[1].startswith("shipped for this adapter at 1536×1536×1536")
    assert first(1536, 1538, 1536)[1].startswith("predicted ")  # n is no multiple of 4: no vec4 loads
    assert "portable default" in candidates(gemm(4096, 4096, 4096), device(), "off").values()
    assert not any("predicted" in why for why in candidates(gemm(99, 4096, 4096), device(), "off").values())


@pytest.mark.parametrize(
    ("gpu", "fitted"),
    [
        (device(), True),
        (device("NVIDIA A"), True),
        (device("nvidia-h200", engine="dawn"), True),
        (device("llvmpipe (LLVM 19.1, 512 bits)", kind="cpu"), True),
        (device("AMD Radeon RX 7900"), False),
        (device("SwiftShader", kind="cpu"), False),
    ],
)
def test_what_was_fitted_applies_only_to_adapters_of_its_vendor(gpu, fitted):
    assert predicted(gemm(100, 200, 300), gpu)[1] is fitted
    assert bool(adapted.model_of(gpu).families) is fitted


def test_devices_that_were_not_probed_have_the_rates_of_their_kind():
    small, large = (adapted.model_of(device("a GPU", kind)).machine for kind in ("integrated", "discrete"))
    assert small.multiprocessors < large.multiprocessors < H200.machine.multiprocessors
    near = adapted.model_of(device("NVIDIA A"))
    assert near.machine.multiprocessors == large.multiprocessors


def test_near_records_are_used_without_a_model():
    near = tuned.nearest(gemm(3000, 4096, 4096), device())
    assert near
    assert tuned.nearest(gemm(3000, 4096, 4096), device(), near=tuned.SAME) == []


# Counted work


@pytest.mark.parametrize(
    "kernel",
    [
        Pipelined(),
        Pipelined(bm=32, bn=32, tm=4, tn=4),
        SplitK(slices=2),
        SplitK(slices=1, splits=4),
        SplitK(bm=16, bn=16, tm=4, tn=4, bk=8, unroll=8, slices=8, splits=2),
        Gemv(tj=8),
        Gemv(lanes=16, ti=2, tj=4),
        Naive(),
        Workgroup1D(),
        Workgroup2D(),
        Tile1D(),
        Tile2D(tm=8),
        Shared(),
        Vectorized(),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_multiplication_is_counted_once(kernel, layout):
    problem = gemm(512, 1024, 2048, batch=3, **transposes(layout))
    t = kernel.traffic(problem)
    assert t.fmas * t.invocations * t.steps * t.workgroups == 3 * 512 * 1024 * 2048
    assert t.waste == 1
    assert loads_per_fma(t) > 0


@pytest.mark.parametrize(
    ("kernel", "op", "dtype", "per_fma"),
    [
        (MatrixUnit(), "gemm", "float16", 1),
        (MatrixUnit(bk=64, slices=2, splits=4), "gemm", "float16", 1),
        (CpuLanes(), "gemm", "float32", 1),
        (CpuTexture(tn=16), "gemm", "float32", 1),
        (Packed(), "quantized", "int8", 4),  # products of bytes
        (Packed(splits=4), "quantized", "int8", 4),
        (ByteUnit(), "quantized", "int8", 1),
        (Tiles(), "weights:4bit-32", "float32", 1),
        (Vector(tm=8, unroll=2), "weights:4bit-32", "float32", 1),
        (Vector(tm=2), "weights:8bit-32", "float32", 1),
        (WeightUnit(), "weights:4bit-32", "float16", 1),
        (WeightLanes(), "weights:4bit-32", "float32", 1),
    ],
    ids=str,
)
def test_every_multiplication_of_other_stages_is_counted_once(kernel, op, dtype, per_fma):
    problem = op_of(op).dense((512, 1024, 2048, 1), dtype, "" if op != "gemm" and "weights" in op else "nn")
    t = kernel.traffic(problem)
    assert per_fma * t.fmas * t.invocations * t.steps * t.workgroups == 512 * 1024 * 2048
    assert t.vector_loads + t.scalar_loads + t.texels > 0
    assert t.waste == 1
    assert t.read >= 512 * 2048 * problem.dtype.itemsize


@pytest.mark.parametrize(
    ("kernel", "loads"),  # per FMA of four elements
    [
        (Naive(), 8),
        (Workgroup1D(), 8),
        (Workgroup2D(), 8),
        (Tile1D(), 5),
        (Tile2D(), 2),
        (Tile2D(tm=8), 1.5),
        (Shared(), 8 + 8 / 16),
        (Vectorized(), 1.25 + (16 * 32 + 32 * 64) / 4 / 256 / 32),
    ],
    ids=str,
)
def test_loads_per_fma_of_each_stage(kernel, loads):
    assert loads_per_fma(kernel.traffic(gemm(512, 512, 512))) == pytest.approx(loads)


def test_traffic_of_a_tile():
    t = Pipelined().traffic(gemm(64, 128, 32))
    assert (t.workgroups, t.invocations, t.steps, t.fmas) == (1, 128, 2, 16 * 64)
    assert (t.vector_loads, t.scalar_loads) == ((64 + 128) * 16 / 4 / 128, 0)
    assert t.loaded * t.steps == t.read == 4 * (64 * 32 + 32 * 128)
    assert t.written == 4 * 64 * 128
    assert t.vector_stores * 4 * t.invocations == 64 * 128
    odd = Pipelined().traffic(gemm(64, 127, 31))
    assert (odd.vector_loads, odd.scalar_loads) == (0, (64 + 128) * 16 / 128)
    assert odd.waste == 128 / 127
    divided = SplitK(slices=1, splits=2).traffic(gemm(64, 128, 64))
    assert (divided.workgroups, divided.steps, divided.written) == (2, 2, 2 * 4 * 64 * 128)
    total = SumSplits(2).traffic(gemm(64, 128, 64))
    assert (total.read, total.written) == (divided.written, divided.written / 2)


# JSON


def test_a_model_survives_a_round_trip_through_json():
    assert tables.from_json(tables.to_json(H200, adapter="any")) == H200


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match=r"this is not a webmm\.model/2 document"):
        tables.from_json('{"schema": "webmm.records/1", "records": []}')
