"""Debug subjects of attention: the score of each key, and the running maximum, sum and weighted sum of v."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from webmm.cases.attention_reference import Given
from webmm.cases.steps.reference import Floats, Reference
from webmm.cases.steps.subject import Subject
from webmm.dtypes import F32
from webmm.errors import ProblemError
from webmm.kernels.attention.base import LOG2E
from webmm.problems.attention import LEAST_SCORE

HIDDEN = float(np.finfo(np.float32).min)  # what kernels have as the score of a key that a query does not see
FLUSHED = float(np.finfo(np.float32).tiny)  # below it, shaders may have 0
HEADS = {
    "score": {"SCORE": "score"},
    "maximum": {"TOP": "maximum"},
    "weight": {"WEIGHT": "weight"},
    "sum": {"SUM": "sum"},
    "o": {"ACC": "weighted v"},
}


class AttentionSubject(Subject):
    """o[head, query, column], whose inner steps are the keys; heads count over the batch.

    Scores and maxima are as kernels have them, times log2(e). Raises ProblemError for a mask or lengths, which a
    benchmark's operands do not include.
    """

    @property
    def length(self) -> int:
        """The keys."""
        if self.problem.mask is not None or self.problem.lengths:
            raise ProblemError("steps are of attention without a mask or lengths; use causal or a window")
        return int(self.problem.keys)

    @property
    def shape(self) -> tuple[int, int]:
        """The queries of all heads, and the columns of v."""
        p = self.problem
        return p.batch * p.heads * p.queries, p.value_width

    def located(self, *at: int) -> tuple[int, int]:
        """Return the query, counted over all heads, and the column; raises ProblemError if there is no such element."""
        p = self.problem
        shape = (p.batch * p.heads, p.queries, p.value_width)
        if len(at) != 3 or not all(0 <= i < n for i, n in zip(at, shape, strict=True)):
            sizes, place = "x".join(map(str, shape)), ", ".join(map(str, at))
            raise ProblemError(
                f"the result is {sizes}: it has no element ({place}); heads, queries and columns count from 0"
            )
        head, query, column = at
        return head * p.queries + query, column

    def scores(self, given: Given, row: int) -> tuple[Floats, Floats]:
        """Return the scores of the keys times log2(e), -∞ for hidden ones and beyond the end, and their errors."""
        p = self.problem
        head, query = divmod(row, p.queries)
        entry, of_entry = divmod(head, p.heads)
        scores, delta = given.scores(entry, of_entry, np.array([query]))
        return self.padded(LOG2E * scores[0], -np.inf), self.padded(LOG2E * delta[0])

    @property
    def reach(self) -> int:
        """Keys of an update of a maximum and its sums."""
        return min(int(self.kernel.inner_step), self.length)

    def range(self, given: Given, row: int) -> tuple[int, int]:
        """Return the key at which the steps of a query's tile begin, and the one before which they end."""
        queries = self.problem.queries
        seen = np.any(given.seen(0, np.array(self.kernel.together(row % queries, queries))), axis=0)
        return int(self.kernel.begins(int(np.argmax(seen)))), len(seen) - int(np.argmax(seen[::-1]))

    def reference(self, row: int, col: int) -> Reference:
        """Return the score and weight of each key, and after each step of keys the maximum and both sums."""
        p = self.problem
        given = Given(p, self.case.arrays)
        head, query = divmod(row, p.queries)
        entry, of_entry = divmod(head, p.heads)
        scores, delta = self.scores(given, row)
        v = self.padded(given.v[entry, of_entry // p.group, :, col])
        first, end = self.range(given, row)
        keys = [max(0, key - first) for key in range(self.steps)]
        parts, teams = (np.array([of(key, end - first) for key in keys]) for of in (self.kernel.part, self.kernel.team))
        numpy, slack = blank(scores, delta)
        for team in np.unique(teams[first:]):  # each with a maximum of its own
            own = first + np.flatnonzero(teams[first:] == team)
            steps = [own[i : i + self.reach] for i in range(0, len(own), self.reach)]
            running(numpy, slack, v, parts, steps, self.kernel.reference)
        if self.kernel.normalised:
            normalise(numpy, slack, v, self.length)
        result, allowed = given.rows(entry, of_entry, np.array([query]))
        return Reference(
            *(f"o[{head}, {query}, {col}]", self.length, HEADS),
            numpy,
            slack,
            parts,
            *(float(result[0, col]), float(allowed[0, col])),
            lambda found: float(found.reshape(self.shape)[row, col]),
            every=frozenset() if p.left >= 0 or p.right >= 0 else frozenset({"score"}),
        )


def blank(scores: Floats, delta: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the scores at each key, NaN for the other groups of HEADS, and the allowed errors so far."""
    numpy = {name: np.full(len(scores), np.nan) for name in HEADS}
    slack = {name: np.zeros(len(scores)) for name in HEADS}
    return numpy | {"score": np.where(scores == -np.inf, HIDDEN, scores)}, slack | {"score": delta}


def running(
    numpy: dict[str, Floats],
    slack: dict[str, Floats],
    v: Floats,
    parts: NDArray[np.intp],
    steps: Sequence[NDArray[np.intp]],
    reference: Callable[[float, float], float],
) -> None:
    """Fill in the values of each group of HEADS at each key of some steps, and their allowed errors.

    A maximum and sums are those after the step that has the key, NaN before the first step. A sum of weights is of
    one part, the sum of weighted rows of v of all. Errors of weights are those of the scores, of the power, of its
    argument and of the corrections so far; sums add one rounding for each key. `reference` is the kernel's.
    """
    scores, delta = numpy["score"], slack["score"]
    count, top, rough = int(parts.max()) + 1, LEAST_SCORE, 0.0
    corrected, sums, sums_off = 0, np.zeros(count), np.zeros(count)
    out, out_off = 0.0, 0.0
    for at in steps:
        larger = reference(top, float(scores[at].max()))
        shrink, corrected, top = 2.0 ** (top - larger), corrected + (larger > top), larger
        rough = max(rough, float(delta[at].max()))
        weights = np.exp2(scores[at] - top)
        far = np.where(weights > 0, top - scores[at], 0.0)
        off = weights * (np.expm1(2 * rough) + (1 + corrected) * F32.exp_error + 2 * F32.eps * (far + at[-1] + 1))
        sums = sums * shrink + np.bincount(parts[at], weights, count)
        sums_off = sums_off * shrink + np.bincount(parts[at], off, count)
        out = out * shrink + float(weights @ v[at])
        out_off = out_off * shrink + float(off @ np.abs(v[at]))
        for name, value, error in (
            *(("maximum", top, rough), ("weight", weights, off + FLUSHED)),
            *(("sum", sums[parts[at]], sums_off[parts[at]] + FLUSHED), ("o", out, out_off + FLUSHED)),
        ):
            numpy[name][at], slack[name][at] = value, error


def normalise(numpy: dict[str, Floats], slack: dict[str, Floats], v: Floats, length: int) -> None:
    """Make the sums of weighted rows of v those of weights that were divided by their sum, after each key."""
    weights, off = (x["weight"][:length] for x in (numpy, slack))
    total, total_off = float(numpy["sum"][length - 1]), float(slack["sum"][length - 1])
    rough = off / total + weights / total * (total_off / total + F32.eps * np.arange(3, length + 3))
    numpy["o"][:length] = np.cumsum(weights * v[:length]) / total
    slack["o"][:length] = np.cumsum(rough * np.abs(v[:length])) + FLUSHED
