"""The table of calls, run by Python on its own engine, and by webmm.js in a browser and in node."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import webmm
from tests.web.table import VIEWS, Case, Outcome, X, cases, check

TABLE = cases()
TRANSPOSES = ("transpose_a", "transpose_b")  # options of webmm.js; in Python an operand is a view
WEIGHTS = inspect.signature(webmm.quantize_blocks).parameters


def called(case: Case, device: webmm.Device) -> Any:
    """Make the call of a case, as a user of Python would; raises what it raises."""

    def there(x: Any) -> Any:
        if not isinstance(x, X):
            return x
        if not case.resident or case.call == "qmatmul":
            return x.seen
        array = device.array(x.data)
        for name, arguments in x.views:
            array = VIEWS[name](array, *arguments)
        return array

    operands = [device.array(x.data) if case.call == "qmatmul" and case.resident else there(x) for x in case.operands]
    options = {name: there(x) for name, x in case.options.items() if name not in TRANSPOSES}
    for i, name in enumerate(TRANSPOSES):
        if case.options.get(name):
            operands[i] = operands[i].mT if case.resident else operands[i].swapaxes(-1, -2)
    if case.call == "read":
        return operands[0]
    if case.call in ("freed", "matmul_freed"):
        operands[-1].free()
        return operands[0].numpy() if case.call == "freed" else webmm.matmul(*operands)
    if case.call == "gemm":
        return webmm.gemm(*operands, **options)
    if case.call == "qmatmul_weights":
        how = {name: options.pop(name) for name in list(options) if name in WEIGHTS}
        weights = webmm.quantize_blocks(np.asarray(case.operands[1].data), **how)
        operands[1] = weights.to(device) if case.resident else weights
    call: Callable[..., Any] = getattr(webmm, case.call)
    return call(*operands, **options, device=device)


@pytest.fixture(scope="module")
def device() -> webmm.Device:
    return webmm.Device()


def python(case: Case, device: webmm.Device) -> Outcome:
    try:
        result = called(case, device)
        return Outcome(result.numpy() if isinstance(result, webmm.Array) else np.asarray(result))
    except Exception as error:
        return Outcome(error=type(error).__name__, message=str(error))


def test_python(device: webmm.Device) -> None:
    wrong = {
        f"{i} {case.call}: {case.name}": said
        for i, case in enumerate(TABLE)
        if (said := check(case, python(case, device), python=True))
    }
    assert wrong == {}
