"""Reductions of your own: a root mean square, log-sum-exp with a state of two values, and argmax with its value."""

from __future__ import annotations

import math

import numpy as np

import webmm

root_mean_square = webmm.Reduction(map="x * x", combine="a + b", identity=0.0, finish="sqrt(v / n)")

# The largest element so far, and the sum of exp(x - largest): neither overflows.
logsumexp = webmm.Reduction(
    map={"top": "x", "sum": "1.0"},
    combine={
        "top": "maximum(a.top, b.top)",
        "sum": "a.sum * exp(a.top - maximum(a.top, b.top)) + b.sum * exp(b.top - maximum(a.top, b.top))",
    },
    identity={"top": -3e38, "sum": 0.0},  # not -inf, whose difference from itself is NaN
    finish="top + log(sum)",
)

# The largest element and where it is, the first of equal ones; `finish` picks one of them.
LARGEST = {
    "map": {"top": "x", "at": "i"},
    "combine": {
        "top": "maximum(a.top, b.top)",
        "at": "where(a.top > b.top, a.at, where(b.top > a.top, b.at, minimum(a.at, b.at)))",
    },
    "identity": {"top": -math.inf, "at": 2**31 - 1},
}
largest = webmm.Reduction(**LARGEST, finish="top")
place = webmm.Reduction(**LARGEST, finish="at")


def main() -> None:
    """Reduce the rows of a matrix by each, and compare with NumPy."""
    x = np.random.default_rng(0).standard_normal((512, 8192)).astype(np.float32)
    exact = x.astype(np.float64)
    with webmm.Device() as gpu:
        on_gpu = gpu.array(x)
        for name, mine, wanted in (
            ("root mean square", root_mean_square, np.sqrt((exact**2).mean(axis=1))),
            ("log-sum-exp", logsumexp, np.log(np.exp(exact).sum(axis=1))),
            ("largest", largest, exact.max(axis=1)),
            ("its place", place, exact.argmax(axis=1)),
            ("variance", "var", exact.var(axis=1)),
        ):
            got = webmm.reduce(on_gpu, mine, axis=1).numpy()
            print(f"{name}: {got.dtype}, right: {np.allclose(got, wanted, rtol=1e-5)}")


if __name__ == "__main__":
    main()
