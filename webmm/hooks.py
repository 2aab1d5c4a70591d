"""Functions of higher layers that lower layers call, with their types; `webmm/__init__.py` provides them.

A lower layer calls `hooks.above.NAME(…)`. Arrays and devices are Any here: their classes are in a layer above this
module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import DTypeLike

if TYPE_CHECKING:
    from webmm.config import Tune
    from webmm.kernels.base import Kernel
    from webmm.problems.base import Problem


class Matmul(Protocol):
    """`webmm.matmul`."""

    def __call__(self, a: Any, b: Any, /, *, out_dtype: DTypeLike | None = None) -> Any:
        """Return the matrix product of two operands."""


class Elementwise(Protocol):
    """`webmm.elementwise`."""

    def __call__(self, expression: str, *, out_dtype: DTypeLike | None = None, **operands: Any) -> Any:
        """Return an expression of the elements of the operands, which it names."""


class Reduce(Protocol):
    """`webmm.reduce`."""

    def __call__(self, x: Any, op: Any, axis: Any, keepdims: bool, /, *, out_dtype: DTypeLike | None = None) -> Any:
        """Return the reduction `op` of `x` over `axis`."""


class Failing(Protocol):
    """`webmm.choose.verdicts.failing`."""

    def __call__(self, kernel: Kernel[Any], problem: Problem, device: Any, /) -> str | None:
        """Return why `kernel` must not compute `problem` on the device, or None if its shader passed the self-test."""


class SelfTest(Protocol):
    """`webmm.measure.selftest.test`."""

    def __call__(self, kernel: Kernel[Any], problem: Problem, device: Any, shader: str, /) -> None:
        """Test the shader of `kernel` for `problem`, and store its verdict under its fingerprint in the device's."""


class TuneAtFirstUse(Protocol):
    """`webmm.measure.first_use.tune_at_first_use`."""

    def __call__(self, problem: Problem, device: Any, tune: Tune, /) -> None:
        """Tune for `problem`, as `tune` ("quick" or "auto") says, unless the adapter has a record of it."""


class ProbeWhenIdle(Protocol):
    """`webmm.measure.idle.probe_when_idle`."""

    def __call__(self, device: Any, /) -> None:
        """Probe a GPU of unknown speed, when it has been idle, or at exit."""


class ProfileUntilExit(Protocol):
    """`webmm.report.at_exit.profile_until_exit`."""

    def __call__(self, device: Any, /) -> None:
        """Profile a device, as the setting `profile` says, until the program ends."""


class Above(Protocol):
    """What the engine (operators of arrays) and `webmm.choose` call of higher layers."""

    @property
    def matmul(self) -> Matmul:
        """The matrix product."""

    @property
    def elementwise(self) -> Elementwise:
        """Expressions."""

    @property
    def reduce(self) -> Reduce:
        """Reductions."""

    @property
    def astype(self) -> Callable[[Any, DTypeLike], Any]:
        """`webmm.astype`: a copy of an array in another dtype."""

    @property
    def copied(self) -> Callable[[Any], Any]:
        """`webmm.calls.expression.copied`: a dense copy of an array."""

    @property
    def take(self) -> Callable[[Any, Any, int | None], Any]:
        """`webmm.take`: the elements of an array at indices along an axis."""

    @property
    def write(self) -> Callable[[Any, Any], None]:
        """`webmm.calls.joined.write`: overwrite the elements of a view."""

    @property
    def default_device(self) -> Callable[[], Any]:
        """`webmm.engine.device.default_device`: the device of arrays that are unpickled."""

    @property
    def numpy_functions(self) -> Mapping[Any, Callable[..., Any]]:
        """Implementations of NumPy's functions for arrays."""

    @property
    def namespace(self) -> Callable[[str | None], Any]:
        """The namespace of the array API standard, in a version or the latest one."""

    @property
    def failing(self) -> Failing:
        """The verdict of a shader's self-test."""

    @property
    def test(self) -> SelfTest:
        """The self-test of a shader."""

    @property
    def tune(self) -> TuneAtFirstUse:
        """Tuning at first use."""

    @property
    def probe(self) -> ProbeWhenIdle:
        """A probe of a device later on."""

    @property
    def profile_until_exit(self) -> ProfileUntilExit:
        """A profile of the whole program."""


above: Above
