"""What a bench, the self-test and the tuner need to know of an op: stages, sizes, how problems are set and judged."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import MATRIX_DTYPES, DType
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.errors import ProblemError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.records import Record
from webmm.roofline import Roofline
from webmm.text import whole

Size = tuple[int, int, int] | tuple[int, int, int, int]  # m, n, k; of gemm also a batch

P = TypeVar("P", bound=Problem)


class Case(ABC, Generic[P]):
    """One problem with its operands on both sides, and what its result must be."""

    problem: P
    inputs: dict[str, Array]  # by the names of the problem's buffers
    scale: str = ""  # what errors are multiples of, in words

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest error that is no mistake."""

    @abstractmethod
    def error(self, got: NDArray[Any]) -> float:
        """Return the error of the result, as a kernel leaves it in its buffer; inf where NaN or infinities differ."""

    @abstractmethod
    def numpy(self) -> NDArray[Any]:
        """Compute the same by NumPy, in the type that it is fast at."""

    @abstractmethod
    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of what `numpy()` returned."""


@dataclass(frozen=True)
class Trial:
    """A problem whose every term shows in its result: what its buffers hold, by name, and what must come out.

    `expected` has the shape of the result, which lies dense where the buffer that is written starts; `allowed` is by
    how much each of its elements may be off.
    """

    buffers: dict[str, NDArray[Any]]
    expected: NDArray[Any]
    allowed: NDArray[np.float64] | float


class Op(ABC, Generic[P]):
    """An op: `webmm bench --op NAME`, or NAME:VARIANT."""

    name: ClassVar[str]
    shape: ClassVar[str] = "N nor MxNxK"  # how a size is written
    unit: ClassVar[str] = "GFLOP/s"
    dtypes: tuple[DType, ...] = MATRIX_DTYPES  # the first is meant where none is named
    variants: ClassVar[tuple[str, ...]] = ()  # what NAME:VARIANT may name; likewise
    tried: ClassVar[tuple[tuple[Size, str], ...]]  # sizes and layouts that `webmm selftest` computes

    def __init__(self, variant: str = "") -> None:
        self.variant = variant or next(iter(self.variants), "")

    @property
    def stages(self) -> list[type[Kernel[Any]]]:
        """The ladder; the first stage is what the others are compared with."""
        return list(STAGES[self.name].values())

    def knows(self, variant: str) -> bool:
        """Tell whether NAME:VARIANT is of this op."""
        return variant in self.variants

    def variant_of(self, problem: P) -> str:
        """Return what records of `problem` say of it beside its sizes, dtype and layout."""
        return problem.variant

    def parse(self, text: str) -> Size:
        """Return (m, n, k) of a size such as 256 or 333x257x129; raises ProblemError for anything else."""
        parts = split_size(text)
        if len(parts) not in (1, 3):
            raise self.no_size(text)
        return parts[0], parts[-2 % len(parts)], parts[-1]

    def no_size(self, text: str) -> ProblemError:
        """Return what to raise for a size that is none."""
        return ProblemError(f"size {text!r} is neither {self.shape} with numbers of at least 1")

    @abstractmethod
    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return what to run on a device with these ceilings within `budget` seconds."""

    @abstractmethod
    def problem(self, size: Size, dtype: str, layout: str = "nn") -> P:
        """Return the problem of a size; raises ProblemError for a dtype, ConfigError for a layout that there is not."""

    def dense(self, sizes: tuple[int, int, int, int], dtype: str, layout: str) -> P:
        """Return the plain problem that has these `Problem.sizes`, dtype and layout, on dense operands."""
        return self.problem(sizes[:3], dtype, layout or "nn")

    def probe(self, n: int, dtype: str) -> P:
        """Return a problem that grows with `n`, on which a bench finds out how fast a kernel is."""
        return self.problem((n, n, n), dtype)

    @abstractmethod
    def case(self, device: Device, problem: P) -> Case[P]:
        """Return `problem` with random operands, always the same."""

    @abstractmethod
    def stand_ins(self, kernel: Any, problem: P) -> Iterator[P]:
        """Yield problems that `kernel` computes in no time, best first; some by the same shader as `problem`."""

    @abstractmethod
    def trial(self, problem: P) -> Trial:
        """Return operands of `problem`, which has no gaps, and the result."""

    @abstractmethod
    def examples(self) -> Iterator[tuple[str, P]]:
        """Yield problems that between them need every choice of the templates, each with words that say which."""

    def shaders(self) -> Iterator[tuple[str, Kernel[Any], Problem]]:
        """Yield what naga has to look at, in words, as kernel and problem: each stage on the examples."""
        for stage, (words, problem) in itertools.product(self.stages, self.examples()):
            if stage().unsuited(problem) is None:
                yield words, stage(), problem

    def peak(self, problem: P, ceiling: Roofline) -> float:
        """Return the 10⁹ operations/s of which a record's `peak_fraction` is a share."""
        del problem
        return ceiling.gflops

    def rate(self, record: Record) -> float:
        """Return the speed of a measured record in `unit`."""
        return record.gflops or 0.0


def split_size(text: str) -> list[int]:
    """Return the numbers of "333x257x129"; empty where one is none or below 1."""
    parts = [whole(part) for part in text.strip().lower().replace("×", "x").split("x")]
    return [part for part in parts if part] if all(parts) else []
