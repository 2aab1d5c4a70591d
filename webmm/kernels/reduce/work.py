"""The work of a reduction's dispatch: what the model of cost counts, from the tunables and the problem's sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from webmm.kernels.base import Kernel, ceil_div
from webmm.kernels.traffic import Traffic
from webmm.problems.reduce import Reduction, operation_of

PARTIALS = "partials"
PARTIAL_BYTES = 8  # of a partial result in workgroup memory; twice that for doubles and more than two values
SECTOR = 32  # bytes that GPUs load at least
LANES = 32  # of a subgroup, of most GPUs


def partial_bytes(problem: Reduction) -> int:
    """Return the size of a partial result in that buffer, in bytes."""
    return 2 * PARTIAL_BYTES if problem.dtype.wide or operation_of(problem.operation).values > 2 else PARTIAL_BYTES


@dataclass(frozen=True)
class Combination:
    """What it costs an invocation to combine its partial results with those of others."""

    barriers: float = 0
    exchanged: float = 0  # vec4 through workgroup memory
    shuffles: float = 0  # vec4 within a subgroup

    @classmethod
    def of(cls, way: str, count: int, width: int = 1) -> Combination:
        """Return that of `count` invocations with `width` partial results each, in one of WAYS."""
        vec4, rounds = width * PARTIAL_BYTES / 16, (count - 1).bit_length()
        if way == "tree":
            return cls(1 + rounds, 2 * vec4) if count > 1 else cls()
        subgroups = ceil_div(count, LANES)
        between = 2 if way == "subgroup" and subgroups > 1 else 0
        return cls(between, vec4 * (between > 0), vec4 * (min(rounds, 5) + (subgroups - 1).bit_length()))


@dataclass(frozen=True)
class Counted(Kernel[Reduction]):
    """A dispatch whose workgroups each run a loop over k, then combine the partial results of their invocations."""

    writes: ClassVar[str] = "y"

    @property
    def splits(self) -> int:
        """Parts of the reduced axis; each part has its own workgroups."""
        return 1

    @property
    def step(self) -> int:
        """Elements along k per iteration of a workgroup's loop."""
        return 1

    @property
    def columns(self) -> int:
        """Consecutive results of a workgroup."""
        return 1

    def steps(self, problem: Reduction) -> int:
        """Return the number of iterations of that loop."""
        return ceil_div(ceil_div(problem.length, self.splits), self.step)

    def workgroups(self, problem: Reduction) -> int:
        """Return the number of workgroups that cover the results."""
        return problem.results

    @property
    def share(self) -> int:
        """Elements that an invocation loads per iteration."""
        return self.step * self.columns // self.invocations

    def line(self, problem: Reduction) -> int:
        """Return the contiguous elements that a workgroup loads at once."""
        return min(self.step, problem.length)

    @property
    def abreast(self) -> int:
        """Neighbouring invocations that load contiguous elements at once, or vec4."""
        return LANES

    @property
    def combination(self) -> Combination:
        """How invocations combine their partial results: not at all."""
        return Combination()

    def workgroup_bytes_for(self, problem: Reduction) -> int:
        """Return the bytes of workgroup memory for `problem`: twice `workgroup_bytes` for wide partial results."""
        more = partial_bytes(problem) // PARTIAL_BYTES if operation_of(problem.operation).values > 2 else 1
        return super().workgroup_bytes_for(problem) * more

    def loads(self, problem: Reduction) -> int:
        """Return how many times an element is loaded."""
        del problem
        return 1

    def arithmetic(self, problem: Reduction) -> float:
        """Return the instructions per element, in multiply-adds."""
        return operation_of(problem.operation).arithmetic

    def stored(self, problem: Reduction) -> float:
        """Return the elements or partial results that an invocation stores."""
        del problem
        return self.columns / self.invocations

    def written(self, problem: Reduction) -> int:
        """Return the bytes that are written."""
        if self.writes == PARTIALS:
            return self.splits * problem.results * partial_bytes(problem)
        second = problem.other.dtype.itemsize if problem.other else 0
        return problem.bytes - problem.flops * (problem.dtype.itemsize + second)

    def traffic(self, problem: Reduction) -> Traffic:
        """Count the loads and the arithmetic of the loop over k, and as one more step how invocations combine."""
        p, spec, ends = problem, self.specialise(problem), self.combination
        steps, share, size = self.steps(p), self.share, p.dtype.itemsize
        count = self.workgroups(p) * self.splits
        loaded = self.loads(p) * share * steps / (steps + 1)  # elements per invocation and step
        line = self.line(p) * size
        apart = SECTOR if line % SECTOR else 0  # bytes of other lines that are loaded with one
        stored, vec = self.stored(p), spec.vec
        second = p.other.dtype.itemsize if p.other else 0  # bytes per element of the second array, not read as vec4
        run = min(self.abreast, LANES) * size * (4 if vec else 1) / SECTOR  # sectors that an instruction needs
        sectors = (math.ceil(run) + (0.5 if apart and not vec else 0)) / run  # that it loads ÷ these
        return Traffic(
            workgroups=count,
            invocations=self.invocations,
            steps=steps + 1,
            fmas=loaded * self.arithmetic(p),
            vector_loads=sectors * loaded / 4 if vec else 0,
            scalar_loads=(0 if vec else sectors * loaded) + (loaded if second else 0),
            barriers=ends.barriers / (steps + 1),
            registers=share * max(1, size // 4) + 16,
            workgroup_bytes=self.workgroup_bytes_for(p),
            loaded=loaded * self.invocations * (size * (1 + apart / line) + second),
            read=self.loads(p) * p.flops * (size + second),
            written=self.written(p),
            waste=count * self.invocations * share * steps / p.flops,
            scalar_stores=0 if vec and stored >= 4 else sectors * stored,
            vector_stores=sectors * stored / 4 if vec and stored >= 4 else 0,
            exchanged=ends.exchanged,
            shuffles=ends.shuffles / (steps + 1),
        )
