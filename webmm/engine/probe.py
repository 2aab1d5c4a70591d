"""Capabilities that adapters do not report, or report wrongly, found by running shaders.

Subgroup size: lavapipe reports "4 to 128" and uses 8 (Mesa 22.3.6 on AVX2); the CPU's vector width decides.
Matrix units: a test product shows which fragment shapes work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import F16
from webmm.engine.core import Core
from webmm.engine.launches import testing
from webmm.errors import WebmmError
from webmm.kernels.base import Binding, Capabilities, Kernel, MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit, MatrixUnitF32
from webmm.kernels.subgroups import SIZES
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.wgsl.render import environment, tidy

INVOCATIONS = 128  # workgroup size of the probe: the largest subgroup size
NVIDIA = 0x10DE  # PCI vendor ID
BINDINGS = (Binding(0, "heard", "storage", "array<Heard>"),)

# Stages that try fragments, by the types of operands and sums.
TRIED: dict[tuple[str, str], type[MatrixUnit]] = {("f16", "f32"): MatrixUnit, ("f32", "f32"): MatrixUnitF32}
TILES: dict[str, Any] = {"bm": 64, "bn": 64, "sm": 32, "sn": 32}  # with which fragments are tried


def with_subgroups(device: Core) -> Capabilities:
    """Return the device's capabilities with the size of the probe's subgroups, and others that shaders may have.

    NVIDIA GPUs have 32 lanes and CPUs a constant number, for every shader. Other drivers may choose for each shader.
    """
    lanes, info = subgroup_size(device), device.wgpu_device.adapter.info
    least, most = device.engine.subgroup_sizes(info)
    fixed = not lanes or device.info.kind == "cpu" or info["vendor_id"] == NVIDIA
    others = () if fixed else tuple(size for size in SIZES if least <= size <= most and size != lanes)
    nearest = sorted(others, key=lambda size: max(size, lanes) // min(size, lanes))
    return dataclasses.replace(device.capabilities, subgroup_size=lanes, other_sizes=tuple(nearest))


def subgroup_size(device: Core) -> int:
    """Return the probe's subgroup size in lanes; 0 if there are no subgroups, or if broadcasts give wrong results.

    A workgroup of at most that many invocations is one subgroup, whose lanes are numbered from 0.
    """
    if device.engine.subgroups not in device.capabilities.features:
        return 0
    try:
        size, lane, first, second = _run_probe(device).T
    except WebmmError:  # the driver reports subgroups but cannot compile the probe: treat it as without
        return 0
    lanes, index = int(size[0]), np.arange(INVOCATIONS)
    if not 2 <= lanes <= INVOCATIONS:
        return 0
    start = index - index % lanes
    as_expected = (size == lanes) & (lane == index % lanes) & (first == start) & (second == start + 1)
    return lanes if as_expected.all() else 0


def _run_probe(device: Core) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    text = tidy(
        environment()
        .get_template("probe/subgroup.wgsl")
        .render(dialect=device.engine.dialect, invocations=INVOCATIONS, pinned=0)
    )
    pipeline = device.compile(text, "probe/subgroup", BINDINGS)
    gpu, usage = device.wgpu_device, device.engine.api.BufferUsage
    heard = gpu.create_buffer(size=16 * INVOCATIONS, usage=usage.STORAGE | usage.COPY_SRC)
    encoder = gpu.create_command_encoder()
    compute_pass = encoder.begin_compute_pass()
    compute_pass.set_pipeline(pipeline)
    compute_pass.set_bind_group(0, device.bind(pipeline, [heard]))
    compute_pass.dispatch_workgroups(1)
    compute_pass.end()
    gpu.queue.submit([encoder.finish()])
    return np.frombuffer(gpu.queue.read_buffer(heard), np.uint32).reshape(INVOCATIONS, 4)


# Returns the product of two matrices by a kernel on the device.
Multiply = Callable[[Kernel[Any], Problem, NDArray[Any], NDArray[Any]], NDArray[Any]]


def matrix_shapes(device: Core, multiply: Multiply) -> frozenset[MatrixShape]:
    """Return the fragment shapes that the device's matrix units support; empty without the feature.

    Shapes of floats with float32 results are included if a test product is right, others if the engine lists them.
    """
    if device.engine.matrix_units not in device.wgpu_device.features:
        return frozenset()
    listed = device.engine.matrix_shapes(device.wgpu_device.adapter)
    floats = {shape for shape in listed if (shape.operands, shape.result) in TRIED}
    return (listed - floats) | {shape for shape in floats if multiplies(device, shape, multiply)}


def multiplies(device: Core, shape: MatrixShape, multiply: Multiply) -> bool:
    """Tell whether a product of 2x2 tiles, with fragments of `shape`, is right in subgroups of some size."""
    return any(_multiplies(device, shape, lanes, multiply) for lanes in device.capabilities.subgroup_sizes)


def _multiplies(device: Core, shape: MatrixShape, lanes: int, multiply: Multiply) -> bool:
    before = device.capabilities
    stage = TRIED[shape.operands, shape.result]
    kernel = stage(**TILES, fm=shape.m, fn=shape.n, fk=shape.k, lanes=lanes)
    dtype = stage.multiplies[0]
    if kernel.invalid() or not dtype.features <= before.features:
        return False
    device.capabilities = dataclasses.replace(before, matrix_shapes=frozenset({shape}))
    m, n, k = 2 * kernel.bm, 2 * kernel.bn, 2 * kernel.bk
    problem = gemm(m, n, k, dtype=dtype, out_dtype="f32")
    rng = np.random.default_rng(0)
    bits = 3 if dtype == F16 else 12  # of elements of A: units that round float32 to fewer bits are found out
    a, b = (rng.integers(-(2**x), 2**x + 1, size).astype(dtype.numpy) for x, size in ((bits, (m, k)), (3, (k, n))))
    try:
        with testing():
            return np.array_equal(multiply(kernel, problem, a, b), a.astype(np.float32) @ b.astype(np.float32))
    except WebmmError:  # the driver reports matrix units but cannot compile the kernel: treat it as without
        return False
    finally:
        device.capabilities = before
