"""Benefit and cost of `precision="high"`: times of a call and of its kernel, and errors, compared with "highest".

    python bench/precision.py --engine dawn bench/results/my-gpu-precision.json

Calls are `gemm()` into an array, timed as in `calls.py`; kernels are timed by the device's clock, with all their
dispatches. If PyTorch has a CUDA device, cuBLAS is timed as well. Errors are the largest and the mean |C - Ĉ|, compared
with NumPy in float64, in units of 2⁻²⁴·(|A|·|B|), over rows spread over C. They are written to a second file,
my-gpu-precision-errors.json.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import peers
from numpy.typing import NDArray
from results import header

import webmm
from webmm import Device
from webmm.engine.timing import time_calls, time_launch
from webmm.measure.bench import record_of
from webmm.measure.records import Record, lines, provenance, save, to_json
from webmm.measure.verify import Checker
from webmm.problems.gemm import PRECISIONS, gemm

Floats = NDArray[np.float32]
ROWS = 64  # of C are compared


def spread(octaves: float) -> Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]:
    """Return a function that draws signed numbers ±2^e with e uniform in [-octaves, octaves)."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
        sign = rng.integers(0, 2, shape, np.int8) * np.float32(2) - 1
        return np.asarray(sign * np.exp2(rng.random(shape, np.float32) * 2 * octaves - octaves))

    return draw


DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]] = {
    "signed": lambda rng, shape: rng.random(shape, np.float32) * 2 - 1,
    "positive": lambda rng, shape: rng.random(shape, np.float32),
    "normal": lambda rng, shape: rng.standard_normal(shape, np.float32),
    "2^±20": spread(20),
    "2^±60": spread(60),
}


def timed(device: Device, n: int, precision: Any, a: webmm.Array, b: webmm.Array) -> tuple[Record, Record]:
    """Return the records of a call at n³ and of the kernel that it runs."""
    with device.empty((n, n)) as c:
        device.choices.clear()
        call = lambda: webmm.gemm(a, b, c, precision=precision)  # noqa: E731
        call()
        ((_, problem, _), kernel) = next(iter(device.choices.items()))  # of the first part, if k is split
        of_call = record_of(
            device, gemm(n, n, n, precision=precision), kernel, timed=time_calls(call, device.synchronize, 0.25)
        )
        of_kernel = record_of(
            device, problem, kernel, timed=time_launch(device, device.launch(kernel, problem, a, b, c))
        )
    words = {"kernel": "call", "config": {"call": f"gemm, precision={precision}", "runs": kernel.name}}
    return Record(**{**vars(of_call), **words}), of_kernel


def errors(device: Device, k: int, m: int, n: int) -> list[dict[str, Any]]:
    """Return the errors of products (m, k) · (k, n) of each kind of operands, in each precision."""
    rng, rows = np.random.default_rng(k), np.linspace(0, m - 1, min(m, ROWS)).astype(int)
    found = []
    for data, draw in DRAWS.items():
        a, b = draw(rng, (m, k)), draw(rng, (k, n))
        left, right = a[rows].astype(np.float64), b.astype(np.float64)
        exact, scale = left @ right, np.abs(left) @ np.abs(right)
        with device.array(a) as x, device.array(b) as y:
            for precision in PRECISIONS:
                with webmm.matmul(x, y, precision=precision) as c:
                    units = np.abs(c.numpy()[rows] - exact) / scale * 2.0**24
                largest, mean = float(units.max()), float(units.mean())
                found.append({"k": k, "data": data, "precision": precision, "largest": largest, "mean": mean})
                print(f"k = {k}, {data}, {precision}: {largest:.2f}, mean {mean:.3f}", flush=True)
    return found


@click.command()
@click.option("--adapter")
@click.option("--engine", default="dawn", show_default=True)
@click.option("--sizes", default="1024,2048,4096,8192", show_default=True)
@click.option("--ks", default="512,4096,32768", show_default=True, help="Inner sizes K at which errors are measured.")
@click.option("--shape", default="1024x2048", show_default=True, help="M×N at which errors are measured.")
@click.argument("output", type=click.Path(path_type=Path))
def main(adapter: str | None, engine: str, sizes: str, ks: str, shape: str, output: Path) -> None:
    """Measure times and errors; write the records to OUTPUT and the errors to a second file next to it."""
    records: list[Record] = []
    with Device(adapter, engine=engine) as device:
        about = header(device.engine.version(), device.info)
        for n in map(int, sizes.split(",")):
            rng = np.random.default_rng(n)
            left, right = (DRAWS["signed"](rng, (n, n)) for _ in range(2))
            if peers.available():
                problem = gemm(n, n, n)
                records.append(peers.cublas(problem, Checker(problem, left, right), float("nan")))
                print(f"{n}³, cuBLAS: {(records[-1].gflops or 0) / 1e3:.1f} TFLOP/s", flush=True)
            with device.array(left) as a, device.array(right) as b:
                for precision in PRECISIONS:
                    both = timed(device, n, precision, a, b)
                    records += both
                    rates = [f"{record.gflops / 1e3:.1f}" for record in both if record.gflops]
                    print(f"{n}³, {precision}: {' and '.join(rates)} TFLOP/s, a call and {both[1].kernel}", flush=True)
            save(output, to_json(records, **provenance()))
        m, columns = map(int, shape.split("x"))
        found = [row for k in map(int, ks.split(",")) for row in errors(device, k, m, columns)]
    save(output.with_name(f"{output.stem}-errors.json"), lines({**about, "records": found}))


if __name__ == "__main__":
    main()
