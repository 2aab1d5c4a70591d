"""Candidates for reductions and normalisations on devices that support WebGPU's default limits only."""

import itertools
from types import SimpleNamespace

import pytest

from webmm.choose import normalise, reduce
from webmm.dtypes import F32
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction, Span

SHAPES = [(64, 256, 1024), (2, 300, 30000), (1, 20000, 64), (100, 8192, 1), (8, 60000, 1), (2, 10_000_000, 1)]
LIMIT = 256  # invocations per workgroup, WebGPU's default


@pytest.mark.parametrize(("shape", "lanes"), [*itertools.product(SHAPES, (0, 32))])
def test_a_kernel_of_256_invocations_is_among_the_likely_ones(shape, lanes):
    device = SimpleNamespace(capabilities=SimpleNamespace(subgroup_size=lanes), info=SimpleNamespace(kind="discrete"))
    outer, length, inner = shape
    x = Span.dense(length, inner)
    sums = Reduction("sum", outer, length, inner, F32, F32, x)
    softmax = Normalisation("logsumexp", outer, length, inner, F32, F32, x, function="softmax")
    for problem, choose in ((sums, reduce), (softmax, normalise)):
        made = list(choose.candidates(problem, device))
        assert min(kernel.invocations for kernel in made) <= LIMIT
        large = [type(kernel) for kernel in made if kernel.invocations > LIMIT]
        small = [type(kernel) for kernel in made if kernel.invocations <= LIMIT]
        assert set(large) <= set(small), "each stage has smaller workgroups, too"


def test_wide_strips_are_followed_by_narrow_ones_that_are_divided_too():
    """Softmax of long, unaligned columns: where 1024 invocations do not fit, columns are still divided."""
    device = SimpleNamespace(capabilities=SimpleNamespace(subgroup_size=32), info=SimpleNamespace(kind="discrete"))
    x = Span.dense(300_000, 641)
    softmax = Normalisation("logsumexp", 1, 300_000, 641, F32, F32, x, function="softmax")
    wide, narrow, *_ = normalise.candidates(softmax, device)
    assert (wide.invocations, narrow.invocations) == (1024, LIMIT)
    assert min(wide.splits, narrow.splits) > 1
