"""Every stage × dtype over shapes that find boundary errors: exact on whole numbers, within the bound on fractions."""

from products import check, every_dtype, every_stage, runs

from webmm.problem import gemm

# Sizes are (m, n, k). The stages' default tiles are 1, 16 and 64 along M; 1, 16, 64 and 128 along N; 16 and 32 along K;
# 256 elements of the flattened C. Products are small, since a CPU runs the first stages at 0.1 GFLOP/s.
SHAPES = [
    # the smallest, and one dimension at a time
    *[(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)],
    # primes
    *[(7, 11, 13), (17, 19, 23), (31, 37, 29), (61, 67, 71), (97, 89, 41)],
    # one below, at and above the tiles along M
    *[(15, 16, 16), (16, 16, 16), (17, 16, 16), (63, 32, 16), (64, 32, 16), (65, 32, 16), (129, 17, 17)],
    # … along N
    *[(8, 15, 16), (8, 17, 16), (16, 63, 16), (16, 64, 16), (16, 65, 16), (16, 127, 16), (16, 128, 16), (16, 129, 16)],
    # … along K
    *[(20, 20, 15), (20, 20, 16), (20, 20, 17), (20, 20, 31), (20, 20, 32), (20, 20, 33), (20, 20, 48)],
    # … of the flattened C
    *[(5, 51, 3), (16, 16, 3), (1, 257, 3), (3, 171, 2)],
    # whole tiles everywhere, so that no guard is there to help, and one beyond everywhere
    *[(64, 128, 32), (128, 256, 64), (65, 129, 33), (192, 128, 16)],
    # several tiles, K = 1 and short K
    *[(150, 150, 1), (64, 128, 1), (130, 260, 2), (67, 133, 3)],
    # skinny
    *[(1, 300, 300), (300, 1, 300), (1, 1, 2000), (2, 500, 5), (500, 2, 5), (1, 1000, 1), (1000, 1, 1)],
    # around a thousand
    *[(1000, 7, 9), (9, 1000, 7), (7, 9, 1000), (1024, 16, 8), (16, 1024, 8), (8, 16, 1024), (997, 12, 10)],
    *[(12, 1009, 10), (10, 12, 1013), (1023, 5, 4), (5, 1025, 4), (333, 257, 29)],
]


def test_there_are_at_least_forty():
    assert len(set(SHAPES)) == len(SHAPES) >= 40


@every_dtype
@every_stage
def test_shapes(device, cls, dtype):
    kernel = cls()
    for seed, (m, n, k) in enumerate(SHAPES):
        problem = gemm(m, n, k, dtype=dtype)
        if runs(device, kernel, problem):
            check(device, kernel, problem, seed)
