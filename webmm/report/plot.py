"""A plot of the ladder and the roofline."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.files import write_atomically
from webmm.kernels import KERNELS
from webmm.measure.bench import CPU_STAGE
from webmm.measure.records import Record
from webmm.measure.roofline import Roofline

INK, MUTED, GRID = "#1b1f24", "#6e7781", "#d8dee4"
BAR, BEST, REFERENCE = "#9cb8e8", "#2f5fd0", "#c9ced6"
REFERENCE_NAMES = {CPU_STAGE: "NumPy on the CPU", "cublas": "cuBLAS", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}


def save(path: Path, records: list[Record], ceiling: Roofline) -> None:
    """Draw the ladder at the largest size that most stages ran at, and the roofline of all sizes.

    `path` ends in .png or .svg. Raises ProblemError if no stage was measured.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = _largest(records)
    settings: dict[Any, Any] = {
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": MUTED,
        "ytick.color": INK,
        "axes.edgecolor": GRID,
        "svg.hashsalt": "webmm",
    }
    with plt.rc_context(settings):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1.15, 1), layout="constrained")
        gpu = next(r for r in shown if r.kernel in KERNELS)
        figure.suptitle(f"C = A·B, {shown[0].size}, {shown[0].dtype} – {gpu.adapter} ({gpu.backend})", weight="bold")
        _ladder(left, shown, ceiling)
        _roofline(right, records, ceiling)
        picture = io.BytesIO()
        figure.savefig(picture, format=path.suffix[1:], dpi=144, facecolor="white")
        plt.close(figure)
    write_atomically(path, lambda file: file.write(picture.getvalue()))


def _largest(records: list[Record]) -> list[Record]:
    """Return the measured records of the size that has most of them; of several such sizes, the largest."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.gflops:
            groups.setdefault(record.size, []).append(record)
    groups = {size: group for size, group in groups.items() if any(r.kernel in KERNELS for r in group)}
    if not groups:
        raise ProblemError("no kernel was measured: there is nothing to plot")
    return max(groups.values(), key=lambda group: (len(group), group[0].m * group[0].n * group[0].k))


def _best_of_each(records: list[Record]) -> list[Record]:
    """Return the fastest record of each stage, in the ladder's order, followed by the references."""
    best: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: r.gflops or 0):
        best[record.kernel] = record
    order = [*KERNELS, *(name for name in best if name not in KERNELS)]
    return [best[name] for name in order if name in best]


def _ladder(axes: Any, records: list[Record], ceiling: Roofline) -> None:
    bars = _best_of_each(records)
    fastest = max((r for r in bars if r.kernel in KERNELS), key=lambda r: r.gflops or 0)
    colours = [REFERENCE if r.kernel not in KERNELS else BEST if r is fastest else BAR for r in bars]
    rates = [r.gflops or 0 for r in bars]
    positions = range(len(bars))
    axes.barh(positions, rates, color=colours, height=0.72)
    axes.set_yticks(positions, [REFERENCE_NAMES.get(r.kernel, r.kernel) for r in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, max(rates) * 1.22)
    for y, rate in zip(positions, rates, strict=True):
        axes.text(rate, y, f"  {rate:,.{0 if rate >= 100 else 1}f}", va="center", color=INK)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"GFLOP/s, median (measured FMA peak: {ceiling.gflops:,.0f})")
    axes.set_title("The ladder", loc="left", weight="bold")
    _minimal(axes)


def _roofline(axes: Any, records: list[Record], ceiling: Roofline) -> None:
    points = [r for r in records if r.gflops and r.kernel in KERNELS]
    best: dict[str, Record] = {}
    for record in points:
        if record.size not in best or (record.gflops or 0) > (best[record.size].gflops or 0):
            best[record.size] = record
    intensities = [_intensity(r) for r in points]
    low, high = (
        min(*intensities, ceiling.gflops / ceiling.gbytes / 4),
        max(*intensities, ceiling.gflops / ceiling.gbytes) * 2,
    )
    ridge = ceiling.gflops / ceiling.gbytes
    line = [x for x in (low, ridge, high) if low <= x <= high]
    axes.loglog(line, [min(ceiling.gflops, ceiling.gbytes * x) for x in line], color=INK, linewidth=1.5)
    axes.scatter(intensities, [r.gflops for r in points], s=16, color=BAR, zorder=2, label="every stage")
    axes.scatter(
        [_intensity(r) for r in best.values()],
        [r.gflops for r in best.values()],
        s=42,
        color=BEST,
        zorder=3,
        label="fastest",
    )
    for record in best.values():
        axes.annotate(
            f"{record.m}" if record.m == record.n == record.k else record.size,
            (_intensity(record), record.gflops),
            textcoords="offset points",
            xytext=(7, -10),
            ha="left",
            fontsize=8,
            color=MUTED,
        )
    axes.text(ridge, ceiling.gflops * 1.15, f"{ceiling.gflops:,.0f} GFLOP/s of FMA", fontsize=8, color=MUTED)
    axes.set_ylim(top=ceiling.gflops * 2.2)
    axes.set_xlabel("arithmetic intensity, operations per byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"The roofline ({ceiling.gbytes:,.0f} GB/s)", loc="left", weight="bold")
    axes.legend(frameon=False, loc="lower left", fontsize=8)
    _minimal(axes)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(axis="y", colors=MUTED)


def _intensity(record: Record) -> float:
    itemsize = dtype_of(record.dtype).itemsize
    moved = record.m * record.k + record.k * record.n + record.m * record.n
    return 2 * record.m * record.n * record.k / (itemsize * moved)


def _minimal(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
