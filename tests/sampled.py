"""Parameters of which `make test` runs a sample; `make test-long` runs the others, in its part "cases"."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

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


Row = TypeVar("Row")


def fewest(rows: Iterable[Row], traits: Callable[[Row], set[Any]]) -> list[Row]:
    """Return few of the rows that together have every trait of all, chosen greedily."""
    of = [(row, traits(row)) for row in rows]
    missing, chosen = set[Any]().union(*(found for _, found in of)), []
    while missing:
        row, found = max(of, key=lambda each: len(each[1] & missing))
        chosen.append(row)
        missing -= found
    return chosen


def covered(table: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the rows of a table; all but few, which have every value of each column, are marked as long.

    `sampled()` can miss a value: of rows with two values in turn, every fourth has the same one.
    """
    rows = list(table)
    kept = fewest(range(len(rows)), lambda i: {(column, str(value)) for column, value in enumerate(rows[i])})
    return [row if i in kept else pytest.param(*row, marks=pytest.mark.long) for i, row in enumerate(rows)]


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
