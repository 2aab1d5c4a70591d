"""Reductions and what is built on them, beside copying and PyTorch: what webmm chooses, and what else there is.

    python bench/reductions.py --adapter gpu bench/results/my-gpu-reduce.json            # what webmm chooses here
    python bench/reductions.py --adapter gpu --search bench/results/my-gpu-reduce.json   # and the best of each stage

Every kernel is checked before its time counts. With --search, each stage that has a chance is timed briefly with the
tunables of SEARCH; of each the fastest is measured in full. Shares are of the copy bandwidth that the device shows
between one problem and the next, so that a device which others use at times does not read as a slow kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import peers

from webmm import Device, roofline, timing
from webmm.bench import measure
from webmm.choose_reduction import choose
from webmm.errors import ShaderError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.kernels.reduce.rows import Map
from webmm.ops import op_of
from webmm.ops.base import Case, Op
from webmm.problem import Problem
from webmm.records import Record, save, to_json
from webmm.reduction import Elementwise

PUBLISHED = ("512x8192", "128x32768", "64x256x1024", "64x64x4096")
LARGE = "8192x32768"  # does not fit into any cache
ODD = "8191x32767"
FEW_ROWS = ("1x268435456", "16x16777216")
SHORT_ROWS = ("4194304x64", "1048576x256", "8388608x17")
COLUMNS = ("64x256x1024@1", "4096x64x1024@1", "32768x8192@0", "262144x1024@0", "4194304x64@0", f"{ODD}@0")
BUILT_ON = ("normalise:softmax", "normalise:layer_norm", "normalise:rms_norm", "elementwise:gelu")

SEARCH: dict[str, dict[str, tuple[Any, ...]]] = {
    "per_row": {"size": (32, 64)},
    "vectorized": {"size": (32, 64), "unroll": (2, 4, 8)},
    "tree": {"lanes": (64, 128, 256, 512, 1024), "unroll": (2, 4, 8)},
    "subgroup": {"lanes": (64, 128, 256, 512, 1024), "unroll": (2, 4, 8)},
    "alone": {"lanes": (16, 32), "unroll": (1, 2, 4, 8)},
    "two_pass": {"lanes": (256, 512), "splits": (2, 8, 32, 64, 128, 512, 2048), "combine": ("subgroup",)},
    "columns": {"wx": (8, 16, 32), "wy": (4, 8, 16), "unroll": (2, 4)},
    "columns_two_pass": {"wx": (16, 32), "wy": (16,), "unroll": (2, 4), "splits": (4, 16, 64, 256, 1024)},
    "rows": {"lanes": (32, 64, 128, 256, 512, 1024), "unroll": (2, 4, 8, 16), "combine": ("subgroup", "alone")},
    "map": {"size": (64, 128, 256)},
}
ALONG_COLUMNS = ("per_row", "columns", "columns_two_pass", "rows")
PATIENCE = 2**17  # iterations of an invocation
WASTE = 2  # times the elements that there are
WARM_UP = 0.05  # seconds: the device is busy all the time


def workload() -> Iterator[tuple[str, str, str]]:
    """Yield op, size and dtype."""
    for op, dtype in itertools.product(BUILT_ON, ("float32", "float16")):
        yield from ((op, size, dtype) for size in (LARGE, *PUBLISHED))
    yield from (("reduce:sum", size, "float32") for size in (*PUBLISHED, LARGE, ODD, *FEW_ROWS, *SHORT_ROWS, *COLUMNS))
    for size in (LARGE, COLUMNS[2]):
        yield from ((f"reduce:{name}", size, "float32") for name in ("max", "argmax", "logsumexp"))
        yield "reduce:sum", size, "float16"


@dataclass(frozen=True)
class Row:
    """What was measured of one problem; `records` holds every kernel that was timed in full."""

    name: str
    chosen: Record
    records: list[Record]
    peer: Record | None
    copied: float  # GB/s between this problem and the one before

    def __str__(self) -> str:
        if self.chosen.status != "ok":
            return f"{self.name}: {self.chosen.label} {self.chosen.status}: {self.chosen.reason}"
        fastest = min(self.records, key=time)
        words = [f"{self.chosen.peak_fraction or 0:.3f} of copying at {self.copied:,.0f} GB/s"]
        words += [f"{time(self.chosen):.1f} µs by {self.chosen.label}"]
        words += [f"{time(self.peer) / time(self.chosen):.2f} × PyTorch"] if self.peer else []
        words += [f"{time(fastest) / time(self.chosen):.2f} of the best here, {fastest.label}"]
        others = [f"{r.label} {r.peak_fraction or 0:.3f}" for r in self.records if r not in (self.chosen, fastest)]
        return f"{self.name}: {', '.join(words)} ({', '.join(others)})"


def time(record: Record) -> float:
    """Return the median in µs."""
    return record.median_us or float("inf")


def row(device: Device, op: Op[Any], problem: Problem, search: bool, copied: float) -> Row:
    """Measure one problem."""
    case = op.case(device, problem)
    ceiling = roofline.Roofline(0.0, copied)
    chosen = Map() if isinstance(problem, Elementwise) else choose(problem, device)  # type: ignore[arg-type]
    kernels = [chosen, *(best_of_each_stage(device, op, case) if search else [])]
    records = {kernel: measure(device, kernel, case, ceiling, WARM_UP) for kernel in dict.fromkeys(kernels)}
    peer = None
    if peers.available():
        peer = peers.pytorch(case, in_pytorch(problem), case.x.reshape(shape(problem)), op.peak(problem, ceiling))
    for array in case.inputs.values():
        array.free()
    name = f"{problem.variant} {'×'.join(map(str, shape(problem)))} {problem.dtype.name}"
    return Row(name, records[chosen], list(records.values()), peer, copied)


def shape(problem: Problem) -> tuple[int, ...]:
    """Return that of x, of whose three lengths the second is the one that the op goes along."""
    return problem.sizes[:3]


def best_of_each_stage(device: Device, op: Op[Any], case: Case[Any]) -> Iterator[Kernel[Any]]:
    """Yield the fastest of each stage's candidates, each timed briefly."""
    for name, stage in STAGES[op.name].items():
        tried = {kernel: brief(device, kernel, case) for kernel in candidates(stage, name, case.problem)}
        best = min(tried, key=tried.__getitem__, default=None)
        if best and tried[best] < float("inf"):
            yield best


