"""What a size of subgroups costs that a shader asks for, or compares, against a text that does neither.

    python bench/subgroup_size.py --engine dawn          # both; where the engine cannot ask, only the comparison

The launches alternate, in ROUNDS rounds; a line per stage has the median of each in µs, and the ratios. `--size` is
that of products, smaller for software adapters.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from typing import Any

from webmm import Device
from webmm.cases.base import blank
from webmm.engine.launch import Launch
from webmm.engine.timing import time_launch
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.subgroup import Subgroup
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.tree import Alone
from webmm.kernels.subgroups import SIZE_CONTROL
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.problems.reduce import reduction
from webmm.wgsl.render import Shader, render

ROUNDS = 15


def texts(kernel: Kernel[Any], problem: Problem, device: Device) -> dict[str, Shader]:
    """Return the shaders that do neither, compare the size and ask for it."""
    dialect = device.engine.dialect
    compared = render(kernel, problem, dialect)
    start = compared.wgsl.index("    if (subgroup_size")
    end = compared.wgsl.index("    }\n", start) + len("    }\n")
    found = {"neither": dataclasses.replace(compared, wgsl=compared.wgsl[:start] + compared.wgsl[end:])}
    found["compared"] = compared
    if SIZE_CONTROL in device.capabilities.features:
        found["asked for"] = render(kernel, problem, dialect, pinned=True)
    return found


def prepared(kernel: Kernel[Any], problem: Problem, device: Device) -> dict[str, Launch]:
    """Return the launches of these shaders."""
    arrays = [device.array(blank(extent), extent.dtype) for extent in problem.buffers()]
    launches = {}
    for name, shader in texts(kernel, problem, device).items():
        device.shader = lambda *_, shader=shader: shader  # type: ignore[method-assign]
        device.launches.clear()
        launches[name] = device.launch(kernel, problem, *arrays)
    return launches


def main() -> None:
    """Print the times of each stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="dawn")
    parser.add_argument("--size", type=int, default=4096)
    options = parser.parse_args()
    with Device(engine=options.engine) as device:
        print(f"{device.info}, {device.engine.version()}")
        able, size = device.capabilities, options.size
        lanes = able.subgroup_size
        stages: list[tuple[Kernel[Any], Problem]] = [
            *((MatrixUnit.on(able), gemm(side, side, side, dtype="f16")) for side in (size, size // 4)),
            (Subgroup.on(able), gemm(size, size, size)),
            (Alone(lanes), reduction(4 * size, 1024)),
            (RowTiles(lanes=128, per_row=lanes, unroll=2, combine="subgroup"), reduction(16 * size, 8 * lanes)),
        ]
        for kernel, problem in stages:
            if reason := kernel.check(problem, able) or (kernel.subgroup < 8 and "WebGPU has no smaller subgroups"):
                print(f"{kernel.name} of {problem.op}: {reason}")
                continue
            launches = prepared(kernel, problem, device)
            times: dict[str, list[float]] = {name: [] for name in launches}
            for _ in range(ROUNDS):
                for name, launch in launches.items():
                    times[name].append(time_launch(device, launch, 0.05).median_us)
            medians = {name: statistics.median(values) for name, values in times.items()}
            words = ", ".join(f"{name} {us:.1f} µs ({us / medians['neither']:.4f})" for name, us in medians.items())
            print(f"{problem.op} {problem} by {kernel}: {words}")


if __name__ == "__main__":
    main()
