"""One product on several devices of a host, compared with one device, and with the plan's prediction.

    python bench/scaling.py --json FILE [--resident N,...] [--numpy N,...] [--adapters I,...] [--limit S] [--budget S]

Each row is measured in a separate process, which is killed after `--limit` seconds, and is written and printed as soon
as it is done; rows that would start after `--budget` seconds are skipped. By default all GPUs are used; `--adapters`
takes indices (`webmm info`), and an index that is given twice counts as two devices.

The first rows measure transfers, to one device and to all at once; then products of resident operands, with A's rows
divided among the devices and B on each of them; then products from NumPy to NumPy by `matmul(..., devices=...)`. The
measured rates are given to the plan, whose prediction is shown. Times are medians by the wall clock, after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from results import header

import webmm
from webmm import Device
from webmm.calls.divided import worker_of
from webmm.config import settings
from webmm.cut.devices import Division, Worker, divided, proportional
from webmm.dtypes import F32
from webmm.engine.adapters import choose_engine
from webmm.engine.devices import chosen_adapters
from webmm.measure.records import lines, save

ENOUGH = 2.0  # seconds of measurements per row, of which there are at least three


class Job(NamedTuple):
    """A row: the transfer ("moves") or product ("resident", "numpy") of matrices of order `n` on `devices` devices."""

    kind: str
    n: int
    devices: int


def main() -> None:
    """Measure row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--resident", default="16384,28672,4096,1024", help="orders of resident products")
    parser.add_argument("--numpy", default="32768,16384,4096,1024", help="orders of products from NumPy to NumPy")
    parser.add_argument("--moves", type=int, default=16384, help="order of the matrix that is transferred")
    parser.add_argument("--adapters", help="indices; all GPUs by default")
    parser.add_argument("--limit", type=float, default=60, help="seconds per row")
    parser.add_argument("--budget", type=float, default=280, help="seconds for all rows")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # given to the process that measures this row
    options = parser.parse_args()
    indices = _numbers(options.adapters) or [info.index for info in chosen_adapters()]
    if options.only:
        kind, n, count = options.only.split(",")
        print(json.dumps(measured(Job(kind, int(n), int(count)), indices)))
        return
    known = {info.index: info for info in chosen_adapters()}
    engine, *_ = choose_engine(settings().engine, indices[0])
    about = header(engine.version(), *(known[i] for i in indices))
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    for job in jobs(options, len(indices)):
        left = options.budget - (time.perf_counter() - began)
        row = in_a_process(job, indices, min(options.limit, left)) if left > 0 else {"failed": "no time left"}
        rows.append({**job._asdict(), **row})
        expect(rows)
        save(Path(options.json), lines({**about, "records": rows}))
        print(words(rows[-1]), flush=True)


def _numbers(text: str | None) -> list[int]:
    return [int(number) for number in (text or "").split(",") if number]


def jobs(options: argparse.Namespace, devices: int) -> Iterator[Job]:
    """Yield the rows, each on one device, two, four …, and all devices."""
    counts = sorted({devices, *(2**i for i in range(devices.bit_length()) if 2**i <= devices)})
    orders = [("moves", options.moves)]
    orders += [(kind, n) for kind in ("resident", "numpy") for n in _numbers(getattr(options, kind))]
    for kind, n in orders:
        for count in counts:
            yield Job(kind, n, count)


