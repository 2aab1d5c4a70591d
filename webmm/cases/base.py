"""The interface of an op to benchmarks, the self-test and the tuner: stages, sizes, operands, and error bounds."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases.exact import Ladder
from webmm.cases.steps.subject import Subject
from webmm.cases.steps.whole import Whole
from webmm.dtypes import MATRIX_DTYPES, DType
from webmm.engine.device import Array, Device
from webmm.errors import ConfigError, ProblemError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.measure.records import Record
from webmm.measure.roofline import Roofline
from webmm.measure.verify import Wrong
from webmm.problems.base import Extent, Problem
from webmm.text import whole

Size = tuple[int, int, int] | tuple[int, int, int, int]  # m, n, k, and for gemm optionally a batch

P = TypeVar("P", bound=Problem)


class Case(ABC, Generic[P]):
    """A problem with its operands on the device and on the host, and the expected result."""

    problem: P
    inputs: dict[str, Array]  # by the names of the problem's buffers
    scale: str = ""  # the unit of errors, as a suffix in reports, such as ·|A||B|

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest error of a correct kernel."""

    @abstractmethod
    def error(self, got: NDArray[Any]) -> float:
        """Return the error of a kernel's result, given as stored in its buffer; inf if NaN or infinities differ."""

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the wrong elements of a result whose error exceeds the bound; None if they cannot be told apart."""
        del got
        return None

    @abstractmethod
    def numpy(self) -> NDArray[Any]:
        """Compute the problem with NumPy, in the dtype in which NumPy is fast."""

    @abstractmethod
    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of a result of `numpy()`."""


def blank(extent: Extent) -> NDArray[Any]:
    """Return the poison (NaN, or -1 for integers) that fills a result buffer before a kernel writes to it."""
    poison = np.nan if extent.dtype.eps else -1
    return np.full(extent.end, poison).astype(extent.dtype.numpy)


@dataclass(frozen=True)
class Trial:
    """Operands for which every term affects the result: the contents of the buffers by name, and the expected result.

    `expected` has the shape of the result, which is dense and starts at the start of the written buffer; `allowed` is
    the largest permitted error of each element: an infinite one permits anything, NaN included.
    """

    buffers: dict[str, NDArray[Any]]
    expected: NDArray[Any]
    allowed: NDArray[np.float64] | float


def ends(dtype: DType) -> NDArray[Any]:
    """Return the ends of a float's range, and numbers at which functions approach their limits."""
    normal = dtype.tiny / dtype.eps
    sizes = [0.0, dtype.tiny, normal, 0.5, 1.0, 20.0, 90.0, 1e4, (2 - dtype.eps) * 2 / normal, np.inf]
    return np.array([np.nan, *sizes, *(-x for x in sizes)]).astype(dtype.numpy)


@dataclass(frozen=True)
class Exhibit:
    """Stages of an op that the page shows on problems of a few sizes: in the Explain panel, and if checked the ladder.

    `sizes` has those for each kind of adapter, "gpu" and "cpu"; `stages` has the names, "" for a variant and () for
    stages stand for the first one and for all.
    """

    title: str
    sizes: Mapping[str, tuple[Size, ...]]
    variant: str = ""
    stages: tuple[str, ...] = ()


