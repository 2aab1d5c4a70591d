"""One product on several devices of a host, beside one of them, and beside what the plan says.

    python bench/scaling.py --json FILE [--resident N,...] [--numpy N,...] [--adapters I,...] [--limit S] [--budget S]

Each row is a process of its own, killed after `--limit` seconds, and is written and printed when it is measured; rows
that would begin after `--budget` seconds are left out. Adapters are all GPUs, or indices (`webmm info`), of which one
that is named twice stands for two.

First comes how fast bytes move, to one device and to all at once, then products of operands that stay, A's rows divided
and B on each device; the plan is asked with these rates what to expect. Then products from NumPy to NumPy by
`matmul(..., devices=...)`. Times are medians by the wall clock, after one that warms up.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import webmm
from webmm import Device
from webmm.calls.divided import worker_of
from webmm.calls.scaling import Plan, Worker, cuts, plan
from webmm.dtypes import F32
from webmm.engine.devices import chosen_adapters

ENOUGH = 2.0  # seconds of one row's measurements, three of them at least


class Job(NamedTuple):
    """A row: a matrix of order `n` that moves ("moves"), or is multiplied, on so many devices."""

    kind: str
    n: int
    devices: int


def main() -> None:
    """Measure row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--resident", default="16384,28672,4096,1024", help="orders of resident products")
    parser.add_argument("--numpy", default="32768,16384,4096,1024", help="orders of products from NumPy to NumPy")
    parser.add_argument("--moves", type=int, default=16384, help="order of the matrix that is moved")
    parser.add_argument("--adapters", help="indices; all GPUs by default")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a row")
    parser.add_argument("--budget", type=float, default=280, help="seconds for all")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # a row, in the process that measures it
    options = parser.parse_args()
    indices = _numbers(options.adapters) or [info.index for info in chosen_adapters()]
    if options.only:
        kind, n, count = options.only.split(",")
        print(json.dumps(measured(Job(kind, int(n), int(count)), indices)))
        return
    known = {info.index: info.to_json() for info in chosen_adapters()}
    result: dict[str, Any] = {"adapters": [known[i] for i in indices], "webmm": webmm.__version__, "rows": []}
    began = time.perf_counter()
    for job in jobs(options, len(indices)):
        left = options.budget - (time.perf_counter() - began)
        row = in_a_process(job, indices, min(options.limit, left)) if left > 0 else {"failed": "no time left"}
        result["rows"].append({**job._asdict(), **row})
        expect(result["rows"])
        with open(options.json + ".new", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
        os.replace(options.json + ".new", options.json)
        print(words(result["rows"][-1]), flush=True)


def _numbers(text: str | None) -> list[int]:
    return [int(number) for number in (text or "").split(",") if number]


def jobs(options: argparse.Namespace, devices: int) -> Iterator[Job]:
    """Yield the rows, one device before two, four … and all."""
    counts = sorted({devices, *(2**i for i in range(devices.bit_length()) if 2**i <= devices)})
    orders = [("moves", options.moves)]
    orders += [(kind, n) for kind in ("resident", "numpy") for n in _numbers(getattr(options, kind))]
    for kind, n in orders:
        for count in counts:
            yield Job(kind, n, count)


def in_a_process(job: Job, indices: Sequence[int], limit: float) -> dict[str, Any]:
    """Return what a process measures, or why it "failed"."""
    names = ",".join(map(str, indices))
    command = [sys.executable, __file__, "--json", "-", "--adapters", names, "--only", ",".join(map(str, job))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(job: Job, indices: Sequence[int]) -> dict[str, Any]:
    """Return the times of a row, in seconds, and what the plan needs to know of the devices."""
    devices = [Device(index) for index in indices[: job.devices]]
    a, b = matrix(job.n, 0), matrix(job.n, 1)
    workers = [worker_of(device, F32) for device in devices]
    row: dict[str, Any] = {"memory": workers[0].memory, "largest": workers[0].largest}
    if job.kind == "moves":
        return row | moves(a, devices)
    if job.kind == "resident":
        parts = cuts(job.n, [1.0] * len(devices))
        x = [device.array(a[part]) for device, part in zip(devices, parts, strict=True)]
        y = [device.array(b) for device in devices]
        return row | timed(lambda: resident(x, y)) | {"used": len(devices)}
    c = np.empty((job.n, job.n), np.float32)
    times = timed(lambda: webmm.matmul(a, b, out=c, devices=devices))
    at = slice(job.n // 2, job.n // 2 + 2)  # two rows and two columns, where shares meet
    error = max(np.abs(c[at] - a[at] @ b).max(), np.abs(c[:, at] - a @ b[:, at]).max())
    return row | times | {"used": len(plan(job.n, job.n, job.n, workers).shares), "error": float(error) / job.n}


def matrix(n: int, seed: int) -> NDArray[np.float32]:
    """Return an (n, n) matrix of numbers from 0 to 1, of which some 1,000 rows are drawn and repeated."""
    rows = np.random.default_rng(seed).random((min(n, 1021), n), np.float32)
    return np.tile(rows, (math.ceil(n / len(rows)), 1))[:n]


def moves(a: NDArray[np.float32], devices: Sequence[Device]) -> dict[str, Any]:
    """Return how long `a` takes to each of the devices, all at once, and back."""
    arrays, back = [device.array(a) for device in devices], [np.empty_like(a) for _ in devices]
    everyone = list(zip(devices, arrays, back, strict=True))

    def up(device: Device, array: webmm.Array, _: NDArray[Any]) -> None:
        device.upload(a, array)
        device.synchronize()

    def down(device: Device, array: webmm.Array, into: NDArray[Any]) -> None:
        device.download(array, into)

    with ThreadPoolExecutor(len(devices)) as pool:
        there = timed(lambda: list(pool.map(lambda each: up(*each), everyone)))
        here = timed(lambda: list(pool.map(lambda each: down(*each), everyone)))
    bytes_per_second = 2 * a.nbytes * len(devices) / (there["seconds"] + here["seconds"])
    return {"up": there["seconds"], "down": here["seconds"], "bytes_per_second": bytes_per_second}


def resident(x: list[webmm.Array], y: list[webmm.Array]) -> None:
    """Multiply the panels, and wait for all."""
    results = webmm.matmul(x, y)
    for c in results:
        c.device.synchronize()
        c.free()


def timed(work: Callable[[], object]) -> dict[str, Any]:
    """Return the median, the least and the number of times, after one that warms up."""
    work()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < ENOUGH and len(times) < 50):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return {"seconds": statistics.median(times), "least": min(times), "repeats": len(times)}


def expect(rows: list[dict[str, Any]]) -> None:
    """Write into the last row its speedup over one device, and what the plan expects by what was measured before."""
    row, n = rows[-1], rows[-1]["n"]
    if "seconds" not in row:
        return

    row["tflops"] = 2e-12 * n**3 / row["seconds"]
    alone = [r for r in rows if r["devices"] == 1 and "seconds" in r]
    same = [r["seconds"] for r in alone if (r["kind"], r["n"]) == (row["kind"], n)]
    row["speedup"] = same[0] / row["seconds"] if same else None
    rate = max((1e12 * r["tflops"] for r in alone if r["kind"] == "resident"), default=0.0)
    sent = {r["devices"]: r["bytes_per_second"] for r in rows if r["kind"] == "moves" and "up" in r}
    if rate and (row["kind"] == "resident" or {1, row["devices"]} <= sent.keys()):
        row["expected"] = expected(row, rate, sent).seconds


def expected(row: dict[str, Any], rate: float, sent: dict[int, float]) -> Plan:
    """Return the plan for devices of this rate, to which so many bytes per second can be sent."""
    n, count = row["n"], row["devices"]
    if row["kind"] == "resident":
        return plan(n, n, n, [Worker(rate)] * count)
    worker = Worker(rate, row["memory"], sent[1], row["largest"])
    return plan(n, n, n, [worker] * count, host=sent[count])


def words(row: dict[str, Any]) -> str:
    """Return a row in words."""
    name = f"{row['kind']:9}{row['n']:6}{'²' if row['kind'] == 'moves' else '³'} on {row['devices']}: "
    if "up" in row:
        return name + f"up {row['up']:.4f} s, down {row['down']:.4f} s, {row['bytes_per_second'] / 1e9:.1f} GB/s"
    if "seconds" not in row:
        return name + str(row["failed"])
    more = f", {row['speedup']:.2f} ×" if row["speedup"] else ""
    more += f", expected {row['expected']:.4f} s" if "expected" in row else ""
    more += f", {row['used']} used" if row["used"] < row["devices"] else ""
    return name + f"{row['seconds']:.4f} s, {row['tflops']:.1f} TFLOP/s{more}"


if __name__ == "__main__":
    main()
