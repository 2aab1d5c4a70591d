"""Output of `webmm kernel`: checks and timings of a WGSL file that the user wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webmm.cases import op_of
from webmm.dtypes import dtype_of
from webmm.engine.device import Device
from webmm.errors import NoAdapterError
from webmm.foreign import Foreign, Size
from webmm.foreign.bench import measured
from webmm.foreign.check import SIZES, check, order_unknown
from webmm.kernels.base import Kernel
from webmm.measure import roofline
from webmm.measure.bench import Bench
from webmm.measure.records import Record
from webmm.report import Open, plain, show_reasons
from webmm.report.ladder import ladder_table


def run_check(open_device: Open, foreign: Foreign, sizes: Sequence[Size] | None, dtype: str) -> bool:
    """Check `foreign` at `sizes` (default: SIZES), print the findings, and return whether it is right."""
    console, right = plain(), True
    with open_device() as device:
        cpu = device if device.info.kind == "cpu" else _cpu()
        console.print(f"{foreign.name} on {device.info}")
        for found in check(foreign, device, cpu, sizes or SIZES, dtype_of(dtype)):
            console.print(f"  {'x'.join(map(str, found.size))}: {found.words or 'right'}", soft_wrap=True)
            right = right and not found.words
        if why := order_unknown(foreign, cpu):
            console.print(f"  invocations ran in one order only: {why}", soft_wrap=True)
        if cpu and cpu is not device:
            cpu.close()
    return right


def _cpu() -> Device | None:
    try:
        return Device("cpu")
    except NoAdapterError:
        return None


def run_bench(
    open_device: Open,
    foreign: Foreign,
    kernels: list[Kernel[Any]] | None,
    sizes: Sequence[Size],
    dtype: str,
    budget: float,
) -> list[Record]:
    """Time `foreign` and `kernels` (default: the whole ladder); print a table per size, and return the records."""
    console, op = plain(), op_of("gemm")
    with open_device() as device:
        console.print(f"{device.info}")
        for each in sizes:  # refused before anything is measured
            op.problem(each, dtype, "nn")
        ceiling = roofline.measure(device)
        compared = kernels or [stage.on(device.capabilities) for stage in op.stages]
        found = list(measured(foreign, device, sizes, dtype, ceiling))
        found += Bench(device, compared, list(sizes), dtype, budget, ceiling, op=op).run()
    for size in dict.fromkeys(record.size for record in found):
        same_size = [record for record in found if record.size == size]
        table = ladder_table(same_size, op)
        plain(table).print(table)
        show_reasons(same_size)
    return found
