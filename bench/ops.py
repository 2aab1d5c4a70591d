"""The ops other than gemm, compared with PyTorch: the chosen kernels, and optionally the best of each stage.

    python bench/ops.py reductions bench/results/my-gpu.json                   # the kernels that webmm chooses
    python bench/ops.py reductions --search reduce bench/results/my-gpu.json   # and the best of each stage

Every kernel is checked before it is timed. With --search, each promising stage is timed briefly with the tunables in
SEARCH, and its fastest kernel is measured in full. Bandwidth fractions are relative to a copy that is measured just
before. The copy also wakes the device: while it waits for operands it clocks down within seconds, and 0.05 s of work
are too short to raise its clock again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import peers

from webmm import Device, choose
from webmm.cases import op_of
from webmm.cases.base import Case, Op
from webmm.dtypes import I8
from webmm.engine import timing
from webmm.errors import ShaderError
from webmm.kernels import STAGES, label_of
from webmm.kernels.base import Kernel
from webmm.measure import roofline
from webmm.measure.bench import measure
from webmm.measure.records import Record, provenance, save, to_json
from webmm.problems.base import Problem
from webmm.problems.quantized import Quantized
from webmm.problems.reduce import Reduction
from webmm.problems.weights import WeightOnly

PUBLISHED = ("512x8192", "128x32768", "64x256x1024", "64x64x4096")
LARGE = "8192x32768"  # exceeds any cache
ODD = "8191x32767"
FEW_ROWS = ("1x268435456", "16x16777216")
SHORT_ROWS = ("4194304x64", "1048576x256", "8388608x17")
COLUMNS = ("64x256x1024@1", "4096x64x1024@1", "32768x8192@0", "262144x1024@0", "4194304x64@0", f"{ODD}@0")
BUILT_ON = ("normalise:softmax", "normalise:layer_norm", "normalise:rms_norm", "elementwise:gelu")
CUBES = ("1024", "2048", "4096")
LAYER = tuple(f"{rows}x4096x4096" for rows in (1, 8, 64, 512))
FLOATS = ("float32", "float16")

SEARCH: dict[str, dict[str, dict[str, tuple[Any, ...]]]] = {
    "reduce": {
        "per_row": {"size": (32, 64)},
        "vectorized": {"size": (32, 64), "unroll": (2, 4, 8)},
        "tree": {"lanes": (64, 128, 256, 512, 1024), "unroll": (4, 8)},
        "subgroup": {"lanes": (64, 128, 256, 512, 1024), "unroll": (4, 8)},
        "alone": {"lanes": (16, 32), "unroll": (1, 2, 4, 8)},
        "two_pass": {"lanes": (512,), "splits": (2, 8, 32, 64, 128, 512, 2048), "combine": ("subgroup",)},
        "columns": {"wx": (8, 16, 32), "wy": (1, 8, 16), "unroll": (2, 4, 8)},
        "columns_two_pass": {"wx": (16,), "wy": (16,), "unroll": (2, 4), "splits": (4, 16, 64, 256, 1024)},
        "row_tiles": {"lanes": (64, 128), "per_row": (1, 2, 4, 8, 16, 32), "unroll": (2, 3), "combine": ("subgroup",)},
    },
    "normalise": {
        "rows": {
            "lanes": (128, 256, 512, 1024),
            "unroll": (2, 4, 8, 16),
            "combine": ("subgroup",),
            "splits": (1, 64, 1024),
        },
        "row_tiles": {
            "lanes": (64, 128),
            "per_row": (1, 2, 4, 8, 16, 32),
            "unroll": (2, 3),
            "combine": ("subgroup",),
            "load": ("direct", "tile"),
        },
        "strips": {"wx": (8, 16), "wy": (8, 16, 32), "unroll": (2, 4, 8, 12), "splits": (1, 4, 32)},
    },
    "elementwise": {"map": {"size": (64, 128, 256), "unroll": (1, 2, 4)}},
    "quantized": {"packed": {"bm": (32, 64, 128), "bn": (64, 128), "tn": (4, 8)}, "unpacked": {}},
    "weights": {
        "vector": {"lanes": (32, 64, 128), "tm": (1, 8)},
        "tiles": {"bm": (32, 64, 128), "bn": (32, 128)},
    },
}
COLUMN_STAGES = ("columns", "columns_two_pass", "strips")  # for axes other than the last
ANY_AXIS = ("per_row", "rows")
MAX_ITERATIONS = 2**17  # of an invocation
MAX_WASTE = 2  # elements covered by the invocations of a row, as a multiple of its length
WARM_UP = 0.05  # seconds; `webmm.engine.timing` wakes devices that need longer

Asked = tuple[str, str, str]  # op, size, dtype


def reductions() -> Iterator[Asked]:
    """Yield sums of arrays of all kinds of shapes, and other reductions of a large array."""
    yield from (("reduce:sum", size, "float32") for size in (*PUBLISHED, LARGE, ODD, *FEW_ROWS, *SHORT_ROWS, *COLUMNS))
    yield "reduce:sum", LARGE, "float16"
    yield from ((f"reduce:{name}", LARGE, "float32") for name in ("max", "argmax", "logsumexp"))
    yield from ((f"reduce:{name}", COLUMNS[2], "float32") for name in ("argmax", "logsumexp"))


def normalisations() -> Iterator[Asked]:
    """Yield normalisations and activations."""
    for dtype, size in itertools.product(FLOATS, (LARGE, *PUBLISHED)):
        yield from ((op, size, dtype) for op in BUILT_ON)
    yield from (("normalise:softmax", size, "float32") for size in (COLUMNS[2], COLUMNS[0]))


def integers() -> Iterator[Asked]:
    """Yield products of 8-bit integers."""
    yield from (("quantized", size, dtype) for dtype in ("int8", "uint8") for size in CUBES)


def layers() -> Iterator[Asked]:
    """Yield products of few and many rows with 4-bit and 8-bit weights."""
    for op, dtype, size in itertools.product(("weights:4bit-32", "weights:8bit-32"), FLOATS, LAYER):
        yield op, size, dtype


WORKLOADS = {"reductions": reductions, "normalisations": normalisations, "integers": integers, "weights": layers}


@dataclass(frozen=True)
class Row:
    """The measurements of one problem; `records` holds every kernel that was timed in full."""

    asked: Asked
    chosen: Record
    records: list[Record]
    peer: Record | None
    ceiling: roofline.Roofline

    def __str__(self) -> str:
        if self.chosen.status != "ok":
            return f"{' '.join(self.asked)}: {label_of(self.chosen)} {self.chosen.status}: {self.chosen.reason}"
        op, fastest = op_of(self.asked[0]), min(self.records, key=time)
        words = [f"{op.rate(self.chosen):,.0f} {op.unit}, {self.chosen.peak_fraction or 0:.3f} of the peak"]
        words += [f"{time(self.chosen):.1f} µs by {label_of(self.chosen)}"]
        words += [f"{time(self.peer) / time(self.chosen):.2f} × PyTorch"] if self.peer else []
        words += [f"{time(fastest) / time(self.chosen):.2f} of the best here, {label_of(fastest)}"]
        others = [f"{label_of(r)} {r.peak_fraction or 0:.3f}" for r in self.records if r not in (self.chosen, fastest)]
        return f"{' '.join(self.asked)}: {', '.join(words)}" + (f" ({', '.join(others)})" if others else "")


def time(record: Record) -> float:
    """Return the median in µs."""
    return record.median_us or float("inf")


def row(device: Device, asked: Asked, search: str | None, measured: Callable[[], roofline.Roofline]) -> Row:
    """Measure one problem, and the device's roofline once its operands are resident."""
    op = op_of(asked[0])
    problem = op.problem(op.parse(asked[1]), asked[2])
    case = op.case(device, problem)
    ceiling = measured()
    chosen = choose.choose(problem, device)
    kernels = [
        chosen,
        *(best_of_each_stage(device, op, case) if search is not None and search in " ".join(asked) else []),
    ]
    records = {kernel: measure(device, kernel, case, ceiling, WARM_UP) for kernel in dict.fromkeys(kernels)}
    called = in_pytorch(case) if peers.available() else None
    peer = peers.pytorch(case, *called, op.peak(problem, ceiling)) if called else None
    for array in case.inputs.values():
        array.free()
    return Row(asked, records[chosen], list(records.values()), peer, ceiling)


