"""Tuned records: which of many measurements are kept, and which problems they apply to."""

import collections
import contextlib
import dataclasses
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from webmm import __version__
from webmm.cases import OPS, op_of
from webmm.choose import COLUMNS, tuned
from webmm.choose.field import field
from webmm.errors import ProblemError
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.measure.records import Record, from_json

ROOT = Path(__file__).parents[2]
RECORD = Record("gemm", "pipelined", 512, 512, 512, 1, "float32", "wgpu", "a", "Vulkan", "1", "0", Pipelined().config)


def split_record(us):
    return dataclasses.replace(RECORD, kernel="split_k", config=SplitK(splits=4).config, median_us=us)


def test_scratch_memory_must_gain_two_percent():
    plain = dataclasses.replace(RECORD, median_us=100.0)
    for us, kept in ((99.0, plain), (97.0, split_record(97.0))):
        for records in ([plain, split_record(us)], [split_record(us), plain]):
            assert tuned.fastest(records) == [kept]


def test_failures_and_cpu_records_are_not_kept():
    numpy = dataclasses.replace(RECORD, kernel="cpu", config={}, median_us=1.0)
    assert tuned.fastest([numpy, dataclasses.replace(RECORD, status="incorrect")]) == []


def test_published_records_are_not_refused():
    files = [*(ROOT / "bench" / "results").glob("*.json"), *(ROOT / "leaderboard").glob("*.json")]
    published = []
    for file in files:
        with contextlib.suppress(ProblemError):  # other documents
            published += from_json(file.read_text(), lambda complaint: None)
    assert len(published) > 1000
    assert [reason for record in published if (reason := tuned.refusal(record))] == []
    shipped = sum(len(from_json(file.read_text())) for file in tuned.SHIPPED.glob("*.json"))
    assert len(tuned.shipped()) == shipped > 0


SHAPES = [MatrixShape("f16", "f32", m, n, k) for m, n, k in ((8, 8, 8), (8, 16, 16), (16, 16, 16))]
SHAPES += [MatrixShape(i8, i32, 16, 16, 32) for i8, i32 in (("i8", "i32"), ("u8", "u32"))]


@pytest.mark.parametrize("op", OPS)
def test_the_choice_makes_no_kernel_whose_record_is_refused(op):
    rng = random.Random(op)
    for _ in range(60):
        limits, features = collections.defaultdict(lambda: 2**30), {"shader-f16", *rng.choice([(), ("shader-f64",)])}
        lanes, shapes = rng.choice([0, 4, 8, 16, 32, 64, 128]), rng.choice([(), rng.sample(SHAPES, 3)])
        able = Capabilities("a", limits, frozenset(features), 0, lanes, frozenset(shapes), "", rng.choice([0, 40, 600]))
        info = SimpleNamespace(name="a", kind=rng.choice(["discrete", "cpu"]))
        device = SimpleNamespace(info=info, capabilities=able, engine=HERE.engine)
        m, n, k = (int(2 ** rng.uniform(0, 15)) for _ in range(3))
        size = {"elementwise": (1, n, 1), "reduce": (m, n, 1), "normalise": (m, n, 1)}.get(op, (m, n, k))
        problem = OPS[op].problem(size, rng.choice(OPS[op].dtypes).name)
        made = [*COLUMNS[op].candidates(problem, device), *(field(problem, 132) if op == "gemm" else ())]
        assert [reason for kernel in made if (reason := tuned.untried(kernel))] == []


HERE = SimpleNamespace(info=SimpleNamespace(name="a", driver="1"), engine=SimpleNamespace(name="wgpu"))


def record_of(problem, kernel, us=10.0):
    """Return a record of `kernel` on `problem`, measured here."""
    p, (m, n, k, batch) = problem, problem.sizes
    return Record(
        *(p.op, kernel.name, m, n, k, batch, p.dtype.name, "wgpu", "a", "Vulkan", "1", __version__),
        *(kernel.config, p.layout, p.variant),
        median_us=us,
        gflops=1e3 / us,
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("op", OPS)
def test_a_record_applies_to_similar_sizes(op):
    kernel = list(STAGES[op].values())[-1]()
    dtype = OPS[op].dtypes[0]
    tuned.add([record_of(OPS[op].problem((96, 1024, 256), dtype), kernel)])
    near = OPS[op].problem((100, 1024, 256), dtype)
    assert tuned.nearest(near, HERE)[0][0] == kernel
    assert tuned.covered(near, HERE)
    far, other = OPS[op].problem((96, 2**20, 256), dtype), OPS[op].problem((100, 1024, 256), OPS[op].dtypes[1])
    assert tuned.nearest(far, HERE) == tuned.nearest(other, HERE) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("op", [op for op in OPS if OPS[op].variants])
def test_variants_have_separate_records(op):
    first, second, *_ = (op_of(op, variant).problem((64, 1024, 64), "float32") for variant in OPS[op].variants)
    fast, slow = (
        dataclasses.replace(record_of(first, STAGES[op][name]()), median_us=us)
        for name, us in ((next(iter(STAGES[op])), 5.0), (list(STAGES[op])[-1], 9.0))
    )
    other = dataclasses.replace(slow, variant=second.variant)
    assert tuned.fastest([slow, fast, other]) == [fast, other]
    tuned.add([fast, other])
    assert tuned.nearest(first, HERE)[0][0] == tuned.kernel_of(fast)
    assert tuned.nearest(second, HERE)[0][0] == tuned.kernel_of(other)
    tuned.clear()
    tuned.add([fast])
    assert tuned.nearest(second, HERE) == []
    assert not tuned.covered(second, HERE)


@pytest.mark.parametrize("op", OPS)
def test_kernel_of_finds_kernels_of_every_op(op):
    problem = OPS[op].problem((64, 64, 64), OPS[op].dtypes[0])
    for stage in STAGES[op].values():
        assert tuned.kernel_of(record_of(problem, stage())) == stage()


@pytest.mark.usefixtures("folder")
def test_engines_have_separate_records_and_dawn_uses_the_pages():
    problem = OPS["gemm"].problem((512, 512, 512), "float32")
    wgpu, dawn = (record_of(problem, kernel) for kernel in (Pipelined(), SplitK(splits=4)))
    tuned.add([wgpu, dataclasses.replace(dawn, engine="WebGPU with Dawn", adapter="A", driver="of a browser")])
    dawn_device = SimpleNamespace(info=SimpleNamespace(name="a", driver="1"), engine=SimpleNamespace(name="dawn"))
    assert tuned.nearest(problem, HERE)[0][0] == Pipelined()
    assert tuned.nearest(problem, dawn_device)[0][0] == SplitK(splits=4)
    assert tuned.covered(problem, HERE)
    assert not tuned.covered(problem, dawn_device), "a browser reports another driver name"


@pytest.mark.usefixtures("folder")
def test_matrix_units_beat_records_of_other_drivers():
    problem = OPS["gemm"].problem((4096, 4096, 4096), "float16")
    mine = record_of(problem, Pipelined())
    tuned.add([dataclasses.replace(mine, driver="another")])
    assert tuned.nearest(problem, HERE)[0][0] == Pipelined()
    assert tuned.nearest(problem, HERE, units=True) == []
    tuned.add([mine])
    assert tuned.nearest(problem, HERE, units=True)[0][0] == Pipelined(), (
        "a record of this driver was measured against matrix units"
    )
