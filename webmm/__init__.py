"""Matrix multiplication on any GPU, from one set of WGSL shaders."""

from __future__ import annotations

from typing import Any, TypeVar

from webmm import choose
from webmm.calls import numpy_functions
from webmm.calls.einsum import einsum
from webmm.calls.elementwise import gelu, map
from webmm.calls.expression import astype, concatenate, elementwise, stack, take, where
from webmm.calls.gemm import gemm, matmul, matmul_async
from webmm.calls.normalise import layer_norm, rms_norm, softmax
from webmm.calls.operands import from_dlpack
from webmm.calls.quantized import qmatmul
from webmm.calls.reduce import reduce
from webmm.calls.weights import qmatmul_weights
from webmm.config import Tune
from webmm.engine import operators
from webmm.engine.array import Array
from webmm.engine.device import Device, default_device
from webmm.engine.devices import devices
from webmm.engine.profiling import Profile, profile
from webmm.epilogues import Epilogue
from webmm.errors import (
    ConfigError,
    DeviceLostError,
    FreedArrayError,
    MemoryLimitError,
    NoAdapterError,
    ProblemError,
    ShaderError,
    UnsupportedError,
    WebmmError,
)
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.problems.scheme import dequantize, quantize
from webmm.problems.weights import BlockWeights, quantize_blocks
from webmm.render import Shader, render
from webmm.version import __version__

__all__ = [
    "Array",
    "BlockWeights",
    "ConfigError",
    "Device",
    "DeviceLostError",
    "Epilogue",
    "FreedArrayError",
    "MemoryLimitError",
    "NoAdapterError",
    "Problem",
    "ProblemError",
    "Profile",
    "Shader",
    "ShaderError",
    "UnsupportedError",
    "WebmmError",
    "__version__",
    "astype",
    "concatenate",
    "dequantize",
    "devices",
    "einsum",
    "elementwise",
    "from_dlpack",
    "gelu",
    "gemm",
    "layer_norm",
    "map",
    "matmul",
    "matmul_async",
    "profile",
    "qmatmul",
    "qmatmul_weights",
    "quantize",
    "quantize_blocks",
    "reduce",
    "register",
    "render",
    "rms_norm",
    "softmax",
    "stack",
    "take",
    "where",
]

_Class = TypeVar("_Class", bound=type[Any])


def register(what: _Class) -> _Class:
    """Register your own kernel stage or op with webmm and return it; see `webmm.plugins.register()`."""
    from webmm import plugins  # imported here for the same reason as the two modules below

    return plugins.register(what)


def _failing(kernel: Kernel[Any], problem: Problem, device: Device) -> str | None:
    from webmm.selftest import failing  # most calls find their kernel in the cache and need neither module

    return failing(kernel, problem, device)


def _learn(problem: Problem, device: Device, tune: Tune) -> None:
    from webmm.learn import learn

    learn(problem, device, tune)


def _namespace(version: str | None) -> Any:
    from webmm import array_api

    return array_api.of_version(version)


def _restore(host: Any) -> Array:
    return default_device().array(host)


# Lower layers call these functions, but cannot import them.
choose.set_hooks(_failing, _learn)
operators.set_hooks(
    {
        **{"elementwise": elementwise, "reduce": reduce, "astype": astype, "take": take, "matmul": matmul},
        **{"namespace": _namespace, "restore": _restore},
    },
    numpy_functions.FUNCTIONS,
)
