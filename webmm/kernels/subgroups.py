"""Sizes of subgroups: those that a kernel needs, and those with which the shaders of a device may run.

A driver may choose the size for each shader (Intel 8 to 32, AMD 32 or 64), and what an adapter reports is a range,
which wgpu 29 gives as 4 to 128 for all. So a kernel is rendered for a number of lanes, and has it in one of three ways:

- All sizes that the device may choose suit the kernel.
- The shader asks for its size by `@subgroup_size`, where the engine has the feature SIZE_CONTROL.
- Otherwise the shader compares `subgroup_size` with that number before anything is exchanged, and writes nothing if it
  does not suit. The self-test, which every kernel of this sort must have passed on the device before it is launched,
  sees that: it runs the very pipeline in question, while a shader that only writes its size down would be another
  pipeline, for which the driver might choose another size.

The module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from typing import Any

from webmm.kernels.base import Capabilities, Kernel, suits

SIZE_CONTROL = "subgroup-size-control"
LEAST_SIZE = 4  # lanes of the smallest subgroups in WebGPU
SIZES = (4, 8, 16, 32, 64, 128)  # all that WebGPU allows


def pinned(kernel: Kernel[Any], device: Capabilities) -> bool:
    """Tell whether the shader of `kernel` asks for its size of subgroups on `device`.

    It does not if any size suits: a kernel for at least 8 lanes would be slower with 8 where the driver prefers 32. A
    workgroup of a single subgroup asks, since lanes of a larger one would be idle.
    """
    lanes, sizes = kernel.subgroup, device.subgroup_sizes
    if not lanes or SIZE_CONTROL not in device.features or lanes not in sizes:
        return False
    return kernel.exact or kernel.invocations == lanes or lanes > min(sizes)


def assured(kernel: Kernel[Any], device: Capabilities) -> bool:
    """Tell whether all dispatches of `kernel` get subgroups that suit them on `device`, whatever the driver chooses."""
    sizes = device.subgroup_sizes
    return all(
        not step.subgroup or pinned(step, device) or all(suits(step, lanes) for lanes in sizes)
        for step in kernel.dispatches
    )
