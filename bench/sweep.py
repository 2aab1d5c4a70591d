"""Products of all kinds, compared with the vendor's library: squares, skinny products, long K, a batch, transposed
operands, and sizes that neither tiles nor vectors divide.

    python bench/sweep.py --adapter gpu bench/results/my-gpu-sweep.json            # the kernels that webmm chooses
    python bench/sweep.py --adapter gpu --search bench/results/my-gpu-search.json  # and all other candidates

Every kernel is checked before it is timed. With --search, all of CANDIDATES are timed briefly and the best of them for
longer; `bench/ship.py` makes tuned records from the result. Prints, for each product, the fraction of the vendor's rate
and of the best kernel's rate that the portable default reaches; then the mean over the squares, the worst case, and the
cost of a fused epilogue.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import peers

from webmm import Device, choose
from webmm.cases.gemm import Operands
from webmm.cli import parse_kernels
from webmm.engine import timing
from webmm.kernels import label_of
from webmm.kernels.gemm.base import GemmKernel
from webmm.measure import roofline
from webmm.measure.bench import measure
from webmm.measure.records import Record, provenance, save, to_json
from webmm.measure.roofline import Roofline
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes

SQUARES = (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384)
SKINNY = (1, 8, 32)  # rows or columns of a skinny product
WIDE = (4096, 16384)
LONG_K = ((256, 256, 65536), (1024, 1024, 16384))
BATCH = (64, 512)
TRANSPOSED = (2048, 4096)
ROUND = (1000, 3000)  # divisible by 4 (vec4), but not by tile sizes
ODD = (257, 511, 1023, 2047, 4095)  # divisible by neither
FINALISTS = 3  # number of candidates that are timed for longer
FUSED = 4096

CANDIDATES = ",".join(
    [
        "pipelined",
        "pipelined:bm=128:order=rows",
        "pipelined:bm=128:bk=8:tm=16:unroll=8:order=rows",
        "pipelined:bm=128:bn=64",
        "pipelined:bk=8:unroll=8",
        "split_k:bm=16:bn=32:tm=4:tn=4:bk=8:unroll=8:slices=8",
        "split_k:bm=32:bn=32:tm=4:tn=4:bk=8:unroll=8:slices=4:splits=4",
        "split_k:bm=32:bn=64:tm=4:tn=4",
        "split_k:bm=32:bn=64:tm=4:tn=4:slices=4",
        "split_k:bm=32:bn=64:tn=4:bk=8:unroll=8:slices=8",
        "split_k:bm=128:order=rows:slices=1:splits=2",
        "split_k:bm=128:order=rows:slices=1:splits=4",
        "split_k:slices=1:splits=3",
        "split_k:bk=8:unroll=8:slices=1:splits=3",
        "split_k:slices=1:splits=8",
        "split_k:slices=1:splits=32",
        "split_k:bm=32:tn=4:splits=8",
        "split_k:bm=32:bn=256:slices=1:splits=8",
        "split_k:bm=128:bn=32:tn=4:splits=8",
        "gemv:groups=16",
        "gemv:groups=4",
        "gemv:groups=8:unroll=4",
        "gemv:groups=32:unroll=4",
        "gemv:ti=2:unroll=4",
        "gemv:lanes=16:groups=64:unroll=4",
        "gemv:lanes=16:groups=32:ti=2:unroll=4",
        "gemv:lanes=32:groups=4:ti=2:tj=8",
        "gemv:lanes=16:groups=4:ti=4:tj=8",
        "gemv:lanes=8:groups=32:tj=8:unroll=4",
        "gemv:lanes=4:groups=32:tj=8",
        "gemv:lanes=16:groups=8:tj=8:unroll=4",
    ]
)


def problems() -> Iterator[Gemm]:
    """Yield the products of the sweep, all in float32."""
    yield from (gemm(n, n, n) for n in SQUARES)
    for n, skinny in ((n, skinny) for n in WIDE for skinny in SKINNY):
        yield from (gemm(skinny, n, n), gemm(n, skinny, n))
    yield from (gemm(*size) for size in LONG_K)
    yield gemm(BATCH[1], BATCH[1], BATCH[1], batch=BATCH[0])
    for n, layout in ((n, layout) for n in TRANSPOSED for layout in ("nt", "tn", "tt")):
        yield gemm(n, n, n, **transposes(layout))
    yield from (gemm(n, n, n) for n in ROUND)
    yield from (gemm(n, n + 2, n - 2) for n in ODD)
    n = ODD[-1]
    yield from (gemm(n, n + 2, n - 2, **transposes(layout)) for layout in ("nt", "tn", "tt"))
    for skinny in (1, 8, 33):
        yield from (gemm(skinny, n, n + 2), gemm(n, skinny, n + 2))


def name(problem: Gemm) -> str:
    """Return a product's size, layout and batch as text."""
    return f"{problem} {problem.layout}" + (f" × {problem.batch}" if problem.batch > 1 else "")


