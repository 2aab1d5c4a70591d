"""How fast matrices move between NumPy and a device, in GB/s of host time until the data is usable.

    python bench/transfers.py [--json FILE] [--variants] [--adapter NAME] [--sizes MIB,MIB,...] [--product N]

Each figure is the median of several transfers in a row, each into a fresh array on the other side, as `device.array()`
and `numpy()` do it. `--variants` tries several chunk sizes, threads and numbers of staging buffers. `--product` times
N × N × N products from NumPy to NumPy as well: with all of it on the device, and in half the memory of one operand.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from typing import Any

import numpy as np

import webmm
from webmm import Device
from webmm.engine.transfer import CHUNK, DEPTH, THREADS, Staging

SIZES = (1, 16, 256, 1024)  # MiB
CHUNKS = (4, 8, 16, 32)  # MiB
WORKERS = ((1, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16))  # threads, staging buffers


def main() -> None:
    """Print the table, and write it as JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--adapter")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--product", metavar="N", type=int)
    options = parser.parse_args()
    ours = (CHUNK // 2**20, (THREADS, DEPTH))
    settings = list(itertools.product(CHUNKS, WORKERS)) if options.variants else [ours]
    rows = []
    with Device(options.adapter) as device:
        print(f"{device.info}\n{'MiB':>5} {'chunk MiB':>9} {'threads':>7} {'buffers':>7} {'up':>6} {'down':>6}  GB/s")
        for chunk, (threads, depth) in settings:
            device.staging = Staging(device.guard, chunk * 2**20, threads, depth)
            for size in map(int, options.sizes.split(",")):
                up, down = measure(device, size)
                print(f"{size:5} {chunk:9} {threads:7} {depth:7} {up:6.2f} {down:6.2f}", flush=True)
                keys = ("mib", "chunk_mib", "threads", "buffers", "upload_gb_s", "download_gb_s")
                rows.append(dict(zip(keys, (size, chunk, threads, depth, round(up, 2), round(down, 2)), strict=True)))
        products = product(device, options.product) if options.product else {}
        if options.json:
            write(options.json, device, rows, products)


def measure(device: Device, mib: int) -> tuple[float, float]:
    """Return (upload, download) in GB/s of arrays of `mib` MiB."""
    data = np.random.default_rng(0).integers(0, 2**32, mib * 2**18, np.uint32).view(np.float32)
    repeats = max(3, min(20, 1024 // mib))
    up, down = [], []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        array = device.array(data)
        device.synchronize()
        up.append(time.perf_counter() - start)
        start = time.perf_counter()
        back = array.numpy()
        down.append(time.perf_counter() - start)
        array.free()
    assert np.array_equal(back.view(np.uint32), data.view(np.uint32))
    first = 1  # makes the staging buffers
    return tuple(data.nbytes / statistics.median(times[first:]) / 1e9 for times in (up, down))  # type: ignore[return-value]


def product(device: Device, n: int) -> dict[str, float]:
    """Return the seconds of a product of order n, whole and streamed, by the bytes that the device may spend."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((n, n), np.float32) for _ in range(2))
    out = np.empty((n, n), np.float32)
    expected = a[:1].astype(np.float64) @ b
    seconds = {}
    for words, memory in (("whole", 16 * n * n), ("streamed", 2 * n * n)):
        device.memory = memory
        times = []
        for _ in range(5):
            start = time.perf_counter()
            webmm.matmul(a, b, device=device, out=out)
            times.append(time.perf_counter() - start)
        assert np.allclose(out[:1], expected, rtol=1e-4)
        seconds[words] = round(statistics.median(times[1:]), 4)
        print(f"{n}³ from NumPy to NumPy, {words}: {seconds[words]} s", flush=True)
    return {"n": n, **seconds}


def write(path: str, device: Device, rows: list[dict[str, Any]], products: dict[str, float]) -> None:
    """Write the tables with what they were measured on."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"adapter": device.info.to_json(), "rows": rows, "product_seconds": products}, file, indent=1)


if __name__ == "__main__":
    main()
