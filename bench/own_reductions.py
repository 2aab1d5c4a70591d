"""Rates of reductions of your own, relative to that of the sum, in one run.

    python bench/own_reductions.py [ROWSxCOLUMNS]

Each of ROUNDS rounds times all of them, so that other work on the machine falls on all; the best time of each counts.
On a CPU adapter it is the CPU time of the process, which other work lengthens little.
"""

from __future__ import annotations

import sys
import time

import webmm
from webmm.cases import op_of
from webmm.choose import choose
from webmm.engine.timing import time_launch
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.problems.declared import declared

ROUNDS, LAUNCHES = 7, 3
ROOT_MEAN_SQUARE = webmm.Reduction(map="x * x", combine="a + b", identity=0.0, finish="sqrt(v / n)")
NAMES = {"sum": "sum", "x * x": declared(ROOT_MEAN_SQUARE).name, "norm": "norm", "var": "var"}


def seconds(gpu: webmm.Device, kernel: Kernel, problem: Problem, x: webmm.Array, y: webmm.Array) -> float:
    """Return the time of one launch: of the device, or of the CPU that computes it."""
    if gpu.info.kind != "cpu":
        return time_launch(gpu, gpu.launch(kernel, problem, x, y)).best_us / 1e6
    gpu.run(kernel, problem, x, y)
    y.numpy()
    start = time.process_time()
    for _ in range(LAUNCHES):
        gpu.run(kernel, problem, x, y)
    y.numpy()
    return (time.process_time() - start) / LAUNCHES


def main() -> None:
    """Print a line per reduction."""
    rows, columns = map(int, (sys.argv[1] if sys.argv[1:] else "8192x4096").split("x"))
    best = dict.fromkeys(NAMES, float("inf"))
    with webmm.Device() as gpu:
        print(f"{rows}×{columns} float32 on {gpu.info}")
        case = op_of("reduce:sum").case(gpu, op_of("reduce:sum").problem((rows, columns, 1), "float32"))
        problems = {
            label: op_of(f"reduce:{name}").problem((rows, columns, 1), "float32") for label, name in NAMES.items()
        }
        kernels = {label: choose(problem, gpu) for label, problem in problems.items()}
        y = gpu.empty((rows,))
        for _ in range(ROUNDS):
            for label, problem in problems.items():
                best[label] = min(best[label], seconds(gpu, kernels[label], problem, case.inputs["x"], y))
    for label, found in best.items():
        print(f"{label:6} {found * 1e3:8.3f} ms, {best['sum'] / found:.2f} × the rate of sum, by {kernels[label]}")


if __name__ == "__main__":
    main()
