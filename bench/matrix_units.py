"""The stages on matrix units, compared with the best stage without them and with the vendor's library.

    pip install '.[dawn]'
    python bench/matrix_units.py --sizes 1024,2048,4096,8192 bench/results/my-gpu.json
    python bench/matrix_units.py --op quantized bench/results/my-gpu-int8.json

Every kernel is checked before it is timed. Writes `webmm.records/1` and prints one line per record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click
import peers

from webmm import Device
from webmm.cases import op_of
from webmm.cases.base import Case
from webmm.cases.gemm import Operands
from webmm.cases.quantized import Integers
from webmm.choose import candidates
from webmm.cli import parse_kernels, parse_sizes
from webmm.errors import WebmmError
from webmm.kernels import label_of
from webmm.kernels.base import Kernel
from webmm.measure.bench import measure, record_of
from webmm.measure.records import Record, provenance, save, to_json
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes
from webmm.problems.quantized import Quantized

WITHOUT_UNITS = {"gemm": "pipelined", "quantized": "packed:bm=128:bn=64"}
OUTPUTS = ("float32", "float16")  # of gemm; a quantised product has the type of its operands
BYTES = ("int8", "uint8")

Problem = Gemm | Quantized


@click.command()
@click.option("--op", type=click.Choice(list(WITHOUT_UNITS)), default="gemm", show_default=True)
@click.option("--sizes", default="1024,2048,4096,8192", show_default=True)
@click.option("--kernels", help="Comma-separated.  [default: those chosen for matrix units, and the best other stage]")
@click.option("--layouts", default="nn", show_default=True, help="Comma-separated.")
@click.option("--dtypes", help=f"Of C for gemm ({', '.join(OUTPUTS)}), of all for quantized ({', '.join(BYTES)}).")
@click.option("--adapter")
@click.option("--engine", default="dawn", show_default=True)
@click.argument("output", type=click.Path(path_type=Path))
def main(
    op: str,
    sizes: str,
    kernels: str | None,
    layouts: str,
    dtypes: str | None,
    adapter: str | None,
    engine: str,
    output: Path,
) -> None:
    """Measure products of float16 or of 8-bit integers and write the records to OUTPUT."""
    types = dtypes.split(",") if dtypes else OUTPUTS if op == "gemm" else BYTES
    records: list[Record] = []
    with Device(adapter, engine=engine) as device:
        print(device.info, flush=True)
        for size in parse_sizes(sizes):
            for layout in layouts.split(","):
                for dtype in types:
                    problem = problem_of(op, size, dtype, layout)
                    for record in (*run(device, problem, kernels), *peer(device, problem)):
                        show(record)
                        records.append(record)
                    save(output, to_json(records, **provenance()))


def problem_of(op: str, size: tuple[int, int, int], dtype: str, layout: str) -> Problem:
    """Return a product of float16 into `dtype`, or one of `dtype` into the same."""
    if op == "gemm":
        return gemm(*size, dtype="f16", out_dtype=dtype, **transposes(layout))
    return cast(Quantized, op_of(op).problem(size, dtype, layout))


def run(device: Device, problem: Problem, kernels: str | None) -> Iterator[Record]:
    """Yield the record of each kernel that is named, or else chosen."""
    named = parse_kernels(kernels or WITHOUT_UNITS[problem.op], problem.op)
    candidates: Sequence[Kernel[Any]] = named if kernels else [*chosen(device, problem), *named]
    try:
        case: Case[Any] = op_of(problem.op).case(device, problem)
    except WebmmError as error:  # such as an adapter without float16
        yield from (record_of(device, problem, kernel, "unsupported", str(error)) for kernel in candidates)
        return
    for kernel in candidates:
        record = measure(device, kernel, case)
        yield dataclasses.replace(record, config={**record.config, "out_dtype": problem.out_dtype.name})


def chosen(device: Device, problem: Problem) -> Sequence[Kernel[Any]]:
    """Return the candidates on matrix units for `problem`, the likeliest first; none on a device without them."""
    return [kernel for kernel in candidates(problem, device, "off") if kernel.matrix_shape]


def peer(device: Device, problem: Problem) -> Iterator[Record]:
    """Yield the record of cuBLAS for this size, if PyTorch is installed and has a GPU."""
    if not peers.available():
        return
    if isinstance(problem, Gemm):
        if problem.out_dtype.name == OUTPUTS[0]:  # once per size: cuBLAS always writes float16
            product = dataclasses.replace(problem, out_dtype=problem.dtype)
            yield peers.cublas(product, Operands(device, product).checker, float("nan"))
    elif problem.dtype.name == BYTES[0] and not any(x % 8 for x in problem.sizes[:3]):  # as torch._int_mm requires
        yield peers.int_mm(problem, Integers(device, problem))


def show(record: Record) -> None:
    """Print a record as one line."""
    unit = "TFLOP/s" if record.op == "gemm" else "TOP/s"
    rate = f"{record.gflops / 1e3:8.1f} {unit}" if record.gflops else record.reason
    print(f"{record.size} {record.dtype} {record.layout} {label_of(record)}: {rate}", flush=True)


if __name__ == "__main__":
    main()
