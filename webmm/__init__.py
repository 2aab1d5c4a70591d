"""Matrix multiplication on any GPU, from one set of WGSL shaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import DTypeLike

from webmm import hooks
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
from webmm.problems.base import Problem
from webmm.version import __version__
from webmm.wgsl.own import Epilogue
from webmm.wgsl.render import Shader, render  # now, since `webmm.wgsl.render` is also the name of the module

if TYPE_CHECKING:  # loaded at their first use, from the modules in _PUBLIC: a program needs few of them
    from webmm.calls.attention import attention
    from webmm.calls.capture import capture
    from webmm.calls.compute import compute
    from webmm.calls.einsum import einsum
    from webmm.calls.elementwise import gelu, map
    from webmm.calls.expression import astype, elementwise, where
    from webmm.calls.gemm import gemm, matmul, matmul_async
    from webmm.calls.joined import concatenate, stack, take
    from webmm.calls.kv_cache import KVCache
    from webmm.calls.normalise import layer_norm, rms_norm, softmax
    from webmm.calls.operands import from_dlpack
    from webmm.calls.quantized import qmatmul
    from webmm.calls.reduce import reduce
    from webmm.calls.rotary import rotary
    from webmm.calls.weights import qmatmul_weights
    from webmm.engine.device import Array, Device
    from webmm.engine.devices import devices
    from webmm.engine.profiling import Profile, profile
    from webmm.measure.benchmark import Benchmark, benchmark
    from webmm.problems.scheme import dequantize, quantize
    from webmm.problems.weights import BlockWeights, quantize_blocks
    from webmm.wgsl.reductions import Reduction

__all__ = [
    "Array",
    "Benchmark",
    "BlockWeights",
    "ConfigError",
    "Device",
    "DeviceLostError",
    "Epilogue",
    "FreedArrayError",
    "KVCache",
    "MemoryLimitError",
    "NoAdapterError",
    "Problem",
    "ProblemError",
    "Profile",
    "Reduction",
    "Shader",
    "ShaderError",
    "UnsupportedError",
    "WebmmError",
    "__version__",
    "astype",
    "attention",
    "benchmark",
    "capture",
    "compute",
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
    "rotary",
    "softmax",
    "stack",
    "take",
    "where",
]

_PUBLIC = {
    "calls.attention": "attention",
    "calls.capture": "capture",
    "calls.compute": "compute",
    "calls.einsum": "einsum",
    "calls.elementwise": "gelu map",
    "calls.expression": "astype elementwise where",
    "calls.gemm": "gemm matmul matmul_async",
    "calls.joined": "concatenate stack take",
    "calls.kv_cache": "KVCache",
    "calls.normalise": "layer_norm rms_norm softmax",
    "calls.operands": "from_dlpack",
    "calls.quantized": "qmatmul",
    "calls.reduce": "reduce",
    "calls.rotary": "rotary",
    "calls.weights": "qmatmul_weights",
    "engine.device": "Array Device",
    "engine.devices": "devices",
    "engine.profiling": "Profile profile",
    "measure.benchmark": "Benchmark benchmark",
    "problems.scheme": "dequantize quantize",
    "problems.weights": "BlockWeights quantize_blocks",
    "wgsl.reductions": "Reduction",
}
_MODULES = "calls choose config engine files log measure text wgsl"  # as in `webmm.config.set()`

_modules = {name: module for module, names in _PUBLIC.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _modules:
        found = getattr(import_module(f"webmm.{_modules[name]}"), name)
    elif name in _MODULES.split():
        found = import_module(f"webmm.{name}")
    else:
        raise AttributeError(f"module 'webmm' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_modules, *_MODULES.split()})


_Class = TypeVar("_Class", bound=type[Any])


def register(what: _Class) -> _Class:
    """Register your own kernel stage or op with webmm and return it; see `webmm.plugins.register()`."""
    from webmm import plugins

    return plugins.register(what)


class _Above:
    """`webmm.hooks.Above`: each function is imported at its first use."""

    @cached_property
    def matmul(self) -> hooks.Matmul:
        from webmm.calls.gemm import matmul

        return matmul

    @cached_property
    def elementwise(self) -> hooks.Elementwise:
        from webmm.calls.expression import elementwise

        return elementwise

    @cached_property
    def reduce(self) -> hooks.Reduce:
        from webmm.calls.reduce import reduce

        return reduce

    @cached_property
    def astype(self) -> Callable[[Any, DTypeLike], Any]:
        from webmm.calls.expression import astype

        return astype

    @cached_property
    def copied(self) -> Callable[[Any], Any]:
        from webmm.calls.expression import copied

        return copied

    @cached_property
    def take(self) -> Callable[[Any, Any, int | None], Any]:
        from webmm.calls.joined import take

        return take

    @cached_property
    def write(self) -> Callable[[Any, Any], None]:
        from webmm.calls.joined import write

        return write

    @cached_property
    def default_device(self) -> Callable[[], Device]:
        from webmm.engine.device import default_device

        return default_device

    @cached_property
    def numpy_functions(self) -> Mapping[Any, Callable[..., Any]]:
        from webmm.calls.numpy_functions import FUNCTIONS

        return FUNCTIONS

    @cached_property
    def namespace(self) -> Callable[[str | None], Any]:
        from webmm.calls.array_api import of_version

        return of_version

    @cached_property
    def failing(self) -> hooks.Failing:
        from webmm.choose.verdicts import failing

        return failing

    @cached_property
    def test(self) -> hooks.SelfTest:
        from webmm.measure.selftest import test

        return test

    @cached_property
    def tune(self) -> hooks.TuneAtFirstUse:
        from webmm.measure.first_use import tune_at_first_use

        return tune_at_first_use

    @cached_property
    def probe(self) -> hooks.ProbeWhenIdle:
        from webmm.measure.idle import probe_when_idle

        return probe_when_idle

    @cached_property
    def profile_until_exit(self) -> hooks.ProfileUntilExit:
        from webmm.report.at_exit import profile_until_exit

        return profile_until_exit


hooks.above = _Above()
