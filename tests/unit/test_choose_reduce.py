"""What the model of cost takes for reductions and normalisations, on able devices and at WebGPU's default limits."""

import dataclasses
import itertools

import pytest
from test_choose_fields import ABLE, LIMITS, likely, on

from webmm.choose import COLUMNS
from webmm.dtypes import F32, I32
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction, Span

SHAPES = [(64, 256, 1024), (2, 300, 30000), (1, 20000, 64), (100, 8192, 1), (8, 60000, 1), (2, 10_000_000, 1)]
SMALL = {
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-storage-size": 16_384,
}


def problems(outer, length, inner):
    x = Span.dense(length, inner)
    yield Reduction("sum", outer, length, inner, F32, F32, x)
    yield Reduction("argmax", outer, length, inner, F32, I32, x)
    yield Normalisation("logsumexp", outer, length, inner, F32, F32, x, function="softmax")


@pytest.mark.parametrize(("shape", "lanes"), [*itertools.product(SHAPES, (0, 8, 32, 64))])
def test_some_kernels_run_at_the_default_limits(shape, lanes):
    able = dataclasses.replace(ABLE, limits={**LIMITS, **SMALL}, subgroup_size=lanes)
    for problem in problems(*shape):
        made = likely(problem, on(able, "a GPU", "integrated"))
        assert made
        assert all(kernel.check(problem, able) is None and kernel.invocations <= 256 for kernel in made)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_field_is_valid_and_its_work_is_counted(shape):
    for problem in problems(*shape):
        kernels = list(COLUMNS[problem.op].field(problem, on(), 132))
        assert len(set(kernels)) == len(kernels) > 1
        for kernel in kernels:
            assert kernel.invalid() is None, kernel
            for step in kernel.dispatches:
                assert step.traffic(problem).read > 0


def test_long_rows_and_columns_are_split_if_there_are_few():
    for sizes, least in (((1, 50_000_000, 1), 64), ((1, 300_000, 641), 8)):
        for problem in problems(*sizes):
            assert likely(problem, on())[0].splits >= least, problem
    for sizes in ((4096, 4096, 1), (64, 512, 4096)):
        for problem in problems(*sizes):
            assert likely(problem, on())[0].splits == 1, problem


@pytest.mark.parametrize("shape", [(1000, 300, 1), (1000, 3000, 1), (20, 400, 60)])
def test_every_element_is_read_and_written_in_the_counts(shape):
    outer, length, inner = shape
    for problem in problems(*shape):
        for kernel in COLUMNS[problem.op].field(problem, on(), 132):
            work = [step.traffic(problem) for step in kernel.dispatches]
            assert max(t.read for t in work) >= 4 * outer * length * inner
            assert work[-1].written == problem.bytes - 4 * outer * length * inner
            for t in work:
                assert t.workgroups * t.invocations * t.steps * t.loaded > 0
                assert t.waste >= 1


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12, 100, 70_000])
@pytest.mark.parametrize("inner", [1, 2, 4, 6, 30, 181, 90_000])
def test_no_field_is_empty(length, inner):
    for lanes in (0, 8, 32):
        able = dataclasses.replace(ABLE, limits={**LIMITS, **SMALL}, subgroup_size=lanes)
        for problem in problems(3 if length * inner < 2**25 else 1, length, min(inner, 2**27 // length)):
            field = list(COLUMNS[problem.op].field(problem, on(able), 24))
            assert any(kernel.check(problem, able) is None for kernel in field), problem