@dataclass(frozen=True)
class Row:
    """The measurements of one product; `records` holds every kernel that was timed in full."""

    problem: Gemm
    peer: Record | None
    chosen: Record
    default: Record
    records: list[Record]

    @property
    def fastest(self) -> Record:
        return min((r for r in self.records if r.median_us), key=lambda r: r.median_us or 0)

    @property
    def share(self) -> float:
        """Return the chosen kernel's rate as a fraction of the vendor's."""
        return (self.chosen.gflops or 0) / (self.peer.gflops or 1) if self.peer else float("nan")

    def __str__(self) -> str:
        p, chosen = self.problem, self.chosen
        seconds = (chosen.median_us or float("nan")) / 1e6
        return (
            f"{name(p)}: {self.share:.3f} × vendor; {chosen.gflops or 0:,.0f} GFLOP/s, "
            f"{p.bytes / seconds / 1e9:,.0f} GB/s, {label_of(chosen)}; best here {label_of(self.fastest)}, "
            f"{self.fraction(self.fastest, chosen):.2f}; default {label_of(self.default)}, "
            f"{self.fraction(self.fastest, self.default):.2f}"
        )

    @staticmethod
    def fraction(best: Record, other: Record) -> float:
        """Return the rate of `other` as a fraction of the best rate."""
        return (best.median_us or 0) / (other.median_us or float("nan"))


def row(device: Device, problem: Gemm, candidates: list[GemmKernel], ceiling: Roofline) -> Row:
    """Measure one product."""
    case = Operands(device, problem)
    peer = peers.cublas(problem, case.checker, ceiling.gflops) if peers.available() else None
    chosen, default = choose.choose(problem, device, "cached"), choose.choose(problem, device, "off")
    finalists = sorted(candidates, key=lambda kernel: brief(device, kernel, case))[:FINALISTS]
    kernels = list(dict.fromkeys([chosen, default, *finalists]))
    records = {kernel: measure(device, kernel, case, ceiling) for kernel in kernels}
    for array in case.inputs.values():
        array.free()
    return Row(problem, peer, records[chosen], records[default], list(records.values()))


def brief(device: Device, kernel: GemmKernel, case: Operands) -> float:
    """Return the time of the best run in seconds, inf if the kernel cannot run."""
    problem = case.problem
    if kernel.check(problem, device.capabilities):
        return float("inf")
    with device.empty((problem.c.end(problem.m, problem.n, problem.batch),)) as c:
        launch = device.launch(kernel, problem, case.inputs["a"], case.inputs["b"], c)
        return timing.time_launch(device, launch, warm_up=0.0, sample_time=0.01).best_us / 1e6


def fused(device: Device, n: int) -> float:
    """Return the time of a product with a fused bias and GELU, as a multiple of the plain product's time."""
    plain = gemm(n, n, n)
    with_epilogue = dataclasses.replace(plain, bias="column", activation="gelu")
    kernel = choose.choose(plain, device)
    arrays = [device.array(np.full((n, n), 0.01, np.float32)) for _ in range(3)]
    times = []
    for problem, extra in ((plain, []), (with_epilogue, [device.array(np.ones(n, np.float32))]), (plain, [])):
        times.append(timing.time_launch(device, device.launch(kernel, problem, *arrays, *extra)).median_us)
    return times[1] / statistics.mean((times[0], times[2]))


@click.command()
@click.option("--adapter")
@click.option("--search", is_flag=True, help="Time every candidate, not only the chosen kernel.")
@click.option("--only", default="", help="Only products whose name contains one of these: nt or 1023x,4096x1x.")
@click.argument("output", type=click.Path(path_type=Path))
def main(adapter: str | None, search: bool, only: str, output: Path) -> None:
    """Run the sweep and write its records to OUTPUT."""
    candidates = parse_kernels(CANDIDATES) if search else []
    with Device(adapter) as device:
        ceiling = roofline.measure(device)
        print(f"{device.info}: {ceiling.gflops:,.0f} GFLOP/s, {ceiling.gbytes:,.0f} GB/s", flush=True)
        rows = []
        for problem in (p for p in problems() if any(part in name(p) for part in only.split(","))):
            rows.append(row(device, problem, candidates, ceiling))
            print(rows[-1], flush=True)
            records = (r for each in rows for r in [*([each.peer] if each.peer else []), *each.records])
            save(output, to_json(records, **provenance()))
        squares = [each.share for each in rows if each.problem in [gemm(n, n, n) for n in SQUARES if n >= 256]]
        defaults = [Row.fraction(each.fastest, each.default) for each in rows]
        if peers.available() and squares:
            print(f"geometric mean over the squares from 256 on: {statistics.geometric_mean(squares):.3f} × vendor")
            print(f"worst: {min(rows, key=lambda each: each.share)}")
        print(f"the portable default reaches {statistics.mean(defaults):.2f} of the best on average")
        print(f"bias and GELU at {FUSED}³: {fused(device, FUSED):.3f} × the time of the plain product")


if __name__ == "__main__":
    main()
