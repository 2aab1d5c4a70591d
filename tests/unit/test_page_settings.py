"""What the page's panels work out of kernels and records, and views of arrays as webmm.js makes them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

from webmm.arguments import views
from webmm.arguments.arrays import Layout
from webmm.errors import ProblemError
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.measure.records import Record
from webmm.page import runs, settings

ABOUT = {"dtype": "float32", "engine": "e", "adapter": "a", "backend": "", "driver": "", "version": ""}


def record(kernel: str, m: int, gflops: float | None, **more: str) -> Record:
    return replace(Record("gemm", kernel, m, m, m, 1, **ABOUT, gflops=gflops), **more)  # type: ignore[arg-type]


def test_the_nearest_kernel_has_the_value_and_else_the_fewest_changes() -> None:
    kernel = Pipelined(unroll=16)
    assert settings.offered(kernel, "bk") == [8, 16, 32]
    assert settings.offered(replace(kernel, bk=64), "bk") == [8, 16, 32, 64]
    assert settings.offered(kernel, "order") == ["serpentine", "rows"]
    assert settings.nearest(kernel, "tm", 4, None) == replace(kernel, tm=4)
    assert settings.nearest(kernel, "bk", 8, None) == replace(kernel, bk=8, unroll=8)  # 16 does not divide 8
    far, near = replace(kernel, unroll=8, bm=32), replace(kernel, unroll=1)
    assert settings.nearest(kernel, "bk", 8, [far, near]) == replace(near, bk=8)
    assert settings.nearest(kernel, "bk", 8, [kernel]) == kernel
    assert settings.neighbours(kernel)
    assert all(each.invalid() is None for each in settings.neighbours(kernel))


def test_a_search_tries_the_defaults_and_then_what_is_near_the_best() -> None:
    best = Tile2D()
    left = [Naive(), replace(best, tm=1, wx=1), replace(best, tm=1)]
    assert settings.upcoming(left, None, 5) == 0
    assert settings.upcoming(left, best, 2) == 0
    assert settings.upcoming(left, best, 4) == 2
    assert settings.upcoming(left, best, 6) == 6 * 7919 % 3


def test_runs_on_the_same_problems_are_compared_and_else_those_of_the_same_kernels() -> None:
    new, sizes, same, others = (
        runs.Run(name, [record(kernel, m, gflops) for kernel, m, gflops in rows])
        for name, rows in (
            ("new", [("naive", 64, 1.0), ("naive", 64, 3.0), ("shared", 64, None)]),
            ("sizes", [("naive", 128, 2.0)]),
            ("same", [("naive", 64, 6.0)]),
            ("others", [("gemv", 64, 1.0)]),
        )
    )
    assert runs.likely([new, others, sizes, same], lambda r: r.size) == "same"
    assert runs.likely([new, others, sizes], lambda r: r.size) == "sizes"
    assert [runs.likely(some, lambda r: r.size) for some in ([new, others], [new], [])] == ["others", "new", ""]
    exact, pairs = runs.compared(new, same, lambda r: r.size)
    assert exact
    assert [[r and r.gflops for r in pair] for pair in pairs] == [[3.0, 6.0], [None, None]]
    assert not runs.compared(new, sizes, lambda r: r.size)[0]


def test_gains_outcomes_and_changes_in_words() -> None:
    records = [record("naive", 8, 1.0), record("shared", 64, 5.0), record("naive", 64, 2.0), record("naive", 64, 4.0)]
    assert [r.gflops for r in runs.gained(records, "gemm", ["shared", "naive"], lambda r: r.size)] == [5.0, 4.0]
    assert runs.gained(records, "reduce", ["shared"], lambda r: r.size) == []
    failed = record("gemv", 8, None, status="timeout")
    assert [r.kernel for r in runs.outstanding([failed, *records])] == ["shared", "naive", "naive", "naive", "gemv"]
    assert runs.outcomes([failed, *records], lambda r: r.size).startswith("Outcomes for 8×8×8: 1 timeout, 4 ok.")
    assert runs.change("// C\n// Changed from x: y\n// and z.\n// Dispatch 1\n") == "Changed from x: y and z."
    assert "reached 9 GFLOP/s" in runs.traffic("naive", 0.5, 9.0, 8.0)


@dataclass(frozen=True)
class Strided:
    """An array on a device, as far as views need it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: str = "int64"
    mT: object = None  # noqa: N815 (NumPy's name)

    @property
    def ndim(self) -> int:
        return len(self.shape)


@pytest.mark.parametrize("shape", [(5, 6, 7), (1, 4)])
def test_views_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    host = np.arange(np.prod(shape)).reshape(shape)
    x = Strided(shape, tuple(stride // 8 for stride in host.strides))

    def check(layout: Layout, expected: np.ndarray) -> None:
        start, strides = host.reshape(-1)[min(layout.offset, host.size - 1) :], [8 * each for each in layout.strides]
        assert layout.shape == expected.shape
        assert (np.lib.stride_tricks.as_strided(start, layout.shape, strides) == expected).all()

    ends = (None, 0, 2, -1, -9, 9)
    for start, stop, step in itertools.product(ends, ends, (None, 1, 2, -1, -3)):
        check(views.sliced(x, [0, (start, stop, step)]), host[0, slice(start, stop, step)])
    check(views.transposed(x, []), host.T)
    check(views.transposed(x, [*range(len(shape) - 2), -1, -2]), host.swapaxes(-1, -2))
    if shape[0] == 1:
        check(views.broadcast(x, (2, 3, 4)), np.broadcast_to(host, (2, 3, 4)))
    for wrong in (
        lambda: views.sliced(x, [9]),
        lambda: views.broadcast(x, (8, 8, 8)),
        lambda: views.transposed(x, [0]),
    ):
        with pytest.raises(ProblemError):
            wrong()