class Op(ABC, Generic[P]):
    """An op, as in `webmm bench --op NAME` or NAME:VARIANT: all that commands and page know of it beyond its kernels.

    The page has its methods PURE and their helpers in JavaScript, so that these must be in the subset of Python that
    docs/page.md describes.
    """

    PURE: ClassVar[frozenset[str]] = frozenset(("problem", "along", "described", "reference", "bound"))

    name: ClassVar[str]
    shape: ClassVar[str] = "N nor MxNxK"  # the forms of a size, for error messages
    result: ClassVar[str] = "C"  # the name of the result, for messages
    indices: ClassVar[int] = 2  # of an element of the result that `webmm debug --at` must name; others are 0
    operator: ClassVar[str] = ""  # how Python spells a call, whose wall clock `webmm bench` shows: A @ B
    unit: ClassVar[str] = "GFLOP/s"
    plotted: ClassVar[bool] = False  # whether the peak is the rate of FMAs: records go on a roofline
    axes: ClassVar[int] = 3  # the sizes m, n, k that a label shows at least: others only if they are not 1
    dtypes: tuple[DType, ...] = MATRIX_DTYPES  # the first is the default
    variants: ClassVar[tuple[str, ...]] = ()  # the variants to list; the first is the default
    tried: ClassVar[tuple[tuple[Size, str], ...]]  # the sizes and layouts that `webmm selftest` computes

    def __init__(self, variant: str = "") -> None:
        self.variant = variant or next(iter(self.variants), "")

    @property
    def stages(self) -> list[type[Kernel[Any]]]:
        """The stages of the ladder; the others are compared with the first one."""
        return list(STAGES[self.name].values())

    def knows(self, variant: str) -> bool:
        """Return whether the op has this variant."""
        return variant in self.variants

    def finished(self, dtype: str, **asked: str | None) -> Op[P]:
        """Return the op, for operands of `dtype`, with the precision and epilogue that `webmm bench` has options for.

        Raises ConfigError if it has none.
        """
        del dtype
        if given := next((name for name, value in asked.items() if value), None):
            raise ConfigError(f"op {self.name} has no --{given.replace('_', '-')}")
        return self

    def variant_of(self, problem: P) -> str:
        """Return the variant of `problem` that records contain, in addition to its sizes, dtype and layout."""
        return problem.variant

    def parse(self, text: str) -> Size:
        """Return (m, n, k) of a size such as 256 or 333x257x129; raises ProblemError for anything else."""
        parts = split_size(text)
        if len(parts) not in (1, 3):
            raise self.invalid_size(text)
        return parts[0], parts[-2 % len(parts)], parts[-1]

    def invalid_size(self, text: str) -> ProblemError:
        """Return the exception for an invalid size."""
        return ProblemError(f"size {text!r} is neither {self.shape} with numbers of at least 1")

    @abstractmethod
    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return the default sizes for a device with the given roofline and a budget in seconds."""

    @abstractmethod
    def problem(self, size: Size, dtype: str, layout: str = "nn") -> P:
        """Return the problem of a size; raises ProblemError for an unsupported dtype, ConfigError for a layout."""

    def dense(self, sizes: tuple[int, int, int, int], dtype: str, layout: str) -> P:
        """Return the problem without epilogue, on dense operands, with these `Problem.sizes`, dtype and layout."""
        return self.problem(sizes[:3], dtype, layout or "nn")

    def probe(self, n: int, dtype: str) -> P:
        """Return a problem whose size grows with `n`, with which a benchmark estimates the speed of a kernel."""
        return self.problem((n, n, n), dtype)

    @abstractmethod
    def case(self, device: Device, problem: P) -> Case[P]:
        """Return `problem` with random operands from a fixed seed."""

    @abstractmethod
    def stand_ins(self, kernel: Any, problem: P) -> Iterator[P]:
        """Yield small problems for the self-test, best first; some use the same shader as `problem` with `kernel`."""

    @abstractmethod
    def trial(self, problem: P) -> Trial:
        """Return operands and expected result of `problem`, whose arrays are dense."""

    def extremes(self, problem: P) -> Trial | None:
        """Return a second trial, with infinities, NaN and the ends of the range; None if the op defines none."""
        del problem
        return None

    @property
    def ladders(self) -> tuple[Ladder, ...]:
        """The page's prepared ladders, of problems with exact results: none by default."""
        return ()

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """What the page shows of the op, besides `ladders`: by default all stages on `tried` sizes."""
        sizes = tuple(size for size, _ in self.tried)
        title = (type(self).__doc__ or self.name).strip().partition("\n")[0].rstrip(".")
        return (Exhibit(title, {"gpu": sizes, "cpu": sizes}),)

    @abstractmethod
    def examples(self) -> Iterator[tuple[str, P]]:
        """Yield (description, problem) for problems that together cover every specialisation of the templates."""

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield (description, kernel, problem) for all shaders that naga validates: each stage on the examples."""
        for stage, (words, problem) in itertools.product(self.stages, self.examples()):
            if stage().unsuited(problem) is None:
                yield words, stage(), problem

    def element(self, problem: P, place: int) -> tuple[int, ...]:
        """Return the indices of an element, as `webmm debug --at` takes them, from its place in the dense result."""
        m, n, _, batch = problem.sizes
        return (*((place // (m * n),) if batch > 1 else ()), place // n % m, place % n)

    def steps(self, kernel: Any, problem: P) -> Subject:
        """Return NumPy's values for the steps of a kernel, which `webmm debug` compares: by default of the result only.

        Raises ProblemError if the problem has too many steps.
        """
        return Whole(self, kernel, problem)

    def traced(self, problem: P) -> bool:
        """Return whether `webmm debug` can show the steps of a kernel for this problem."""
        return not problem.dtype.wide and problem.sizes[3] == 1

    def peak(self, problem: P, ceiling: Roofline) -> float:
        """Return the peak rate in 10⁹ operations/s; the `peak_fraction` of a record is relative to it."""
        del problem
        return ceiling.gflops

    def rate(self, record: Record) -> float:
        """Return the speed of a record in `unit`."""
        return record.gflops or 0.0


def split_size(text: str) -> list[int]:
    """Return the numbers of "333x257x129"; [] if one of them is not an integer of at least 1."""
    parts = [whole(part) for part in text.strip().lower().replace("×", "x").split("x")]
    return [part for part in parts if part] if all(parts) else []
