"""Which kernel computes a problem where the caller does not say: one way for every op.

What can run is a question for `Kernel.check()`, what is right on this driver for the self-test. What is fast is a
matter of measurement: the nearest tuned record of this adapter, the user's before the shipped ones, then of the same
vendor (`webmm.choose.tuned`); where none is near, the candidates of the op's module here, by what was measured of such
shapes. An op that has a model of time for the device (`webmm.choose.model`) asks for records of practically the very
shape, and predicts the rest. What has no record at all can be tuned at its first use (`tune="quick"`, `tune="auto"`).

The self-test and the tuner run problems themselves, and so stand above this package: they are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from webmm import log
from webmm.choose import elementwise, gemm, normalise, quantized, reduce, tuned, weights
from webmm.config import Tune
from webmm.engine.array import Array
from webmm.engine.device import Device
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels import REGISTERED
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem

COLUMNS: dict[str, ModuleType] = {  # of every op
    **{"gemm": gemm, "quantized": quantized, "weights": weights},
    **{"reduce": reduce, "normalise": normalise, "elementwise": elementwise},
}
MAX_CHOICES = 4096  # remembered per device: problems differ by offsets, too

Failing = Callable[[Kernel[Any], Problem, Device], "str | None"]
Learn = Callable[[Problem, Device, Tune], None]

_failing: Failing = lambda kernel, problem, device: None  # noqa: E731
_learn: Learn = lambda problem, device, tune: None  # noqa: E731


def hand_in(failing: Failing, learn: Learn) -> None:
    """Set what tells why a kernel must not compute a problem on a device, and what tunes a problem's shape there."""
    global _failing, _learn
    _failing, _learn = failing, learn


def candidates(problem: Problem, device: Device, tune: Tune = "cached") -> dict[Kernel[Any], str]:
    """Return the kernels that are worth running for `problem` on `device`, best first, each with why it is there."""
    column = COLUMNS.get(problem.op)  # none of an op from outside the package
    portable: list[Kernel[Any]] = list(column.candidates(problem, device)) if column else []
    others = (stage.on(device.capabilities) for stage in reversed(REGISTERED) if stage.op == problem.op)
    anywhere: Iterable[Kernel[Any]] = getattr(column, "ANYWHERE", ())
    units = any(kernel.matrix_shape for kernel in portable)
    predicted: list[tuple[Kernel[Any], str]] = []
    if tune != "off" and not units and column and hasattr(column, "predicted"):
        found = column.predicted(problem, device)
        predicted = [(kernel, f"predicted {us:,.1f} µs, mostly {limit}") for kernel, us, limit in found]
    near = tuned.SAME if predicted else tuned.NEAR
    ranked = [] if tune == "off" else tuned.nearest(problem, device, units, near)
    result: dict[Kernel[Any], str] = {}
    for kernel, why in (
        *ranked,
        *predicted,
        *((kernel, "portable default") for kernel in portable),
        *((kernel, "registered") for kernel in others),
        *((kernel, "runs anywhere") for kernel in anywhere),
    ):
        result.setdefault(kernel, why)
    return result


def refused(kernel: Kernel[Any], problem: Problem, device: Device) -> str | None:
    """Return why `kernel` must not compute `problem` on `device`, None where it may: it can, and does so rightly."""
    return kernel.check(problem, device.capabilities) or _failing(kernel, problem, device)


def choose(problem: Problem, device: Device, tune: Tune | None = None) -> Kernel[Any]:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can.

    `tune` is "off" to use portable defaults only, "cached" for tuned records as well, "quick" and "auto" to tune first
    where this adapter has no record of the size, or of such a shape; by default the device's setting.
    """
    mode = tune or device.settings.tune
    known: Kernel[Any] | None = device.choices.get((problem, mode))
    if known is not None:
        return known
    if mode in ("quick", "auto"):
        _learn(problem, device, mode)
    reasons: list[str] = []
    for kernel, why in candidates(problem, device, mode).items():
        reason = refused(kernel, problem, device)
        if reason is None:
            words = f"; ruled out: {'; '.join(reasons)}" if reasons else ""
            text = "%s %s %s %s: %s, %s%s"
            log.choice.info(text, problem.op, problem, problem.layout, problem.dtype.name, kernel, why, words)
            if len(device.choices) >= MAX_CHOICES:
                device.choices.clear()
            device.choices[problem, mode] = kernel
            return kernel
        reasons.append(f"{kernel.name} {reason}")
    raise UnsupportedError(f"no kernel can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def run(problem: Problem, device: Device, *arrays: Array, tune: Tune | None = None) -> None:
    """Queue `problem` by the kernel chosen for it; raises as `choose()` and `Device.run()` do.

    Where the device has no room for what that kernel keeps between its dispatches, one that keeps nothing takes over.
    """
    kernel = choose(problem, device, tune)
    try:
        device.run(kernel, problem, *arrays)
    except MemoryLimitError as error:
        lean = _lean(problem, device) if kernel.scratch(problem) else None
        if lean is None:
            raise
        log.choice.warning("%s: no room for %s (%s), %s takes over", problem, kernel, error, lean)
        device.choices[problem, tune or device.settings.tune] = lean
        device.run(lean, problem, *arrays)


def _lean(problem: Problem, device: Device) -> Kernel[Any] | None:
    """Return the best kernel that keeps nothing between its dispatches, None where there is none."""
    lean = (kernel for kernel in candidates(problem, device) if not kernel.scratch(problem))
    return next((kernel for kernel in lean if refused(kernel, problem, device) is None), None)
