"""The error that rounding can explain in a reduction of your own, of whose expressions nothing else is known."""

from __future__ import annotations

import ast
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import F32, I32, MATRIX_DTYPES
from webmm.problems.declared import declaration_of
from webmm.problems.reduce import Reduction, operation_of
from webmm.wgsl.expressions import parsed
from webmm.wgsl.states import INEXACT, State, Terms

ROUNDING = 2.0**-21  # of a value that was computed, relative: a few operations in float32
OF_FUNCTIONS = 2.0**-18  # likewise by functions of a driver, relative to 1 + |value|
SAMPLES = 4  # perturbations
WORK = 16  # times as long as another operation's takes the error of a row: so many fewer are checked
SHOWN = (("var", F32), ("any", I32))  # three floats, and an integer whose result is a boolean
MARGIN = 16.0  # the allowed error ÷ the largest effect of these


def allowed(p: Reduction, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the allowed error of the results along the last axis of `rows`; 0 for results that are no floats."""
    operation = operation_of(p.operation)
    x = rows if p.dtype == I32 else rows.astype(np.float64)
    found = MARGIN * spread(declaration_of(operation).terms(x), x)
    if p.out_dtype not in MATRIX_DTYPES:
        return found
    expected = np.abs(operation.exact(x).astype(np.float64))
    stored = np.where(np.isfinite(expected), max(p.out_dtype.eps, 2 * F32.eps) * expected, 0.0) + p.out_dtype.tiny
    return np.asarray(found + stored)


def spread(terms: Terms, x: NDArray[Any]) -> NDArray[np.float64]:
    """Return how far the results along the last axis move if what is computed is perturbed, as rounding does.

    This is Monte Carlo arithmetic (Parker, 1997): it needs no analysis of the expressions. What is not computed but
    chosen, such as a maximum, is exact.
    """
    mapped = terms.mapped(x)
    exact = terms.finished(terms.reduced(mapped), x.shape[-1]).astype(np.float64)
    rng, far = np.random.default_rng(0), np.zeros(exact.shape)
    combine = functools.partial(_perturbed, rng, list(terms.combine.values()))
    for _ in range(SAMPLES):
        state = {name: _perturbed(rng, [terms.map[name]], {name: y})[name] for name, y in mapped.items()}
        result = terms.finished(terms.reduced(state, combine), x.shape[-1])
        result = _perturbed(rng, [terms.finish], {"": result})[""]
        with np.errstate(all="ignore"):
            far = np.fmax(far, np.abs(result.astype(np.float64) - exact))
    return far


def error(found: NDArray[Any], expected: NDArray[Any], unit: NDArray[np.float64] | float) -> float:
    """Return the largest error in units; inf if NaN or infinities differ."""
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(found - expected) / unit)
    return float(np.where(np.isnan(off), np.inf, off).max())


def running(terms: Terms, x: NDArray[Any], length: int) -> NDArray[Any]:
    """Return the results of the first, the first two, and so on, elements of a vector, finished as all are."""
    state = terms.mapped(x)
    totals = [{name: state[name][:1] for name in terms.names}]
    for k in range(1, x.size):
        totals.append(terms.combined(totals[-1], {name: state[name][k : k + 1] for name in terms.names}))
    return terms.finished({name: np.concatenate([each[name] for each in totals]) for name in terms.names}, length)


def _perturbed(rng: np.random.Generator, texts: list[str], state: State) -> State:
    """Return a state with noise on its floats, if these expressions compute anything."""
    inexact = any(word in text for text in texts for word in ("**", *(f"{name}(" for name in INEXACT)))
    if not inexact and not any(isinstance(node, ast.BinOp) for text in texts for node in ast.walk(parsed(text))):
        return state
    found = {}
    for name, x in state.items():
        noise = rng.uniform(-1, 1, x.shape)
        with np.errstate(all="ignore"):
            size = OF_FUNCTIONS * (1 + np.abs(x)) if inexact else ROUNDING * np.abs(x)
            found[name] = x + noise * size if x.dtype.kind == "f" else x
    return found