def candidates(stage: type[Kernel[Any]], name: str, problem: Problem) -> Iterator[Kernel[Any]]:
    """Yield a stage with its tunables of SEARCH, where it is fit for the problem's shape."""
    _, _, inner, _ = problem.sizes
    if name not in SEARCH or (inner > 1 and name not in ALONG_COLUMNS) or (inner == 1 and "columns" in name):
        return
    for values in itertools.product(*SEARCH[name].values()):
        kernel = stage(**dict(zip(SEARCH[name], values, strict=True)))
        if kernel.invalid() is None and worthwhile(kernel, problem):
            yield kernel


def worthwhile(kernel: Kernel[Any], problem: Problem) -> bool:
    """Tell whether no invocation runs for ever, and few of them for nothing."""
    first = kernel.dispatches[0]
    if isinstance(problem, Elementwise):
        return True
    covered = first.steps(problem) * first.step * first.splits  # type: ignore[attr-defined]
    return kernel.iterations(problem) <= PATIENCE and covered <= WASTE * problem.length  # type: ignore[attr-defined]


def brief(device: Device, kernel: Kernel[Any], case: Case[Any]) -> float:
    """Return the time of the best run in seconds, inf where the kernel cannot."""
    problem = case.problem
    if kernel.check(problem, device.capabilities):
        return float("inf")
    (written,) = (extent for extent in problem.buffers() if extent.written)
    with device.empty((written.end,), written.dtype) as y:
        try:
            launch = device.launch(kernel, problem, case.inputs["x"], y)
            return timing.time_launch(device, launch, warm_up=0.0, sample_time=0.005).best_us / 1e6
        except ShaderError:
            return float("inf")


def in_pytorch(problem: Problem) -> Callable[[Any], Any]:
    """Return what computes the same there of x[m, n, k]."""
    import torch
    from torch.nn import functional

    n, epsilon = problem.sizes[1], getattr(problem, "epsilon", 0.0)
    calls: dict[str, Callable[[Any], Any]] = {
        "sum": lambda x: torch.sum(x, 1),
        "max": lambda x: torch.amax(x, 1),
        "argmax": lambda x: torch.argmax(x, 1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "softmax": lambda x: torch.softmax(x, 1),
        "layer_norm": lambda x: functional.layer_norm(x.squeeze(2), (n,), eps=epsilon),
        "rms_norm": lambda x: functional.rms_norm(x.squeeze(2), (n,), eps=epsilon),
        "gelu": functional.gelu,
    }
    return calls[problem.variant]


@click.command()
@click.option("--adapter")
@click.option("--search", is_flag=True, help="Time every stage, not only what is chosen.")
@click.option("--only", default="", help="Part of OP SIZE DTYPE, such as softmax or 8192x32768.")
@click.argument("output", type=click.Path(path_type=Path))
def main(adapter: str | None, search: bool, only: str, output: Path) -> None:
    """Measure the workload and write its records to OUTPUT."""
    with Device(adapter) as device:
        ceiling = roofline.measure(device)
        print(f"{device.info}: {ceiling.gflops:,.0f} GFLOP/s, {ceiling.gbytes:,.0f} GB/s", flush=True)
        copying, arrays = roofline.copying(device)
        nbytes = sum(x.nbytes for x in arrays)
        rows = []
        for name, size, dtype in (words for words in workload() if only in " ".join(words)):
            op = op_of(name)
            copied = nbytes / timing.time_launch(device, copying, WARM_UP, WARM_UP).best_us / 1e3
            rows.append(row(device, op, op.problem(op.parse(size), dtype), search, copied))
            print(rows[-1], flush=True)
            save(output, to_json(r for each in rows for r in [*each.records, *([each.peer] if each.peer else [])]))


if __name__ == "__main__":
    main()
