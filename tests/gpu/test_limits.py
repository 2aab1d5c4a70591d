"""Limits of engines on loops, grids and memory: beyond them, a result is right or refused, never wrong."""

import re

import pytest
from products import check_exactly, other_stages, runs, small, smallest, view

from tests.sampled import sampled
from webmm.errors import UnsupportedError
from webmm.kernels import LADDER
from webmm.kernels.base import LOOP_LIMIT, MAX_WORKGROUPS
from webmm.kernels.gemm.blocked import Blocked, RegisterTiled
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.persistent import Persistent
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.vectorized import Vectorized
from webmm.problems.gemm import gemm

# Long k: Mesa stops an invocation's loops after 65,535 iterations in total


@pytest.mark.parametrize(
    ("cls", "dtype"),
    [
        *sampled([(cls, "float32") for cls in LADDER], 3, 2),  # the fewest with every way to sum: gemv is the last
        *sampled([(Shared, "float16"), (Pipelined, "float16")], 2, 1),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_k_of_100_003(device, cls, dtype):
    problem = gemm(3, 5, 100_003, dtype=dtype)
    kernel = small(cls, unroll=8) if issubclass(cls, RegisterTiled) else small(cls)  # with 1, the steps are too many
    for each in (cls(), kernel):
        assert each.check(problem, device.capabilities) is None or dtype == "float16"
    if runs(device, kernel, problem):
        check_exactly(device, kernel, problem)


@pytest.mark.parametrize("cls", sampled([cls for cls in LADDER if cls().inner_step == 1]), ids=lambda cls: cls.name)
def test_k_around_the_loop_limit(device, cls):
    for k in (LOOP_LIMIT, LOOP_LIMIT + 1):  # the last that one loop takes, and the first that needs a nested one
        check_exactly(device, cls(), gemm(2, 3, k))


def longest(kernel, m, n, device):
    """Return the largest K, up to 2^20, that the kernel accepts."""
    accepted, refused = 1, 2**20 + 1
    while refused - accepted > 1:
        k = (accepted + refused) // 2
        if kernel.check(gemm(m, n, k), device.capabilities) is None:
            accepted = k
        else:
            refused = k
    return accepted


LONG = [
    [Naive()],
    [Shared(8), Shared(16)],
    [Vectorized(8, 128, 16), Vectorized(8, 32, 16), Vectorized(16, 64, 32), Vectorized(32, 32, 32)],
    [small(Blocked, unroll=4), small(Blocked), small(Blocked, unroll=8)],
    [small(Pipelined, bk=16), small(Pipelined, prefetch="workgroup")],
    [small(Persistent), small(Persistent, bk=16, unroll=8)],
]


@pytest.mark.parametrize("kernel", [each for stage in LONG for each in sampled(stage, len(stage))], ids=str)
def test_the_longest_accepted_k(device, kernel):
    k = longest(kernel, 1, 1, device)
    check_exactly(device, kernel, gemm(1, 1, k))
    if k < 2**20:
        assert not runs(device, kernel, gemm(1, 1, k + 1))


def test_loops_over_tiles_count_towards_the_limit(device):
    kernel = small(Persistent, bm=4, bn=4, bk=4, unroll=4, group=1, workgroups=1)
    for m in (4 * 150, 4 * 1500):
        k = longest(kernel, m, 3, device)
        check_exactly(device, kernel, gemm(m, 3, min(k, 3000)))


def test_loops_beyond_the_limit_are_refused(device):
    kernel, problem = Blocked(bk=8, unroll=1), gemm(3, 5, 100_003)
    if device.capabilities.loop_limit:
        reason = f"needs 125,010 loop iterations, {device.capabilities.name} stops at 65,535"
        assert kernel.check(problem, device.capabilities) == reason
        assert not runs(device, kernel, problem)
    else:
        check_exactly(device, kernel, problem)


# Grids of more than 65,535 workgroups


@other_stages(0)  # the others: test_mutations.py
def test_folded_grids(device, cls):
    kernel = smallest(cls)
    tile_m, tile_n = kernel.grid.tile_m, kernel.grid.tile_n
    # 257² tiles are an odd number, so the second row of workgroups has one surplus workgroup. The last tiles are
    # partial, and a gap after each row of C exposes writes past its end.
    problem = view(257 * tile_m - (tile_m > 1), 257 * tile_n - (tile_n > 1), 3, pads=(0, 0, 4))
    assert kernel.grid.tiles(problem) == 66_049 > MAX_WORKGROUPS
    assert kernel.grid.dispatch(problem) == (33_025, 2, 1)
    check_exactly(device, kernel, problem)


def test_persistent_with_any_number_of_workgroups(device):
    problem = view(100, 130, 20, pads=(0, 0, 2), batch=2)
    for workgroups, group in ((1, 1), (1, 8), (7, 8), (1000, 1)):
        check_exactly(device, small(Persistent, workgroups=workgroups, group=group), problem)


def test_pipelined_with_double_buffering(device):
    # Another loop than the default's, with two steps per iteration: even and odd numbers of steps, partial last steps.
    for k in (1, 8, 9, 16, 17, 24, 31, 80):
        check_exactly(device, small(Pipelined, prefetch="workgroup"), view(37, 41, k, pads=(1, 2, 3)))


def test_incomplete_bands_of_tiles(device):
    # Tiles are visited in bands of `group` rows of tiles; the last band has fewer rows.
    for m in (1, 33, 95, 97, 257, 300):
        for cls in (Blocked, Pipelined, Persistent):
            check_exactly(device, small(cls, group=3), gemm(m, 70, 5))


# Memory


def test_a_tile_beyond_workgroup_memory_is_refused(device):
    have = device.capabilities.limit("max-compute-workgroup-storage-size")
    sizes = (Blocked(bm=128, bn=128, bk=bk, unroll=bk) for bk in (16, 32, 64, 128, 256, 512))
    kernel = next(each for each in sizes if each.workgroup_bytes > have and each.invalid() is None)
    assert kernel.check(gemm(8, 8, 8), device.capabilities) == (
        f"needs {kernel.workgroup_bytes:,} bytes of workgroup memory, {device.capabilities.name} has {have:,}"
    )
    assert not runs(device, kernel, gemm(8, 8, 8))


def test_an_array_beyond_a_buffer_is_refused(device):
    limit = device.capabilities.limit("max-buffer-size")
    with pytest.raises(UnsupportedError, match=re.escape(f"the array needs {limit // 16 * 16 + 16:,} bytes")):
        device.empty((limit // 16 * 4 + 1,))
