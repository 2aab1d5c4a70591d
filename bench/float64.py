"""float64 products at one size by each kernel, compared with NumPy and, with CUDA, cuBLAS; prints a JSON line each.

    python bench/float64.py --size 4096 --engine wgpu --out OUT.json

Times are wall-clock times per product of resident matrices: several products are queued and waited for once; the
fastest of three rounds counts, after a warm-up of half a second. `error` is the largest error in a few rows, compared
with longdouble, as a multiple of K·2⁻⁵²·(|A|·|B|), or of K·2⁻⁴⁰·(|A|·|B|) with --precision high.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from results import header

import webmm
from webmm.dtypes import F64
from webmm.errors import WebmmError
from webmm.kernels.base import Capabilities, Kernel
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.measure.records import lines, save
from webmm.problems.gemm import PRECISIONS, gemm

WARM_UP = 0.5  # seconds
ROWS = 6  # checked per result


def seconds(queue: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the time of one call, in seconds."""
    queue()
    wait()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < WARM_UP:
        queue()
        wait()
        count += 1
    times = []
    repeats = max(1, count // 2)
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(repeats):
            queue()
        wait()
        times.append((time.perf_counter() - start) / repeats)
    return min(times)


def error_of(a: Any, b: Any, eps: float) -> Callable[[Any], float]:
    """Return a function that computes a result's largest error in some rows, as a multiple of the promised bound."""
    rows = np.unique(np.linspace(0, len(a) - 1, ROWS).astype(int))
    x, y = a[rows].astype(np.longdouble), b.astype(np.longdouble)
    expected, allowed = x @ y, a.shape[1] * eps * (abs(x) @ abs(y))
    return lambda got: float((abs(got[rows] - expected) / allowed).max())


def kernels(capabilities: Capabilities, kind: str, size: int) -> Iterator[Kernel[Any]]:
    """Yield the kernels to time."""
    native = F64.features <= capabilities.features
    if native and kind == "cpu":
        yield from (CpuLanes(tm=16), CpuLanes())
    elif native:
        yield from (Pipelined(**tiles) for tiles in TILES)
    if kind == "cpu":
        yield Slices()
    else:
        yield from (Slices(*tiles) for tiles in SLICE_TILES)
        if capabilities.matrix_shapes:
            unit = SlicesUnit.on(capabilities)
            yield from (dataclasses.replace(unit, **tiles) for tiles in UNIT_TILES)
    if size <= 1024:
        yield Software()


TILES: tuple[dict[str, Any], ...] = (
    {},
    {"bm": 128, "bn": 128},
    {"bm": 128, "bn": 128, "order": "rows"},
    {"bm": 128, "bn": 128, "bk": 8, "unroll": 8},
    {"bk": 8, "unroll": 8},
    {"bn": 64, "bk": 8, "unroll": 8},
    {"bm": 128, "bn": 128, "tn": 4},
    {"tn": 4},
)
UNIT_TILES: tuple[dict[str, Any], ...] = (
    {},
    {"sn": 32},
    {"bm": 64, "bn": 64, "sm": 32, "sn": 32},
    {"bm": 32, "bn": 32, "sm": 16, "sn": 32},
)
SLICE_TILES = ((64, 64, 8, 8, 8), (128, 128, 8, 8, 8), (64, 128, 8, 8, 8), (128, 64, 16, 8, 8), (64, 64, 8, 8, 4))


def cublas(a: Any, b: Any) -> float | None:
    """Return the time of PyTorch's product on the GPU, in seconds; None without PyTorch or CUDA."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    return seconds(lambda: torch.matmul(x, y), torch.cuda.synchronize)


def main() -> None:
    """Print and write a line for each kernel and each reference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--engine", default="wgpu")
    parser.add_argument("--adapter")
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0])
    parser.add_argument("--alone", action="store_true", help="skip NumPy and cuBLAS")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    n, rng = options.size, np.random.default_rng(0)
    a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    rows: list[dict[str, Any]] = []
    problem = gemm(n, n, n, dtype=F64, precision=options.precision)
    error = error_of(a, b, problem.eps)

    def add(way: str, taken: float, largest: float | None = None) -> None:
        named = {"engine": engine, "precision": options.precision, "way": way, "size": n}
        rows.append({**named, "seconds": taken, "gflops": 2e-9 * n**3 / taken, "error": largest})
        print(json.dumps(rows[-1]), flush=True)

    with webmm.Device(options.adapter, engine=options.engine) as device:
        engine = device.engine.version()
        about = header(engine, device.info)
        x, y, c = device.array(a), device.array(b), device.empty((n, n), F64)
        for kernel in kernels(device.capabilities, device.info.kind, n):
            try:
                taken = seconds(lambda k=kernel: device.run(k, problem, x, y, c), device.synchronize)  # type: ignore[misc]
            except WebmmError as refused:
                print(json.dumps({"way": str(kernel), "refused": str(refused)[:200]}), flush=True)
                continue
            add(str(kernel), taken, error(c.numpy()))
        matmul = functools.partial(webmm.matmul, precision=options.precision)
        add("matmul, resident", seconds(lambda: matmul(x, y), device.synchronize))
        add("matmul of NumPy arrays", seconds(lambda: matmul(a, b, device=device), lambda: None))
    if not options.alone:
        add("NumPy", seconds(lambda: a @ b, lambda: None))
        if (taken_by_cublas := cublas(a, b)) is not None:
            add("cuBLAS (torch)", taken_by_cublas)
    if options.out:
        save(options.out, lines({**about, "records": rows}))


if __name__ == "__main__":
    main()
