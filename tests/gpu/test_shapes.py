"""Every stage × dtype over shapes that expose boundary errors: whole numbers exactly, fractions within the bound."""

import pytest
from products import check, named, runs, small

from tests.sampled import crossed, sampled
from webmm.kernels import LADDER
from webmm.kernels.gemm.blocked import Blocked, RegisterTiled
from webmm.problems.gemm import gemm

# Sizes are (m, n, k). The stages' default tiles are 1, 16 and 64 along M; 1, 16, 64 and 128 along N; 16 and 32 along K;
# 256 elements of the flattened C. Products are small, since a CPU runs the first stages at 0.1 GFLOP/s. If one
# dimension varies, the others are odd, since every mix of aligned and ragged dimensions compiles another shader.
SHAPES = [
    # the smallest, and one dimension at a time
    *[(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)],
    # primes
    *[(7, 11, 13), (17, 19, 23), (31, 37, 29), (61, 67, 71), (97, 89, 41)],
    # one below, at and above the tiles along M
    *[(15, 17, 17), (16, 17, 17), (17, 17, 17), (63, 17, 17), (64, 17, 17), (65, 17, 17), (127, 17, 9), (128, 17, 9)],
    *[(129, 17, 9)],
    # … along N
    *[
        (17, 15, 17),
        (17, 16, 17),
        (17, 63, 17),
        (17, 64, 17),
        (17, 65, 17),
        (17, 127, 17),
        (17, 128, 17),
        (17, 129, 17),
    ],
    # … along K
    *[(19, 21, 15), (19, 21, 16), (19, 21, 31), (19, 21, 32), (19, 21, 33), (19, 21, 47), (19, 21, 48), (19, 21, 49)],
    # … of the flattened C
    *[(5, 51, 3), (17, 15, 3), (1, 257, 3), (3, 171, 3)],
    # whole tiles in every dimension, which have no guards, and one more in every dimension
    *[(64, 128, 32), (128, 256, 64), (192, 128, 160), (65, 129, 33)],
    # several tiles, K = 1 and short K
    *[(150, 150, 1), (129, 257, 1), (130, 261, 2), (67, 133, 3)],
    # skinny
    *[(1, 301, 303), (301, 1, 303), (1, 1, 2001), (2, 501, 5), (501, 2, 5), (1, 1001, 1), (1001, 1, 1)],
    # around a thousand, including multiples of four
    *[(1000, 8, 12), (8, 1000, 12), (9, 8, 1000), (1001, 7, 9), (9, 1001, 7), (7, 9, 1001), (997, 11, 10)],
    *[(11, 1009, 10), (10, 11, 1013), (1023, 5, 3), (5, 1025, 3), (333, 257, 29)],
]


def test_there_are_at_least_forty():
    assert len(set(SHAPES)) == len(SHAPES) >= 40


LARGE = (130, 261, 35)  # several default tiles of each stage, ragged; test_tunables.py has whole ones


@pytest.mark.parametrize(("cls", "dtype"), crossed(LADDER, ["float32", "float16"], step=2), ids=named)
def test_shapes(device, cls, dtype):
    """A part of the shapes, with others in the next stage; small tiles if others take long to compile."""
    kernel, shares = small(cls), issubclass(cls, RegisterTiled) and cls is not Blocked
    step = (5 if shares else 3) + 2 * (dtype == "float16")
    for seed, (m, n, k) in enumerate(SHAPES[LADDER.index(cls) % step :: step]):
        problem = gemm(m, n, k, dtype=dtype)
        if runs(device, kernel, problem):
            check(device, kernel, problem, seed)


@pytest.mark.parametrize("cls", sampled([cls for cls in LADDER if small(cls) != cls()], 6, 1), ids=lambda cls: cls.name)
def test_default_tiles(device, cls):
    check(device, cls(), gemm(*LARGE))