def in_a_process(job: Job, indices: Sequence[int], limit: float) -> dict[str, Any]:
    """Measure a row in a new process; return its results, or {"failed": reason}."""
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
    """Return the times of a row, in seconds, and the devices' properties that the plan needs."""
    devices = [Device(index) for index in indices[: job.devices]]
    a, b = matrix(job.n, 0), matrix(job.n, 1)
    workers = [worker_of(device, F32) for device in devices]
    row: dict[str, Any] = {"memory": workers[0].memory, "largest": workers[0].largest}
    if job.kind == "moves":
        return row | moves(a, devices)
    if job.kind == "resident":
        cut = [slice(*at) for at in proportional(job.n, [1.0] * len(devices))]
        x = [device.array(a[rows]) for device, rows in zip(devices, cut, strict=True)]
        y = [device.array(b) for device in devices]
        return row | timed(lambda: resident(x, y)) | {"used": len(devices)}
    c = np.empty((job.n, job.n), np.float32)
    times = timed(lambda: webmm.matmul(a, b, out=c, devices=devices))
    at = slice(job.n // 2, job.n // 2 + 2)  # two rows and two columns, around the border between pieces
    error = max(np.abs(c[at] - a[at] @ b).max(), np.abs(c[:, at] - a @ b[:, at]).max())
    return row | times | {"used": len(divided((job.n,) * 3, workers).pieces), "error": float(error) / job.n}


def matrix(n: int, seed: int) -> NDArray[np.float32]:
    """Return an (n, n) matrix of numbers from 0 to 1; about 1,000 rows are drawn and then repeated."""
    rows = np.random.default_rng(seed).random((min(n, 1021), n), np.float32)
    return np.tile(rows, (math.ceil(n / len(rows)), 1))[:n]


def moves(a: NDArray[np.float32], devices: Sequence[Device]) -> dict[str, Any]:
    """Return the times of transferring `a` to all devices at once, and back."""
    arrays, back = [device.array(a) for device in devices], [np.empty_like(a) for _ in devices]
    everyone = list(zip(devices, arrays, back, strict=True))

    def up(device: Device, array: webmm.Array, _: NDArray[Any]) -> None:
        device.upload(a, array)
        device.synchronize()

    def down(device: Device, array: webmm.Array, into: NDArray[Any]) -> None:
        device.download(array, into)

    with ThreadPoolExecutor(len(devices)) as pool:
        uploads = timed(lambda: list(pool.map(lambda each: up(*each), everyone)))["seconds"]
        downloads = timed(lambda: list(pool.map(lambda each: down(*each), everyone)))["seconds"]
    bytes_per_second = 2 * a.nbytes * len(devices) / (uploads + downloads)
    return {"up": uploads, "down": downloads, "bytes_per_second": bytes_per_second}


def resident(x: list[webmm.Array], y: list[webmm.Array]) -> None:
    """Multiply the panels, and wait for all devices."""
    results = webmm.matmul(x, y)
    for c in results:
        c.device.synchronize()
        c.free()


def timed(work: Callable[[], object]) -> dict[str, Any]:
    """Return the median, the minimum and the number of the times, after a warm-up."""
    work()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < ENOUGH and len(times) < 50):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return {"seconds": statistics.median(times), "least": min(times), "repeats": len(times)}


def expect(rows: list[dict[str, Any]]) -> None:
    """Add to the last row its speedup over one device, and the plan's prediction from the rows measured before."""
    row, n = rows[-1], rows[-1]["n"]
    if "seconds" not in row:
        return

    row["tflops"] = 2e-12 * n**3 / row["seconds"]
    single = [r for r in rows if r["devices"] == 1 and "seconds" in r]
    same = [r["seconds"] for r in single if (r["kind"], r["n"]) == (row["kind"], n)]
    row["speedup"] = same[0] / row["seconds"] if same else None
    rate = max((1e12 * r["tflops"] for r in single if r["kind"] == "resident"), default=0.0)
    sent = {r["devices"]: r["bytes_per_second"] for r in rows if r["kind"] == "moves" and "up" in r}
    if rate and (row["kind"] == "resident" or {1, row["devices"]} <= sent.keys()):
        row["expected"] = expected(row, rate, sent).seconds


def expected(row: dict[str, Any], rate: float, sent: dict[int, float]) -> Division:
    """Return the plan for devices of this rate; `sent` has the measured bytes per second by number of devices."""
    n, count = row["n"], row["devices"]
    if row["kind"] == "resident":
        return divided((n, n, n), [Worker(rate)] * count)
    worker = Worker(rate, row["memory"], sent[1], row["largest"])
    return divided((n, n, n), [worker] * count, host=sent[count])


def words(row: dict[str, Any]) -> str:
    """Return a line that describes a row."""
    name = f"{row['kind']:9}{row['n']:6}{'²' if row['kind'] == 'moves' else '³'} on {row['devices']}: "
    if "up" in row:
        return name + f"up {row['up']:.4f} s, down {row['down']:.4f} s, {row['bytes_per_second'] / 1e9:.1f} GB/s"
    if "seconds" not in row:
        return name + str(row["failed"])
    more = f", speedup {row['speedup']:.2f}" if row["speedup"] else ""
    more += f", expected {row['expected']:.4f} s" if "expected" in row else ""
    more += f", {row['used']} used" if row["used"] < row["devices"] else ""
    return name + f"{row['seconds']:.4f} s, {row['tflops']:.1f} TFLOP/s{more}"


if __name__ == "__main__":
    main()
