"""k split into few, some and many parts: one, four and sixteen invocations sum the partial sums of an element."""

import numpy as np
import pytest

from tests.sampled import crossed
from webmm import Device
from webmm.kernels.gemm.split_k import SplitK, SumSplits
from webmm.problems.gemm import gemm


@pytest.mark.parametrize(("parts", "n"), crossed([(2, 1), (8, 1), (13, 4), (37, 16)], [5, 24]))
def test_partial_sums_are_summed(device: Device, parts: tuple[int, int], n: int) -> None:
    splits, adders = parts
    assert SumSplits(splits).adders == adders
    problem = gemm(19, n, 8 * 37 - 3, batch=2)
    rng = np.random.default_rng(splits)
    a, b = (rng.integers(-8, 8, (2, *size)).astype(np.float32) for size in ((19, problem.k), (problem.k, n)))
    kernel = SplitK(bm=16, bn=16, bk=8, tm=4, tn=4, unroll=8, slices=1, splits=splits)
    c = device.array(np.full((2, 19, n), np.nan, np.float32))
    device.run(kernel, problem, device.array(a), device.array(b), c)
    np.testing.assert_array_equal(c.numpy(), a @ b)
