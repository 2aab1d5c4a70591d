"""The states of a reduction of your own, evaluated by NumPy: of elements, of two, and of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.wgsl.expressions import NUMPY, REAL, applied
from webmm.wgsl.terms import Terms

State = dict[str, NDArray[Any]]


def apply(operation: str, kind: str, terms: Sequence[Any]) -> Any:
    """Return NumPy's value of an operation."""
    del kind
    with np.errstate(all="ignore"):
        return applied(operation, *terms)


def mapped(terms: Terms, x: NDArray[Any], y: NDArray[Any] | None = None) -> State:
    """Return the states of single elements, with those of `y` if there are two arrays."""
    return _shaped(terms, terms.mapped(x, y, np.arange(x.shape[-1], dtype=np.int32), apply), x.shape)


def combined(terms: Terms, a: State, b: State) -> State:
    """Return the states of two."""
    return _shaped(terms, terms.combined(a, b, apply), a[terms.names[0]].shape)


def finished(terms: Terms, state: State, length: int) -> NDArray[Any]:
    """Return the results of states of `length` elements."""
    shape = state[terms.names[0]].shape
    return _cast(np.broadcast_to(np.asarray(terms.finished(state, np.float64(length), apply)), shape), terms.kind)


def none(terms: Terms, shape: tuple[int, ...]) -> State:
    """Return the states of no elements."""
    return {name: np.full(shape, x) for name, x in terms.none.items()}


def reduced(terms: Terms, state: State, rounded: Callable[[State], State] | None = None) -> State:
    """Return the states of all elements along the last axis, by halves; `rounded` changes what was computed."""
    while (n := state[terms.names[0]].shape[-1]) > 1:
        half = n // 2
        a, b = ({name: x[..., s] for name, x in state.items()} for s in (slice(half), slice(half, 2 * half)))
        both = combined(terms, a, b)
        if rounded is not None:  # what was chosen, such as a maximum, is exact
            chosen = {name: (x == a[name]) | (x == b[name]) for name, x in both.items()}
            both = {name: np.where(chosen[name], both[name], x) for name, x in rounded(both).items()}
        rest = {name: x[..., 2 * half :] for name, x in state.items()}
        state = {name: np.concatenate([x, rest[name]], axis=-1) for name, x in both.items()}
    return {name: x[..., 0] for name, x in state.items()}


def _shaped(terms: Terms, found: State, shape: tuple[int, ...]) -> State:
    return {name: _cast(np.broadcast_to(np.asarray(x), shape), terms.kinds[name]) for name, x in found.items()}


def _cast(x: NDArray[Any], kind: str) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float64 if kind == REAL else NUMPY[kind])
