"""Matrix units for Python: whether wgpu lets shaders use them, and which fragments they then multiply.

wgpu-native 29 lists the feature for adapters that have them and refuses to enable it: it counts as experimental, and
there is no way yet to say that one accepts that. So it is asked for whenever it is listed, and used once it is granted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import wgpu

from webmm.errors import WebmmError
from webmm.kernels.base import MatrixShape
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.problem import gemm
from webmm.render import MATRIX_UNITS

if TYPE_CHECKING:
    from webmm.device import Device

FEATURE = MATRIX_UNITS["naga"]
SIDES = (16, 8)  # of the square fragments that naga knows; the larger are the faster


def open_device(adapter: Any, features: Iterable[str], limits: Mapping[str, int]) -> tuple[Any, str]:
    """Return an open wgpu device, with matrix units where it can be had, and else why it has none.

    Raises what wgpu raises where the device cannot be opened at all.
    """
    asked: dict[str, Any] = {"required_features": list(features), "required_limits": dict(limits)}
    if FEATURE not in adapter.features:
        return adapter.request_device_sync(**asked), f"the adapter does not offer {FEATURE}"
    try:
        asked_more = asked | {"required_features": [*asked["required_features"], FEATURE]}
        return adapter.request_device_sync(**asked_more), ""
    except (wgpu.GPUError, RuntimeError) as error:
        why = f"wgpu does not enable {FEATURE}: {' '.join(str(error).split())}"
        return adapter.request_device_sync(**asked), why


def matrix_shapes(device: Device) -> frozenset[MatrixShape]:
    """Return what the device's matrix units multiply, found out by doing it; empty without the feature."""
    if FEATURE not in device.wgpu_device.features or "shader-f16" not in device.capabilities.features:
        return frozenset()
    lanes = device.capabilities.subgroup_size
    kernels = [MatrixUnit(bm=64, bn=64, sm=32, sn=32, fm=n, fn=n, fk=n, lanes=lanes) for n in SIDES] if lanes else []
    return frozenset(k.matrix_shape for k in kernels if k.invalid() is None and multiplies(device, k))


def multiplies(device: Device, kernel: MatrixUnit) -> bool:
    """Tell whether the stage is right on this device, two tiles each way."""
    before = device.capabilities
    device.capabilities = dataclasses.replace(before, matrix_shapes=frozenset({kernel.matrix_shape}))
    m, n, k = 2 * kernel.bm, 2 * kernel.bn, 2 * kernel.bk
    problem = gemm(m, n, k, dtype="f16", out_dtype="f32")
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (m, k)).astype(np.float16), rng.integers(-8, 9, (k, n)).astype(np.float16)
    try:
        with device.array(a) as x, device.array(b) as y, device.empty((m, n)) as c:
            device.run(kernel, problem, x, y, c)
            return np.array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32))
    except WebmmError:  # a driver that offers matrix units and cannot compile this is one without
        return False
    finally:
        device.capabilities = before
