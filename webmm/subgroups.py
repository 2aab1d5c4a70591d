"""How many lanes a subgroup has on a device: asked of a shader, since what adapters report is no answer.

lavapipe says "4 to 128" and runs 8 (Mesa 22.3.6 on AVX2); the vector width of the machine decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import wgpu

from webmm.errors import WebmmError
from webmm.kernels.base import Binding
from webmm.render import environment, tidy

if TYPE_CHECKING:
    from webmm.device import Device

INVOCATIONS = 128  # of the workgroup that is asked: the largest subgroup there is
NVIDIA = 0x10DE  # in PCI's list of vendors
BINDINGS = (Binding(0, "heard", "storage", "array<Heard>"),)


def subgroup_size(device: Device) -> int:
    """Return the lanes of a subgroup; 0 where there are none, or where broadcasting goes wrong.

    A workgroup of no more invocations than that is one subgroup, whose lanes are numbered from 0.
    """
    if "subgroup" not in device.capabilities.features:
        return 0
    try:
        size, lane, first, second = _ask(device).T
    except WebmmError:  # a driver that offers subgroups and cannot compile this is one without
        return 0
    lanes, index = int(size[0]), np.arange(INVOCATIONS)
    if not 2 <= lanes <= INVOCATIONS:
        return 0
    start = index - index % lanes
    as_expected = (size == lanes) & (lane == index % lanes) & (first == start) & (second == start + 1)
    if not as_expected.all():
        return 0
    # Some GPUs choose the size for each shader (Intel: 8 to 32). They promise the least that they report, which wgpu 29
    # gives as 4 for all of them; NVIDIA's have 32 lanes, whatever the shader, and CPUs run the same everywhere.
    info = device.wgpu_device.adapter.info
    fixed = device.info.kind == "cpu" or info["vendor_id"] == NVIDIA
    return lanes if fixed else min(lanes, info["stackgroup_min_size"] or lanes)


def _ask(device: Device) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    text = tidy(environment().get_template("probe/subgroup.wgsl").render(dialect="naga", invocations=INVOCATIONS))
    pipeline = device.compile(text, "probe/subgroup", BINDINGS)
    gpu = device.wgpu_device
    heard = gpu.create_buffer(size=16 * INVOCATIONS, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
    encoder = gpu.create_command_encoder()
    compute_pass = encoder.begin_compute_pass()
    compute_pass.set_pipeline(pipeline)
    compute_pass.set_bind_group(0, device.bind(pipeline, [heard]))
    compute_pass.dispatch_workgroups(1)
    compute_pass.end()
    gpu.queue.submit([encoder.finish()])
    return np.frombuffer(gpu.queue.read_buffer(heard), np.uint32).reshape(INVOCATIONS, 4)
