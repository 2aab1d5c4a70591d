"""Cost of data transfers, by the wall clock until the data is usable: in isolation, and for products of NumPy arrays.

    python bench/transfers.py [--json FILE] [--adapter NAME[,NAME...]] [--engine NAME] [--sizes MIB,...]
        [--products N,...] [--variants]

Rates are medians of several consecutive transfers, as `device.array()` and `numpy()` make them. One element is read
back, with and without a preceding product of 64³. A product of order N is computed from NumPy to NumPy; it is compared
with the transfers of its operands and its result, with the product of resident operands, and with PyTorch through CUDA
(pageable memory, TF32 off) if that is installed. `--variants` tries chunk sizes, numbers of threads and numbers of
staging buffers. Several adapters, such as 0,1, are also used at the same time, by one thread each, with the rows of the
product divided.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peers
from results import header

import webmm
from webmm import Device
from webmm.engine.transfer import CHUNK, DEPTH, THREADS, Staging
from webmm.measure.records import lines, save

SIZES = (1, 16, 256, 1024)  # MiB
PRODUCTS = (64, 1024, 4096, 8192, 16384)
CHUNKS = (4, 8, 16)  # MiB
WORKERS = ((4, 8), (8, 8), (8, 16), (16, 16), (16, 32))  # threads, staging buffers
SECONDS = 1.5  # of repetitions per measurement, at most


def main() -> None:
    """Print the measurements, and write them to the file given by --json, if any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--adapter")
    parser.add_argument("--engine")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--products", default=",".join(map(str, PRODUCTS)))
    parser.add_argument("--variants", action="store_true")
    options = parser.parse_args()
    names = options.adapter.split(",") if options.adapter else [None]
    devices = [Device(int(name) if name and name.isdigit() else name, engine=options.engine) for name in names]
    first = devices[0]
    print(first.info, flush=True)
    found = header(first.engine.version(), *(device.info for device in devices))
    found["rates"] = rates(devices, [int(size) for size in options.sizes.split(",") if size], options.variants)
    found["read_us"] = reading(first)
    found["products"] = [
        row
        for n in map(int, filter(None, options.products.split(",")))
        for row in (product(n, devices[:1]), *([product(n, devices)] if len(devices) > 1 else []))
    ]
    if options.json:
        save(Path(options.json), lines(found))
    for device in devices:
        device.close()


def seconds(work: Callable[[], object]) -> float:
    """Return the median of three to fifty repetitions, as many as fit SECONDS, after a warm-up."""
    work()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < SECONDS and len(times) < 50):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def at_once(work: Callable[[int, Device], object], devices: Sequence[Device]) -> None:
    """Call work(i, device) for each device; several devices are used at once, each by one thread."""
    if len(devices) == 1:
        work(0, devices[0])
        return
    threads = [threading.Thread(target=work, args=each) for each in enumerate(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rates(devices: list[Device], sizes: list[int], variants: bool) -> list[dict[str, Any]]:
    """Return the total rates of transfers, in GB/s, to and from one device, and to and from all devices at once."""
    settings = list(itertools.product(CHUNKS, WORKERS)) if variants else [(CHUNK // 2**20, (THREADS, DEPTH))]
    rows = []
    print("devices   MiB chunk threads buffers     up   down  GB/s")
    for (chunk, (threads, depth)), used in itertools.product(settings, {1, len(devices)}):
        for device in devices[:used]:
            device.staging = Staging(device.guard, device.submissions, chunk * 2**20, threads, depth)
        for mib in sizes:
            up, down = rate(devices[:used], mib)
            print(f"{used:7} {mib:5} {chunk:5} {threads:7} {depth:7} {up:6.2f} {down:6.2f}", flush=True)
            keys = ("devices", "mib", "chunk_mib", "threads", "buffers", "upload_gb_s", "download_gb_s")
            rows.append(dict(zip(keys, (used, mib, chunk, threads, depth, round(up, 2), round(down, 2)), strict=True)))
    return rows


def rate(devices: list[Device], mib: int) -> tuple[float, float]:
    """Return the total (upload, download) rates in GB/s, with an array of `mib` MiB for each device at once."""
    data = np.random.default_rng(0).integers(0, 2**32, mib * 2**18, np.uint32).view(np.float32)
    arrays = [device.array(data) for device in devices]
    back: dict[int, Any] = {}

    def up(i: int, device: Device) -> None:
        device.upload(data, arrays[i])
        device.synchronize()

    def down(i: int, device: Device) -> None:
        back[i] = device.download(arrays[i])

    times = [seconds(lambda work=work: at_once(work, devices)) for work in (up, down)]  # type: ignore[misc]
    assert all(np.array_equal(x.view(np.uint32), data.view(np.uint32)) for x in back.values())
    for array in arrays:
        array.free()
    return tuple(len(devices) * data.nbytes / taken / 1e9 for taken in times)  # type: ignore[return-value]


def reading(device: Device) -> dict[str, float]:
    """Return the µs until one element is read back: in isolation, and after a product of 64³."""
    a, b, c = (device.array(np.ones((64, 64), np.float32)) for _ in range(3))
    found = {
        "alone": round(1e6 * seconds(lambda: c[:1, :1].numpy()), 1),
        "after gemm 64³": round(1e6 * seconds(lambda: webmm.gemm(a, b, c)[:1, :1].numpy()), 1),
        "after A @ B 64³": round(1e6 * seconds(lambda: (a @ b)[:1, :1].numpy()), 1),
        "gemm 64³ queued": round(1e6 * seconds(lambda: webmm.gemm(a, b, c)), 1),
    }
    print(f"one element, µs: {found}", flush=True)
    return found


def product(n: int, devices: list[Device]) -> dict[str, Any]:
    """Return the milliseconds of a product of order n from NumPy to NumPy, and of its transfers and multiplication."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (n, n)).astype(np.float32) for _ in range(2))
    strip = -(-n // len(devices))
    parts: dict[int, Any] = {}

    def multiply(i: int, device: Device) -> None:
        parts[i] = webmm.matmul(a[i * strip : (i + 1) * strip], b, device=device)

    row: dict[str, Any] = {"n": n, "devices": len(devices)}
    row["webmm"] = seconds(lambda: at_once(multiply, devices))
    assert np.array_equal(parts[0][:2], a[:2] @ b)
    if len(devices) == 1:
        (device,) = devices
        x, y, z = (device.array(each) for each in (a, b, a))
        row["moving"] = sum(seconds(lambda x=x: (device.upload(a, x), device.synchronize())) for x in (x, y))  # type: ignore[misc]
        row["moving"] += seconds(z.numpy)
        row["multiplying"] = seconds(lambda: (webmm.gemm(x, y, z), device.synchronize()))
        for array in (x, y, z):
            array.free()
        row["torch"] = in_pytorch(a, b)
    row = {key: round(1e3 * value, 3) if isinstance(value, float) else value for key, value in row.items()}
    print(f"NumPy to NumPy, ms: {row}", flush=True)
    return row


def in_pytorch(a: Any, b: Any) -> float | None:
    """Return the seconds of the same product in PyTorch through CUDA; None if PyTorch or CUDA is missing."""
    if not peers.available():
        return None
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    left, right = (torch.from_numpy(x) for x in (a, b))
    taken = seconds(lambda: (left.cuda() @ right.cuda()).cpu().numpy())
    torch.cuda.empty_cache()
    return taken


if __name__ == "__main__":
    main()
