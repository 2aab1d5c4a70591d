"""What the ladder and the Explain panel are about: an op's stages, its problems of a few sizes, and what computes them.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from webmm.dtypes import FLOATS
from webmm.kernels import STAGES, kernel_class
from webmm.kernels.base import Kernel
from webmm.page.browser import Browser, fitted, floats_of, refused, stage_for
from webmm.page.labels import size_of
from webmm.page.rows import Shown
from webmm.page.stages import offered
from webmm.page.tables import Step, step
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
UNEVEN = (333, 257, 129)  # divided by no tile
QUICK = 2e7  # operations per GFLOP/s of a quick product: 20 ms


@dataclass(frozen=True, eq=False)
class Subject:
    """An op: `steps` of its ladder, which `kernels` computes a problem with, and all its `stages`.

    Sizes, with their words, and element types are options of lists; `usual` returns the places of the sizes to begin
    with, of the ladder and of a stage, for a device on which a product has this speed, or 0. `checked` tells whether
    the page can run and check the stages.
    """

    op: str
    steps: Sequence[Step]
    stages: Sequence[str]
    first: str
    sizes: Sequence[tuple[str, str]]
    usual: Callable[[float], tuple[int, int]]
    dtypes: Sequence[str]
    problem: Callable[[str, str], Problem]
    kernel: Callable[[str, Problem], Kernel[Any]]
    kernels: Callable[[Problem], Sequence[Kernel[Any]]]
    checked: bool = True


class Task(NamedTuple):
    """The sizes of a problem, as records have them."""

    op: str
    m: int
    n: int
    k: int


def _size(problem: Problem) -> str:
    m, n, k, _ = problem.sizes
    return size_of(Task(problem.op, m, n, k))


def _usual(browser: Browser, count: int) -> Callable[[float], tuple[int, int]]:
    """Return the places of the sizes to begin with, of `count`: those of a CPU are small."""
    second = min(1, count - 1)
    places = (second, 0) if browser.info.kind == "cpu" else (count - 1, second)
    return lambda speed: places


def products(browser: Browser) -> Subject:
    """Return floating-point matrix products, which JavaScript checks."""
    stages = [cls.name for cls in offered()]
    known: dict[str, tuple[int, int, int]] = {str(n): (n, n, n) for n in SIZES}
    known["×".join(map(str, UNEVEN))] = UNEVEN
    first, small = (256, 128) if browser.info.kind == "cpu" else (1024, 1024)

    def problem(size: str, dtype: str) -> Problem:
        m, n, k = known[size]
        return gemm(m, n, k, dtype=dtype)

    def usual(speed: float) -> tuple[int, int]:
        return quick(speed) if speed else SIZES.index(first), SIZES.index(small)

    return Subject(
        "gemm",
        [step("gemm", name, name, "", "") for name in stages],
        stages,
        "pipelined",
        [(size, _size(problem(size, FLOATS[0].name))) for size in known],
        usual,
        floats_of(browser),
        problem,
        lambda stage, problem: stage_for(stage, None, browser),
        lambda problem: [stage_for(stage, problem, browser) for stage in stages],
    )


def quick(gflops: float) -> int:
    """Return the place of the largest size that takes at most 20 ms at this rate, but the last."""
    return max(1, len([n for n in SIZES[:-1] if 2 * n**3 <= gflops * QUICK]) - 1)


def label_of(kernel: Kernel[Any]) -> str:
    """Return what distinguishes a kernel on a prepared ladder."""
    return f"{kernel.name} emulated" if kernel.config.get("dot") == "emulated" else kernel.name


def rungs(kernels: Sequence[Kernel[Any]], problem: Problem, browser: Browser) -> list[Kernel[Any]]:
    """Return the stages of a prepared ladder: of kernels with equal labels, for different subgroup sizes, one each.

    It is the first that can run, or else the first.
    """
    variants: dict[str, list[Kernel[Any]]] = {}
    for kernel in kernels:
        made = fitted(kernel, problem, browser)
        variants.setdefault(label_of(made), []).append(made)
    return [
        next((kernel for kernel in each if refused(kernel, problem, browser) is None), each[0])
        for each in variants.values()
    ]


def prepared(
    problems: Sequence[Problem], kernels: Sequence[Sequence[Kernel[Any]]], others: Sequence[str], browser: Browser
) -> Subject:
    """Return the problems of a prepared ladder whose element type the device has.

    `kernels` are those of each problem, `others` stages that are in none of the ladders. Types that no browser has,
    such as float64, are made of integers.
    """
    floats, supported = [dtype.name for dtype in FLOATS], floats_of(browser)
    able = [each for each in problems if each.dtype.name not in floats or each.dtype.name in supported]
    first = able[0]
    dtypes = list(dict.fromkeys(each.dtype.name for each in able))
    sizes = list(dict.fromkeys(_size(each) for each in able))

    def ladder(problem: Problem) -> list[Kernel[Any]]:
        return rungs(kernels[problems.index(problem)], problem, browser)

    def kernel(stage: str, problem: Problem) -> Kernel[Any]:
        found = next((each for each in ladder(problem) if each.name == stage), None)
        return found or fitted(kernel_class(stage, first.op)(), problem, browser)

    run = ladder(first)
    return Subject(
        first.op,
        [step(first.op, each.name, label_of(each), each.summary, dtypes[0]) for each in run],
        list(dict.fromkeys((*(each.name for each in run), *others))),
        run[-1].name,
        [(size, size) for size in sizes],
        _usual(browser, len(sizes)),
        dtypes,
        lambda size, dtype: next(each for each in able if _size(each) == size and each.dtype.name == dtype),
        kernel,
        ladder,
    )


def exhibited(shown: Shown, row: Any, browser: Browser) -> Subject:
    """Return stages of an op on problems with random inputs, which its row makes and checks."""
    op, exhibit = shown.op, shown.exhibit
    lengths = exhibit.sizes["cpu" if browser.info.kind == "cpu" else "gpu"]
    stages = list(exhibit.stages) or list(STAGES[op])

    def problem(size: str, dtype: str) -> Problem:
        made: Problem = row.problem(lengths[int(size)], dtype)
        return made

    def kernel(stage: str) -> Kernel[Any]:
        made: Kernel[Any] = kernel_class(stage, op)()
        return made

    def suits(dtype: str) -> bool:
        return any(kernel(stage).unsuited(problem("0", dtype)) is None for stage in stages)

    return Subject(
        op,
        [step(op, name, name, "", "") for name in stages],
        stages,
        stages[0],
        [(str(i), _size(problem(str(i), FLOATS[0].name))) for i in range(len(lengths))],
        _usual(browser, len(lengths)),
        [dtype for dtype in floats_of(browser) if suits(dtype)],
        problem,
        lambda stage, problem: kernel(stage),
        lambda problem: [kernel(stage) for stage in stages],
        shown.checked,
    )
