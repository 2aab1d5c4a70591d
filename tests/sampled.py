"""Parameters of which `make test` runs a sample; `make test-long` runs the others, in its part "cases"."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], step: int = 2, first: int = 0) -> list[Any]:
    """Return the values (tuples for several parameters); all but every `step`-th from `first` on are marked as long."""
    return [
        value if i % step == first else pytest.param(*_tuple(value), marks=pytest.mark.long)
        for i, value in enumerate(values)
    ]


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def crossed(*given: Iterable[Any], step: int = 0) -> list[Any]:
    """Return all combinations, with all but every `step`-th along each table marked as long.

    Each value is in the sample as often as any other of its table, with other values of the other tables in turn. By
    default a third is left, or half if a table has two values.
    """
    tables = [list(table) for table in given]
    step = step or min(3, *map(len, tables))
    marks = {False: (), True: (pytest.mark.long,)}
    return [
        pytest.param(*(value for _, value in each), marks=marks[sum(i for i, _ in each) % step != 0])
        for each in itertools.product(*map(enumerate, tables))
    ]


def pairwise(*given: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return few combinations that contain every pair of values of two tables: each next has the most new pairs."""
    tables = [list(table) for table in given]

    def pairs(each: tuple[int, ...]) -> set[Any]:
        return set(itertools.combinations(enumerate(each), 2))

    every = list(itertools.product(*(range(len(table)) for table in tables)))
    left, chosen = set[Any]().union(*map(pairs, every)), []
    while left:
        best = max(every, key=lambda each: len(pairs(each) & left))
        left -= pairs(best)
        chosen.append(tuple(table[i] for table, i in zip(tables, best, strict=True)))
    return chosen