def best_of_each_stage(device: Device, op: Op[Any], case: Case[Any]) -> Iterator[Kernel[Any]]:
    """Yield the fastest candidate of each stage, after timing each candidate briefly."""
    for name, tunables in SEARCH[op.name].items():
        tried = {kernel: brief(device, kernel, case) for kernel in candidates(op, name, tunables, case.problem)}
        best = min(tried, key=tried.__getitem__, default=None)
        if best and tried[best] < float("inf"):
            yield best


def candidates(op: Op[Any], name: str, tunables: dict[str, tuple[Any, ...]], problem: Problem) -> Iterator[Kernel[Any]]:
    """Yield the stage `name` with each combination of `tunables` that suits the problem's shape."""
    for values in itertools.product(*tunables.values()):
        kernel = STAGES[op.name][name](**dict(zip(tunables, values, strict=True)))
        if kernel.invalid() is None and (not isinstance(problem, Reduction) or worthwhile(kernel, problem)):
            yield kernel


def worthwhile(kernel: Any, problem: Reduction) -> bool:
    """Return whether a kernel supports the axis, with loops of bounded length and few idle invocations."""
    first = kernel.dispatches[0]
    covered = first.steps(problem) * first.step * first.splits
    along = (kernel.name in COLUMN_STAGES) == (problem.inner > 1) or kernel.name in ANY_AXIS
    return along and kernel.iterations(problem) <= MAX_ITERATIONS and covered <= MAX_WASTE * problem.length


