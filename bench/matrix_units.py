"""The stage for matrix units, in node on Dawn, beside the best stage without them and the vendor's library.

    npm ci --prefix bench/web_peers --ignore-scripts
    python bench/matrix_units.py --sizes 1024,2048,4096,8192 bench/results/my-gpu.json

Python renders the shaders in Tint's dialect, lays out the operands and checks C against float64 NumPy, at the bound
that tests use; `matrix_units.mjs` runs and times them. Writes `webmm.records/1` and prints a line per record.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import peers
from numpy.typing import NDArray

from webmm import __version__
from webmm.cli import parse_kernels, parse_sizes
from webmm.kernels.gemm.base import GemmKernel
from webmm.problem import Gemm, gemm, transposes
from webmm.records import Record, save, to_json
from webmm.render import params_bytes, render
from webmm.verify import Checker, bound

HERE = Path(__file__).resolve().parent
DAWN = HERE / "web_peers/node_modules/webgpu/dist/linux-x64/dawn.node"
LONGEST = 1800  # seconds
OUTPUTS = ("float32", "float16")


@click.command()
@click.option("--sizes", default="1024,2048,4096,8192", show_default=True)
@click.option("--kernels", default="matrix_unit,pipelined", show_default=True)
@click.option("--layouts", default="nn", show_default=True, help="Comma-separated.")
@click.option("--out-dtypes", default=",".join(OUTPUTS), show_default=True)
@click.option("--node", default="node", show_default=True, help="Node's executable.")
@click.option(
    "--dawn", type=click.Path(path_type=Path), default=DAWN, show_default=True, help="npm's webgpu, its binary."
)
@click.argument("output", type=click.Path(path_type=Path))
def main(sizes: str, kernels: str, layouts: str, out_dtypes: str, node: str, dawn: Path, output: Path) -> None:
    """Measure products of float16 matrices and write the records to OUTPUT."""
    chosen, outs = parse_kernels(kernels), out_dtypes.split(",")
    records: list[Record] = []
    for m, n, k in parse_sizes(sizes):
        for layout in layouts.split(","):
            problems = [gemm(m, n, k, dtype="f16", out_dtype=out, **transposes(layout)) for out in outs]
            measured = list(run([(kernel, p) for p in problems for kernel in chosen], node, dawn.resolve()))
            if peers.available() and layout == "nn":
                problem = gemm(m, n, k, dtype="f16")
                measured.append(peers.cublas(problem, Checker(problem, *operands(problem)), float("nan")))
            for record in measured:
                show(record)
            records += measured
    save(output, to_json(dataclasses.replace(r, peak_fraction=None) for r in records))


def operands(problem: Gemm) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Return A and B, drawn uniformly from [-0.5, 0.5)."""
    rng = np.random.default_rng(0)
    a = (rng.random((problem.m, problem.k), np.float32) - 0.5).astype(np.float16)
    return a, (rng.random((problem.k, problem.n), np.float32) - 0.5).astype(np.float16)


def run(pairs: list[tuple[GemmKernel, Gemm]], node: str, dawn: Path) -> Iterator[Record]:
    """Yield the record of each kernel and problem; all problems multiply the same matrices, laid out alike."""
    problem = pairs[0][1]
    a, b = operands(problem)
    with tempfile.TemporaryDirectory() as temporary:
        folder, jobs = Path(temporary), []
        for name, operand, matrix in (("a", problem.a, a), ("b", problem.b, b)):
            np.ascontiguousarray(matrix.T if operand.transposed else matrix).tofile(folder / name)
        for i, (kernel, p) in enumerate(pairs):
            jobs.append(
                {
                    "shader": render(kernel, p, "tint").to_json(),
                    "params": list(params_bytes(kernel, p)),
                    "dispatch": kernel.dispatch(p),
                    "operands": {name: str(folder / name) for name in ("a", "b")},
                    "bytes": p.m * p.n * p.out_dtype.itemsize,
                    "out": str(folder / f"c{i}"),
                }
            )
        (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
        command = [node, str(HERE / "matrix_units.mjs"), str(folder / "jobs.json"), str(dawn)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(lines) != len(pairs):
            raise click.ClickException(f"node ended with {done.returncode}: {done.stderr[-500:]}")
        for i, ((kernel, p), line) in enumerate(zip(pairs, lines, strict=True)):
            yield record(kernel, p, line, folder / f"c{i}", Checker(p, a, b))


def record(kernel: GemmKernel, problem: Gemm, line: dict[str, object], file: Path, checker: Checker) -> Record:
    """Return what a line of `matrix_units.mjs` says, with C judged."""
    m, n, k, batch = problem.sizes
    common = Record(
        problem.op,
        kernel.name,
        *(m, n, k, batch, problem.dtype.name),
        engine="node, Dawn",
        adapter=str(line["adapter"]),
        backend="Vulkan",
        driver=str(line["driver"]),
        version=__version__,
        config={**kernel.config, "out_dtype": problem.out_dtype.name},
        layout=problem.layout,
        error_bound=bound(problem),
    )
    if "error" in line:
        return dataclasses.replace(common, status="runtime", reason=str(line["error"]))
    error = checker.error(np.fromfile(file, problem.out_dtype.numpy).reshape(m, n))
    samples = [float(sample) for sample in line["samples"]]  # type: ignore[attr-defined]
    median = statistics.median(samples)
    return dataclasses.replace(
        common,
        status="ok" if error <= bound(problem) else "incorrect",
        reason=None if error <= bound(problem) else f"the largest error is {error:.2e}·|A||B|",
        median_us=median,
        best_us=min(samples),
        gflops=problem.flops / median / 1e3,
        clock="timestamp",
        max_error=error,
    )


def show(record: Record) -> None:
    """Print a record as a line."""
    rate = f"{record.gflops / 1e3:8.1f} TFLOP/s" if record.gflops else record.reason
    print(f"{record.size} {record.layout} {record.label}: {rate}", flush=True)


if __name__ == "__main__":
    main()
