"""Each op and each public call once, against NumPy, as `make quick` runs them. A new one is found by itself."""

import asyncio
import inspect
import itertools
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pytest
from fuzz import check, kind_of, opened
from table import OPS as DRAWN

import webmm
from webmm.cases import OPS
from webmm.choose import candidates
from webmm.dtypes import F32
from webmm.measure import selftest
from webmm.problems.divisible import Divisible
from webmm.problems.elementwise import Elementwise

X = np.arange(1, 16, dtype=np.float32).reshape(3, 5)
PUBLIC = {name: getattr(webmm, name) for name in webmm.__all__}
CALLS = [
    name for name, value in PUBLIC.items() if inspect.isfunction(value) and value.__module__.startswith("webmm.calls.")
]


@dataclass(frozen=True)
class Rectified(Elementwise, Divisible):
    """A problem that says how it is cut, as a plugin's may."""

    cuttable = ("size",)

    @property
    def axes(self):
        return ("size",), ("size",)

    def cut(self, axis, start, length):
        return replace(self, size=length)


# Calls that the fuzzer has no row for: what they return, and what NumPy does.
EXAMPLES = {
    "astype": (lambda x: webmm.astype(x, "int32"), lambda x: x.astype(np.int32)),
    # The last key is by far the largest one.
    "attention": (lambda x: webmm.attention(*[x[None]] * 3), lambda x: np.stack([[x[2]] * 3])),
    "capture": (lambda x: webmm.capture(lambda x: x * 2.0)(x), lambda x: x * 2),
    "compute": (lambda x: webmm.compute(Rectified("relu", 15, F32), x.reshape(15)), lambda x: x.ravel()),
    "concatenate": (lambda x: webmm.concatenate([x, x], axis=1), lambda x: np.concatenate([x, x], axis=1)),
    "einsum": (lambda x: webmm.einsum("ij,kj->ki", x, x), lambda x: x @ x.T),
    "from_dlpack": (lambda x: webmm.from_dlpack(X, x.device), lambda x: x),
    "map": (lambda x: webmm.map(x - 7, "relu"), lambda x: np.maximum(x - 7, 0)),
    "matmul_async": (lambda x: asyncio.run(webmm.matmul_async(x, x.T)), lambda x: x @ x.T),
    "stack": (lambda x: webmm.stack([x, x]), lambda x: np.stack([x, x])),
    "take": (lambda x: webmm.take(x, [2, 0], axis=1), lambda x: np.take(x, [2, 0], axis=1)),
    "where": (lambda x: webmm.where(x < 4, x, -x), lambda x: np.where(x < 4, x, -x)),
}


@pytest.fixture(scope="module", autouse=True)
def devices():
    yield
    opened("plain").close()
    opened.cache_clear()


@pytest.mark.parametrize("op", OPS)
def test_op(op):
    """The first kernel that the choice would take computes the row's first problem as the row's reference does."""
    size, layout = OPS[op].tried[0]
    problem = OPS[op].problem(size, OPS[op].dtypes[0].name, layout)
    device = opened("plain")
    kernel = next(each for each in candidates(problem, device) if each.check(problem, device.capabilities) is None)
    assert selftest.prove(kernel, problem, device) == ""


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    with mock.patch.object(webmm, name, wraps=PUBLIC[name]) as call:
        if name in DRAWN:
            assert check(next(seed for seed in itertools.count() if kind_of(seed) == name)) == ""
        else:
            assert name in EXAMPLES, f"{name} needs a row in table.py, or an example here"
            ours, numpys = EXAMPLES[name]
            got, expected = np.asarray(ours(opened("plain").array(X))), numpys(X)
            assert got.dtype == expected.dtype
            assert np.array_equal(got, expected)  # whole numbers are exact
    assert call.called


def test_there_are_calls():
    assert set(EXAMPLES) <= set(CALLS)
    assert {"matmul", "reduce", "softmax", "qmatmul", "qmatmul_weights", "gelu"} <= set(CALLS)
