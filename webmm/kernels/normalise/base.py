"""What the normalisation kernels share: the uniform and the template choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webmm.kernels.base import Binding, Scratch, Texture
from webmm.kernels.reduce.base import ReduceKernel, ReduceParams, Specialisation
from webmm.kernels.reduce.work import PARTIAL_BYTES, PARTIALS
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import Reduction
from webmm.wgsl.params import F32, member


@dataclass(frozen=True)
class RowsParams(ReduceParams):
    """The uniform of a reduction, with epsilon."""

    epsilon: F32 = member("added to the mean square")

    @classmethod
    def of(cls, p: Normalisation) -> RowsParams:  # type: ignore[override]
        """Return the uniform for the problem `p`."""
        return cls(**vars(ReduceParams.of(p)), epsilon=p.epsilon)


@dataclass(frozen=True)
class RowsSpecialisation(Specialisation):
    """The template choices of a reduction, and those of the function that follows."""

    function: str
    weight: bool
    bias: bool
    held: bool  # one step covers a row, so its elements stay in registers


# Instructions per element of reading, then of scaling, in multiply-adds.
ARITHMETIC: dict[str, tuple[float, float]] = {"softmax": (8.0, 5.0), "layer_norm": (3.0, 3.0), "rms_norm": (1.0, 2.0)}


def arithmetic(problem: Reduction) -> tuple[float, float]:
    """Return the instructions per element of the reduction, and of what follows."""
    return ARITHMETIC[problem.function] if isinstance(problem, Normalisation) else (1.0, 1.0)


class Scaling(ReduceKernel):
    """A kernel that reduces rows or columns, then scales them; after one step, their elements are in registers."""

    def held(self, problem: Reduction) -> bool:
        """Tell whether they are."""
        return self.splits == 1 and problem.length <= self.step

    def loads(self, problem: Reduction) -> int:
        """Return how many times an element is loaded."""
        return 1 if self.held(problem) or self.splits > 1 else 2

    def arithmetic(self, problem: Reduction) -> float:
        """Return the instructions per loaded element; a dispatch before this one reduces what is split."""
        first, second = arithmetic(problem)
        return second if self.splits > 1 else (first + second) / self.loads(problem)

    def stored(self, problem: Reduction) -> float:
        """Return the elements of an invocation."""
        return self.share * self.steps(problem)


def doubles(problem: Reduction) -> str | None:
    """Return why a kernel that does not support float64 cannot compute `problem`, or None."""
    return f"computes no {problem.dtype.name}" if problem.dtype.wide else None


def bindings_of(spec: Specialisation, splits: int = 1) -> Iterator[Binding]:
    """Yield x, y, weight and bias if the problem has them, and the partial results if rows are split."""
    assert isinstance(spec, RowsSpecialisation)
    array = spec.dtype.array(spec.vec)
    yield Binding(1, "x", "read-only-storage", array)
    yield Binding(2, "y", "storage", spec.out_dtype.array(spec.vec, shared=True))
    there = [name for name in ("weight", "bias") if getattr(spec, name)]
    yield from (Binding(number, name, "read-only-storage", array) for number, name in enumerate(there, 3))
    if splits > 1:
        yield Binding(3 + len(there), PARTIALS, "read-only-storage", "array<vec2u>")


def parts_of(problem: Reduction, splits: int) -> tuple[Texture | Scratch, ...]:
    """Return the buffer of the partial results of the first dispatch, if rows are split."""
    return (Scratch(PARTIALS, splits * problem.results * PARTIAL_BYTES),) if splits > 1 else ()


def parts_rule(splits: int) -> dict[str, Any]:
    """Return the rule of that buffer's bytes."""
    return {PARTIALS: f"{splits * PARTIAL_BYTES} * outer * inner"} if splits > 1 else {}


def normalising(choices: Specialisation, p: Normalisation, held: bool = False) -> RowsSpecialisation:
    """Return `choices` with those of a normalisation."""
    return RowsSpecialisation(**vars(choices), function=p.function, weight=p.weight, bias=p.bias, held=held)
