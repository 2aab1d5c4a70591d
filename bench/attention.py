"""Attention of known shapes beside PyTorch's, device time of both: flash, memory-efficient and cuDNN's kernels.

    python bench/attention.py --adapter gpu --engine dawn FILE.json

Each problem takes the kernel that webmm chooses. PyTorch, if it is there with a GPU, measures the same shapes with
whichever of its kernels take them; a kernel that has no grouped heads gets keys and values repeated beforehand. Below
the products stands the share of a copy's bandwidth that single queries reach, which read keys and values once: in the
device's time, and in that of public calls one after another, by the wall clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
from results import header

from webmm import attention
from webmm.cases import OPS
from webmm.cases.attention import plain
from webmm.choose import choose
from webmm.dtypes import F16, F32, DType
from webmm.engine.device import Device
from webmm.engine.timing import time_calls
from webmm.measure import roofline
from webmm.measure.bench import measure
from webmm.measure.records import lines
from webmm.problems.attention import Attention, dense_heads

REPEATS, WARM_UP = 20, 0.3  # of PyTorch's calls; seconds
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")


def grouped(batch: int, heads: int, kv_heads: int, keys: int, width: int, dtype: DType) -> Attention:
    """Return the problem of a single query for heads that share keys."""
    q, k = dense_heads(heads, 1, width), dense_heads(kv_heads, keys, width)
    problem = plain((batch, heads, 1, keys, width), dtype)
    return dataclasses.replace(problem, kv_heads=kv_heads, q=q, o=q, k=k, v=k)


PROBLEMS = {
    "16 x 4096 x 128 float16": plain((1, 16, 4096, 4096, 128), F16),
    "16 x 4096 x 128 float16, causal": plain((1, 16, 4096, 4096, 128), F16, True),
    "32 x 1024 x 64 float16": plain((1, 32, 1024, 1024, 64), F16),
    "32 x 1024 x 64 float16, causal": plain((1, 32, 1024, 1024, 64), F16, True),
    "12 x 1024 x 64 float32": plain((1, 12, 1024, 1024, 64), F32),
    **{
        f"one query, 32 heads over 8, {keys} keys x 128 float16": grouped(1, 32, 8, keys, 128, F16)
        for keys in (8192, 32_768, 131_072)
    },
    "8 of one query, 32 heads over 8, 8192 keys x 128 float16": grouped(8, 32, 8, 8192, 128, F16),
    "2 of one query, 32 heads, 8192 keys x 128 float16": grouped(2, 32, 32, 8192, 128, F16),
}


def in_torch(torch: Any, p: Attention) -> dict[str, float]:
    """Return the µs of each of PyTorch's kernels that takes the problem."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype, attend = getattr(torch, p.dtype.name), torch.nn.functional.scaled_dot_product_attention
    shapes = ((p.heads, p.queries), (p.kv_heads, p.keys), (p.kv_heads, p.keys))
    q, k, v = (torch.randn(p.batch, heads, n, p.width, device="cuda", dtype=dtype) for heads, n in shapes)
    found = {}
    for backend in BACKENDS:
        for repeated in (1, p.heads // p.kv_heads):
            keys, values = (x.repeat_interleave(repeated, 1) for x in (k, v))
            shared = keys.shape[1] != p.heads

            def call(keys: Any = keys, values: Any = values, shared: bool = shared) -> Any:
                return attend(q, keys, values, is_causal=p.right >= 0, enable_gqa=shared)

            with suppress(RuntimeError), sdpa_kernel(getattr(SDPBackend, backend)):
                found[backend] = timed(torch, call)
                break
    return found


def timed(torch: Any, call: Callable[[], Any]) -> float:
    """Return the µs of the fastest of some calls, by the GPU's clock."""
    times = []
    for _ in range(REPEATS + 5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return float(min(times[5:]))


def called(device: Device, p: Attention) -> float:
    """Return the µs of a public call, of many that are queued, by the wall clock."""
    shapes = ((p.batch, p.heads, p.queries, p.width), *[(p.batch, p.kv_heads, p.keys, p.width)] * 2)
    rng = np.random.default_rng(0)
    q, k, v = (device.array(rng.standard_normal(shape, np.float32), p.dtype.name) for shape in shapes)
    return time_calls(lambda: attention(q, k, v), device.synchronize).median_us


def rows(device: Device, torch: Any) -> Iterator[dict[str, Any]]:
    """Yield what was measured of each problem."""
    copy = roofline.measure(device).gbytes
    op = OPS["attention"]
    for words, problem in PROBLEMS.items():
        kernel = choose(problem, device, "off")
        record = measure(device, kernel, op.case(device, problem), warm_up=WARM_UP)
        row: dict[str, Any] = {"problem": words, "kernel": str(kernel), "status": record.status}
        if record.best_us:
            row |= {"us": round(record.best_us, 1), "tflops": round(problem.flops / record.best_us / 1e6, 1)}
        if record.best_us and problem.queries == 1:
            wall = called(device, problem)
            row["of_copy"] = round(problem.bytes / record.best_us / 1e3 / copy, 2)
            row |= {"wall_us": round(wall, 1), "wall_of_copy": round(problem.bytes / wall / 1e3 / copy, 2)}
        yield row | {name: round(us, 1) for name, us in (in_torch(torch, problem) if torch else {}).items()}


@click.command(help=__doc__)
@click.option("--adapter", default="gpu", show_default=True)
@click.option("--engine", default="auto", show_default=True)
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
def main(adapter: str, engine: str, output: Path) -> None:
    """Measure all problems, print a line for each and write them to OUTPUT."""
    torch: Any = None
    with suppress(ImportError):
        import torch
    torch = torch if torch and torch.cuda.is_available() else None
    with Device(adapter=adapter, engine=engine) as device:
        found = []
        for row in rows(device, torch):
            print(row, flush=True)
            found.append(row)
        about = header(device.engine.version(), device.info)
    output.write_text(lines({**about, "problems": found}), encoding="utf-8")


if __name__ == "__main__":
    main()