def brief(device: Device, kernel: Kernel[Any], case: Case[Any]) -> float:
    """Return the time of the best run in seconds, inf if the kernel cannot run."""
    problem = case.problem
    if kernel.check(problem, device.capabilities):
        return float("inf")
    (written,) = (extent for extent in problem.buffers() if extent.written)
    with device.empty((written.end,), written.dtype) as result:
        arrays = [result if extent.written else case.inputs[extent.name] for extent in problem.buffers()]
        try:
            launch = device.launch(kernel, problem, *arrays)
            return timing.time_launch(device, launch, warm_up=0.0, sample_time=0.005).best_us / 1e6
        except ShaderError:
            return float("inf")


def in_pytorch(case: Any) -> tuple[Callable[..., Any], list[Any], bool] | None:
    """Return PyTorch's counterpart, if any, its operands, and whether it computes exactly the same.

    PyTorch does not requantize products of int8; for weights of 4 and 8 bits, it multiplies floats.
    """
    import torch
    from torch.nn import functional

    p = case.problem
    if isinstance(p, Quantized):
        return (torch._int_mm, [case.a, case.b], False) if p.a_dtype == I8 else None
    if isinstance(p, WeightOnly):
        return torch.matmul, [case.checker.a, case.checker.b.astype(p.dtype.numpy)], False
    call = peers.along(p) if isinstance(p, Reduction) else functional.gelu
    return call, [case.x.reshape(p.sizes[:3])], True


@click.command()
@click.argument("workload", type=click.Choice(list(WORKLOADS)))
@click.option("--adapter")
@click.option("--search", metavar="TEXT", help="Also time every stage for problems whose OP SIZE DTYPE contains TEXT.")
@click.option("--only", default="", metavar="TEXT", help="Only problems whose OP SIZE DTYPE contains TEXT.")
@click.argument("output", type=click.Path(path_type=Path))
def main(workload: str, adapter: str | None, search: str | None, only: str, output: Path) -> None:
    """Measure a workload and write its records to OUTPUT."""
    with Device(adapter) as device:
        peak = roofline.measure(device)
        print(f"{device.info}: {peak.gflops:,.0f} GFLOP/s, {peak.gbytes:,.0f} GB/s", flush=True)
        copying, arrays = roofline.copying(device)
        nbytes = sum(x.nbytes for x in arrays)

        def measured() -> roofline.Roofline:
            copied = timing.time_launch(device, copying, WARM_UP, WARM_UP)
            return roofline.Roofline(peak.gflops, nbytes / copied.best_us / 1e3)

        rows: list[Row] = []
        for asked in (words for words in WORKLOADS[workload]() if only in " ".join(words)):
            rows.append(row(device, asked, search, measured))
            print(rows[-1], flush=True)
            records = (r for each in rows for r in [*each.records, *([each.peer] if each.peer else [])])
            save(output, to_json(records, **provenance()))
        copied = [each.ceiling.gbytes for each in rows]
        print(f"copy bandwidth: {min(copied):,.0f} to {max(copied):,.0f} GB/s")


if __name__ == "__main__":
    main()
