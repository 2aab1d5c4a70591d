"""A table of calls with expected results, run by Python, and by webmm.js in a browser and in node.

A case has the Python name of a call, operands (on the host, or on the device and seen through views), and options. It
expects NumPy's result in float64 with an allowed error per element, exact integers, or the name of an error. `check()`
compares the outcomes of all languages in the same way.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.table_attention import attention
from tests.web.table_case import Case, X, drawn
from tests.web.table_elements import caches, own, rotations
from tests.web.table_floats import float64_products, in_place, products
from tests.web.table_integers import quantized, weights
from tests.web.table_rows import elements, normalised, reductions

REFUSALS = {  # the messages of errors, by the missing feature
    "shader-f16": "needs the feature shader-f16, which .+ does not have",
    "shader-f64": (
        r"^(softmax|layer_norm|rms_norm|prod|logsumexp) of float64 "
        r"needs the feature shader-f64, which .+ does not have; "
        r"cast the operand, e\.g\. x\.astype\('float32'\)$"
    ),
}
JAVASCRIPT_ERRORS = {"TypeError": "ConfigError"}  # by Python's error, for unknown options


def views() -> Iterator[Case]:
    """Yield arrays that are read back through views, of every type."""
    for dtype in ("float32", "float16", "float64", "int8", "uint8", "int32"):
        x = np.arange(-60, 60).astype(dtype).reshape(4, 5, 6)
        for name, seen in (
            ("all", ()),
            ("transposed", (("transpose", ()),)),
            ("matrices transposed", (("transpose", (0, 2, 1)),)),
            ("a part", (("slice", ([1, 3], None, [1, 6, 2])),)),
            ("backwards", (("slice", (None, [None, None, -1], [4, 0, -2])),)),
            ("a place", (("slice", (1, -1)),)),
            ("nothing", (("slice", ([3, 3],)),)),
            ("reshaped", (("reshape", (2, -1, 3)),)),
            ("repeated", (("slice", (0, [0, 1])), ("broadcast_to", (3, 5, 6)))),
        ):
            given = X(x, seen)
            yield Case(f"{dtype}: {name}", "read", (given,), expected=given.seen, dtype=dtype, resident=True)
    for name, wrong in (
        ("reshaped to another size", (("reshape", (7, 7)),)),
        ("reshaped without a copy", (("transpose", ()), ("reshape", (20, 6)))),
        ("broadcast to another shape", (("broadcast_to", (4, 5, 7)),)),
    ):
        yield Case(name, "read", (X(drawn(4, 5, 6), wrong),), error="ProblemError", resident=True)
    yield Case("freed", "freed", (X(drawn(2, 3)),), error="FreedArrayError", resident=True)
    yield Case(
        "freed operand", "matmul_freed", (X(drawn(2, 3)), X(drawn(3, 2))), error="FreedArrayError", resident=True
    )


def cases() -> list[Case]:
    """Return the table; the index of a case is its number."""
    columns = (
        views,
        products,
        float64_products,
        in_place,
        quantized,
        weights,
        reductions,
        normalised,
        elements,
        attention,
        own,
        rotations,
        caches,
    )
    return [case for column in columns for case in column()]


# As JSON, and back


def as_json(case: Case) -> dict[str, Any]:
    """Return the data that another language needs for the call."""
    return {
        "call": case.call,
        "operands": [_plain(x) for x in case.operands],
        "options": {name: _plain(x) for name, x in case.options.items()},
        "resident": case.resident,
    }


def _plain(x: Any) -> Any:
    if not isinstance(x, X):
        return x
    data = {"dtype": x.data.dtype.name, "shape": x.data.shape, "base64": base64.b64encode(x.data.tobytes()).decode()}
    return {"array": data, "views": x.views}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: an array, or an error's name and message."""

    array: NDArray[Any] | None = None
    error: str = ""
    message: str = ""

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> Outcome:
        """Return the outcome that another language wrote as JSON."""
        if "error" in row:
            return cls(error=row["error"], message=row["message"])
        return cls(np.frombuffer(base64.b64decode(row["base64"]), row["dtype"]).reshape(row["shape"]))


def check(case: Case, outcome: Outcome, python: bool = False) -> str:
    """Return a description of what is wrong with the outcome of a case, or ""."""
    expected_error = case.error if python else JAVASCRIPT_ERRORS.get(case.error, case.error)
    if expected_error or outcome.array is None:
        found = f"{outcome.error}: {outcome.message}" if outcome.error else "a result"
        if not expected_error:
            return found
        return "" if outcome.error == expected_error and outcome.message else f"{found}, not {expected_error}"
    got, expected = outcome.array, np.asarray(case.expected)
    if got.shape != expected.shape or got.dtype.name != case.dtype:
        return f"{got.dtype} of shape {got.shape}, not {case.dtype} of {expected.shape}"
    with np.errstate(all="ignore"):
        stored = expected.astype(case.dtype).astype(np.float64)
        actual = got.astype(np.float64)
        special = ~np.isfinite(stored)
        if not np.array_equal(actual[special], stored[special], equal_nan=True):
            return "NaN or infinities differ"
        error = np.abs(actual - expected)[~special]
        wrong = ~(error <= np.broadcast_to(case.allowed, expected.shape)[~special])
    return f"{int(wrong.sum())} elements are off, by up to {error.max(initial=0):.3g}" if wrong.any() else ""


def refused(case: Case, outcome: Outcome, features: Collection[str]) -> bool:
    """Return whether the outcome is the error for a feature that the case needs and that is not in `features`."""
    missing = case.needs - set(features)
    return outcome.error == "UnsupportedError" and any(re.search(REFUSALS[name], outcome.message) for name in missing)


def faults(
    outcomes: list[Outcome], table: list[Case], features: Collection[str], *, python: bool = False
) -> dict[str, str]:
    """Return what is wrong, by case; devices with only these `features` must refuse cases that need others."""
    wrong = {}
    for i, (case, outcome) in enumerate(zip(table, outcomes, strict=True)):
        if not refused(case, outcome, features) and (said := check(case, outcome, python)):
            wrong[f"{i} {case.call}: {case.name}"] = said
    return wrong
