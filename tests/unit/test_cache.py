"""Tuned records: which of many measurements are kept, and which problems they apply to."""

import dataclasses
from types import SimpleNamespace

import pytest

from webmm import __version__
from webmm.cases import OPS, op_of
from webmm.choose import tuned
from webmm.kernels import STAGES
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.split_k import SplitK
from webmm.records import Record

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
