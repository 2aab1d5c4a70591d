"""Subgroup stages at the width of this process's lavapipe: `LP_NATIVE_VECTOR_WIDTH=512 python tests/gpu/lanes.py`.

A small tile of every stage that uses subgroups, and of each way to combine results, is proven for each number of lanes
that it can need, the widest for every operation, or with --few for one of them in turn. Then a driver is played that
may choose twice as many: kernels for these must be refused, by the choice and when they are launched by hand, and must
leave the result as it was.
"""

import dataclasses
import functools
import json
import math
import os
import sys
import tempfile

import numpy as np
from tiles import problems

from webmm import Device
from webmm.cases.attention import plain
from webmm.cases.base import blank
from webmm.choose import refused
from webmm.dtypes import F32
from webmm.engine.launches import testing
from webmm.engine.timing import submit
from webmm.errors import UnsupportedError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import LEAST_SIZE
from webmm.measure.selftest import prove

OTHERS = (4, 8, 16, 32, 64)
NARROW = (plain((1, 2, 9, 40, 16), F32),)  # for the smallest tiles of attention, which hold rows of 32


@functools.cache
def stages():
    """Return the stages that use subgroups, of all ops, without those of matrix units."""
    every = (cls for known in STAGES.values() for cls in known.values() if cls.subgroup is not Kernel.subgroup)
    return [cls for cls in every if any(tile.subgroup for tile in cls.space()) and not cls().matrix_shape]


NAMES = [f"{cls.op} {cls.name}" for cls in stages()]


@functools.cache
def small(cls):
    """Return a stage's smallest tile for each number of lanes that it may need, and each way to combine results."""
    found = {}
    for kernel in cls.space():
        kind, size = (kernel.subgroup, getattr(kernel, "combine", None)), weight(kernel)
        if kind not in found or size < found[kind][0]:
            found[kind] = size, kernel
    tiles = [kernel for _, kernel in found.values()]
    lanes = next((field.metadata for field in dataclasses.fields(cls) if field.name == "lanes"), {"most": 0})
    wider = [dataclasses.replace(each, lanes=16) for each in tiles if lanes["most"] == 16]
    return [kernel for kernel in {*tiles, *wider} if kernel.subgroup and kernel.invalid() is None]


def weight(kernel):
    return math.prod(value for value in kernel.config.values() if isinstance(value, int))


def problems_for(kernel, device):
    """Return a problem of each operation of the op that the kernel can compute."""
    found = {}
    for problem in [*(problem for known in problems(kernel.op) for problem in known), *NARROW]:
        if problem.op != kernel.op:
            continue
        operation = getattr(problem, "function", ""), getattr(problem, "operation", "")
        if operation not in found and kernel.check(problem, device.capabilities) is None:
            found[operation] = problem
    return [*found.values()]


def unwritten(kernel, problem, device):
    """Tell whether a launch of the kernel, proven or not, leaves all results as they were."""
    extents = problem.buffers()
    contents = [blank(extent) if extent.written else np.ones(extent.end) for extent in extents]
    arrays = [device.array(each, extent.dtype) for each, extent in zip(contents, extents, strict=True)]
    with testing():
        submit(device, device.launch(kernel, problem, *arrays))
    written = (array.numpy() for extent, array in zip(extents, arrays, strict=True) if extent.written)
    return all(np.isnan(result).all() if extents[-1].dtype.eps else (result == -1).all() for result in written)


def complaint(kernel, problem, device):
    """Return what is wrong about how a kernel for more lanes than there are is refused, or ""."""
    if refused(kernel, problem, device) is None:
        return "the choice takes it"
    arrays = [device.array(blank(extent), extent.dtype) for extent in problem.buffers()]
    try:
        device.run(kernel, problem, *arrays)
        return "it runs"
    except UnsupportedError:
        pass
    return "" if len(kernel.dispatches) > 1 or unwritten(kernel, problem, device) else "it writes results"


def main(few):
    device, found = Device(), {"right": [], "refused": [], "failed": []}
    offered = device.capabilities
    kernels = sorted((kernel for cls in stages() for kernel in small(cls)), key=str)
    for i, kernel in enumerate(kernels):
        every = problems_for(kernel, device)
        if few or kernel.subgroup not in (LEAST_SIZE, offered.subgroup_size):
            every = every[i % max(1, len(every)) :][:1]
        for problem in every:
            words = prove(kernel, problem, device)
            found["failed" if words else "right"].append(f"{kernel.op} {kernel.name} {kernel.subgroup} {words}".strip())
    device.capabilities = dataclasses.replace(
        offered, other_sizes=tuple(n for n in OTHERS if n != offered.subgroup_size)
    )
    for kernel in kernels:
        if max(LEAST_SIZE, offered.subgroup_size) < kernel.subgroup <= 2 * offered.subgroup_size:
            words = complaint(kernel, problems_for(kernel, device)[0], device)
            found["failed" if words else "refused"].append(
                f"{kernel.op} {kernel.name} {kernel.subgroup} {words}".strip()
            )
    every = {(f"{kernel.op} {kernel.name} {kernel.subgroup}", kernel.subgroup, kernel.exact) for kernel in kernels}
    print(json.dumps({"lanes": offered.subgroup_size, "kernels": sorted(every), **found}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="webmm-lanes-") as folder:
        os.environ["WEBMM_CACHE_DIR"] = folder
        main("--few" in sys.argv)
