"""Shapes of fragments that matrix units multiply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class MatrixShape:
    """A shape of fragments that matrix units multiply: (m, k) by (k, n), and the types of operands and result."""

    operands: str
    result: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k} {self.operands} into {self.result}"


def ranked(shapes: Iterable[MatrixShape], rates: Mapping[str, float], operands: str, result: str) -> list[MatrixShape]:
    """Return the shapes of these types, that with the highest of `rates` first, which are by str(shape).

    Without rates, the largest comes first. The order of an adapter's list says nothing about speed.
    """
    able = [shape for shape in shapes if (shape.operands, shape.result) == (operands, result)]
    return sorted(able, key=lambda s: (-rates.get(str(s), 0.0), -s.m * s.n * s.k, s.m, s.n))
