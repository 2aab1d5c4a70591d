"""The stages for matrix units, in node on Dawn, beside the best stage without them and the vendor's library.

    npm ci --prefix bench/web_peers --ignore-scripts
    python bench/matrix_units.py --sizes 1024,2048,4096,8192 bench/results/my-gpu.json
    python bench/matrix_units.py --op quantized bench/results/my-gpu-int8.json

Python renders the shaders in Tint's dialect, lays out the operands and checks C against NumPy, as `webmm bench` does;
`matrix_units.mjs` runs and times them. Writes `webmm.records/1` and prints a line per record.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import peers
from numpy.typing import NDArray

from webmm import __version__
from webmm.cases import op_of
from webmm.cases.base import Case
from webmm.cases.gemm import Operands
from webmm.cases.quantized import Integers
from webmm.choose import quantized as choose_quantized
from webmm.choose.gemm import made_for_matrix_units
from webmm.cli import parse_kernels, parse_sizes
from webmm.engine.device import Device
from webmm.kernels import label_of
from webmm.kernels.base import Capabilities
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.product import ProductKernel
from webmm.kernels.quantized.matrix_unit import RESULTS
from webmm.kernels.quantized.matrix_unit import MatrixUnit as ByteMatrixUnit
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes
from webmm.problems.quantized import Quantized
from webmm.records import Record, save, to_json
from webmm.render import params_bytes, render

HERE = Path(__file__).resolve().parent
DAWN = HERE / "web_peers/node_modules/webgpu/dist/linux-x64/dawn.node"
LONGEST = 1800  # seconds
KERNELS = {"gemm": "pipelined", "quantized": "packed:bm=128:bn=64"}
# A device with the fragments that the stages take by default.
STAGES = (MatrixUnit(), *(ByteMatrixUnit(operands=each) for each in RESULTS))
UNITS = Capabilities(
    "", {}, frozenset(), subgroup_size=MatrixUnit().lanes, matrix_shapes=frozenset(k.matrix_shape for k in STAGES)
)
OUTPUTS = ("float32", "float16")  # of gemm; a quantised product has the type of its operands
BYTES = ("int8", "uint8")

Problem = Gemm | Quantized
Pair = tuple[ProductKernel[Any], Problem]


class Host:
    """Stands in for a device where a case lays out its operands: they stay in NumPy."""

    def array(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return `x` as it lies in memory."""
        return np.ascontiguousarray(x)


HOST = cast(Device, Host())


@click.command()
@click.option("--op", type=click.Choice(list(KERNELS)), default="gemm", show_default=True)
@click.option("--sizes", default="1024,2048,4096,8192", show_default=True)
@click.option("--kernels", help="Comma-separated.  [default: what is chosen of matrix units and the best of others]")
@click.option("--layouts", default="nn", show_default=True, help="Comma-separated.")
@click.option("--dtypes", help=f"Of C for gemm ({', '.join(OUTPUTS)}), of all for quantized ({', '.join(BYTES)}).")
@click.option("--node", default="node", show_default=True, help="Node's executable.")
@click.option(
    "--dawn", type=click.Path(path_type=Path), default=DAWN, show_default=True, help="npm's webgpu, its binary."
)
@click.argument("output", type=click.Path(path_type=Path))
def main(
    op: str, sizes: str, kernels: str | None, layouts: str, dtypes: str | None, node: str, dawn: Path, output: Path
) -> None:
    """Measure products of float16 or of 8-bit matrices and write the records to OUTPUT."""
    named = parse_kernels(kernels or KERNELS[op], op)
    types = dtypes.split(",") if dtypes else OUTPUTS if op == "gemm" else BYTES
    records: list[Record] = []
    for size in parse_sizes(sizes):
        for layout in layouts.split(","):
            problems = [problem(op, size, dtype, layout) for dtype in types]
            asked = [(kernel, p) for p in problems for kernel in (*([] if kernels else usual(p)), *named)]
            pairs = [(kernel, p) for kernel, p in asked if not kernel.unsuited(p)]
            for record in (*run(pairs, node, dawn.resolve()), *peer(op, size, layout)):
                show(record)
                records.append(record)
            save(output, to_json(dataclasses.replace(r, peak_fraction=None) for r in records))


def problem(op: str, size: tuple[int, int, int], dtype: str, layout: str) -> Problem:
    """Return a product of float16 into `dtype`, or one of `dtype` into the same."""
    if op == "gemm":
        return gemm(*size, dtype="f16", out_dtype=dtype, **transposes(layout))
    return cast(Quantized, op_of(op).problem(size, dtype, layout))


def usual(problem: Problem) -> Iterable[ProductKernel[Any]]:
    """Return what is chosen where nobody says which kernel."""
    if isinstance(problem, Gemm):
        return made_for_matrix_units(problem, UNITS)
    return choose_quantized.made_for_matrix_units(problem, UNITS)[:1]


def peer(op: str, size: tuple[int, int, int], layout: str) -> Iterator[Record]:
    """Yield cuBLAS's record of the size, if it is here."""
    if not peers.available():
        return
    if op == "gemm":
        product = gemm(*size, dtype="f16", **transposes(layout))
        yield peers.cublas(product, Operands(HOST, product).checker, float("nan"))
    elif not any(x % 8 for x in size):  # which torch._int_mm asks for
        integers = op_of(op).problem(size, "int8", layout)
        yield peers.int_mm(integers, Integers(HOST, integers))


def run(pairs: list[Pair], node: str, dawn: Path) -> Iterator[Record]:
    """Yield the record of each kernel and problem."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, jobs, cases = Path(temporary), [], dict[Problem, Case[Any]]()
        for i, (kernel, p) in enumerate(pairs):
            if p not in cases:
                cases[p] = op_of(p.op).case(HOST, p)
                for name, operand in cases[p].inputs.items():
                    cast(NDArray[Any], operand).tofile(folder / f"{len(cases)}{name}")
            jobs.append(
                {
                    "shader": render(kernel, p, "tint").to_json(),
                    "params": list(params_bytes(kernel, p)),
                    "dispatch": kernel.dispatch(p),
                    "operands": {name: str(folder / f"{list(cases).index(p) + 1}{name}") for name in cases[p].inputs},
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
            yield record(kernel, cases[p], line, folder / f"c{i}")


def record(kernel: ProductKernel[Any], case: Case[Any], line: dict[str, object], file: Path) -> Record:
    """Return what a line of `matrix_units.mjs` says, with C judged."""
    problem, bound = case.problem, case.bound
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
        error_bound=bound,
    )
    if "error" in line:
        return dataclasses.replace(common, status="runtime", reason=str(line["error"]))
    error = case.error(np.fromfile(file, problem.out_dtype.numpy))
    samples = [float(sample) for sample in line["samples"]]  # type: ignore[attr-defined]
    median = statistics.median(samples)
    return dataclasses.replace(
        common,
        status="ok" if error <= bound else "incorrect",
        reason=None if error <= bound else f"the largest error is {error:.2e}{case.scale}",
        median_us=median,
        best_us=min(samples),
        gflops=problem.flops / median / 1e3,
        clock="timestamp",
        max_error=error,
    )


def show(record: Record) -> None:
    """Print a record as a line."""
    unit = "TFLOP/s" if record.op == "gemm" else "TOP/s"
    rate = f"{record.gflops / 1e3:8.1f} {unit}" if record.gflops else record.reason
    print(f"{record.size} {record.dtype} {record.layout} {label_of(record)}: {rate}", flush=True)


if __name__ == "__main__":
    main()
