"""A visitor's own text that multiplies matrices, with what the fields of the page say of it, as `Foreign` in Python.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webmm.errors import ConfigError, ProblemError, UnsupportedError
from webmm.foreign.counts import PRODUCT, Counts, check_names, listed
from webmm.foreign.tunables import check_tunables, combinations, tunables_of, with_constants
from webmm.kernels.base import Binding

MATRICES = ("a", "b", "c")


@dataclass(frozen=True)
class Pasted:
    """A text with its bindings, the members of its uniform, its grid and the values of its tunables."""

    text: str
    bindings: tuple[str, ...]
    uniform: tuple[str, ...]
    grid: Counts
    config: Mapping[str, int]

    @property
    def label(self) -> str:
        """Its name, with the values of its tunables."""
        settings = ", ".join(f"{name} = {value}" for name, value in self.config.items())
        return f"your text with {settings}" if settings else "your text"

    @property
    def code(self) -> str:
        """The text, with a comment that distinguishes it from one with other bindings."""
        return f"{self.text}\n// {', '.join(self.bindings)}; {', '.join(self.uniform)}"

    @property
    def layout(self) -> list[Binding]:
        """Its bindings."""
        types = ["uniform"] if self.uniform else []
        types.extend("storage" if name == "c" else "read-only-storage" for name in self.bindings)
        return [Binding(i, "", type, "") for i, type in enumerate(types)]

    def members(self, sizes: Sequence[int]) -> list[int]:
        """Return the members of its uniform for m, n and k: four, as many as a uniform has at least."""
        lengths = dict(zip(PRODUCT, sizes, strict=True))
        return [*(lengths[name] for name in self.uniform), *[0] * 4][:4]

    def workgroups(self, sizes: Sequence[int], most: int) -> tuple[int, int, int]:
        """Return its grid for m, n and k.

        Raises ProblemError for an empty one, UnsupportedError for one over `most` along an axis.
        """
        lengths = dict(zip(PRODUCT, sizes, strict=True))
        grid, what = self.grid.of({**lengths, **self.config}), f"the grid {self.grid.text} has"
        if min(grid) < 1:
            at = ", ".join(f"{name}={value}" for name, value in lengths.items())
            raise ProblemError(f"{what} no workgroups for {at}: {','.join(map(str, grid))}")
        if max(grid) > most:
            raise UnsupportedError(f"{what} {max(grid)} workgroups along an axis; the limit is {most}")
        return grid


def pasted(text: str, bindings: str, uniform: str, grid: str, tunables: str, tuned: bool) -> list[Pasted]:
    """Return a text for each combination of its tunables, of which it needs one if it is to be `tuned`.

    The fields are comma-separated words, but tunables, which spaces separate. Raises ConfigError for what makes no
    sense.
    """
    names, members = _words(bindings), _words(uniform)
    if not text.strip():
        raise ConfigError("there is no text: paste a compute shader that multiplies matrices")
    if tuple(sorted(names)) != MATRICES:
        raise ConfigError(f'Bindings must name {listed(MATRICES, "and")}, each once, not "{bindings}"')
    check_names(members, PRODUCT, "Uniform")
    values = tunables_of(tunables.split())
    check_tunables(text, "your text", values, PRODUCT)
    counts = Counts(grid, (*PRODUCT, *values))
    each = combinations(values) if tuned or values else [{}]
    return [Pasted(with_constants(text, config), names, members, counts, config) for config in each]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
