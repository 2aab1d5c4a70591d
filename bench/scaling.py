"""One product on several devices of a host, beside one of them, and beside what the plan says.

    python bench/scaling.py [--json FILE] [--resident N,...] [--numpy N,...] [--repeat COUNT]

Devices are all GPUs (`webmm.devices()`; WEBMM_ADAPTER chooses among them). Resident products have A's rows divided, B
on each device, and a wait for all at the end; the others go from NumPy to NumPy by `matmul(..., devices=...)`. Times
are medians by the wall clock; the plan takes a device to do 50 TFLOP/s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import webmm
from webmm import Device
from webmm.calls.divided import BANDWIDTH
from webmm.calls.scaling import Worker, cuts, plan


def main() -> None:
    """Print what is measured, and write it as JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--resident", default="4096,16384,28672", help="orders of resident products")
    parser.add_argument("--numpy", default="4096,16384,32768", help="orders of products from NumPy to NumPy")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    devices = webmm.devices()
    counts = sorted({1, len(devices)} | {2**i for i in range(len(devices).bit_length()) if 2**i <= len(devices)})
    rows = [
        measured(kind, n, devices[:count], options.repeat)
        for kind in ("resident", "numpy")
        for n in map(int, filter(None, getattr(options, kind).split(",")))
        for count in counts
    ]
    first: dict[tuple[str, int], float] = {}
    for row in rows:
        alone = first.setdefault((row["kind"], row["n"]), row["seconds"])
        row["speedup"] = alone / row["seconds"]
        planned = f", planned {row['planned']:.3f} s" if row["planned"] else ""
        print(f"{row['kind']} {row['n']}³ on {row['devices']}: {row['seconds']:.3f} s, {row['speedup']:.2f} ×{planned}")
    if options.json:
        info = [device.info.to_json() for device in devices]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"adapters": info, "engine": devices[0].engine.version(), "rows": rows}, file, indent=1)


def measured(kind: str, n: int, devices: Sequence[Device], repeat: int) -> dict[str, Any]:
    """Return the median time of a product of order `n` on all of these devices."""
    a, b = (np.random.default_rng(i).random((n, n), np.float32) for i in range(2))
    planned = 0.0
    if kind == "resident":
        parts = cuts(n, [1.0] * len(devices))
        x = [device.array(a[part]) for device, part in zip(devices, parts, strict=True)]
        y = [device.array(b) for device in devices]
        took = seconds(lambda: resident(x, y), repeat)
        for array in (*x, *y):
            array.free()
    else:
        c = np.empty((n, n), np.float32)
        took = seconds(lambda: webmm.matmul(a, b, out=c, devices=list(devices)), repeat)
        workers = [Worker(5e13, device.memory, BANDWIDTH[device.info.kind]) for device in devices]
        planned = plan(n, n, n, workers).seconds
    return {"kind": kind, "n": n, "devices": len(devices), "seconds": took, "planned": planned}


def resident(x: list[webmm.Array], y: list[webmm.Array]) -> None:
    """Multiply the panels, and wait for all."""
    for c in webmm.matmul(x, y):
        c[:1, :1].numpy()
        c.free()


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Return the median after one that warms up."""
    work()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
