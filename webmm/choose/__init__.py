"""The choice of the kernel for a problem, in the same way for every op.

`Kernel.check()` says whether a kernel can run, and the self-test whether it is correct on this driver. Speed is a
matter of measurement: the nearest tuned record of this adapter (the user's before the shipped ones), then one of the
same vendor (`webmm.choose.tuned`); if there is none nearby, the candidates of the op's module in this package: a field
of kernels that the model of cost ranks (`webmm.choose.model`), or those that rules choose. If times of the op's kernels
were fitted on such a device, only records of almost exactly the same shape come before predictions. A shape without a
record can be tuned at its first use (`tune="quick"`, `tune="auto"`).

The self-test, the tuner and the probe run problems themselves, and so belong to a higher layer; they are called through
`webmm.hooks`.

The package is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from webmm import hooks, log
from webmm.choose import adapted, tuned
from webmm.choose.model import family_of
from webmm.choose.verdicts import failing
from webmm.config import Tune
from webmm.engine import generation
from webmm.engine.device import Array, Device
from webmm.errors import MemoryLimitError, UnsupportedError
from webmm.kernels import REGISTERED
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import assured
from webmm.lazy import Lazy
from webmm.problems import OPS
from webmm.problems.base import Problem

# The module of each op.
COLUMNS: Lazy[str, ModuleType] = Lazy(OPS, lambda op: import_module(f"{__name__}.{op}"))
LIKELY = 4  # predicted kernels that become candidates
MAX_CHOICES = 4096  # choices cached per device; problems that differ only in offsets count separately
ALIKE = 64  # offsets that differ by a multiple of this many elements are aligned alike


def candidates(problem: Problem, device: Device, tune: Tune = "cached") -> dict[Kernel[Any], str]:
    """Return the candidates for `problem` on `device`, best first, each with the reason why it is one."""
    column = COLUMNS.get(problem.op)  # None for an op from outside the package
    portable: list[Kernel[Any]] = list(column.candidates(problem, device)) if column else []
    predicted: list[tuple[Kernel[Any], str]] = []
    fitted = False
    if column and not portable:
        predicted, fitted = ranked(column, problem, device, tune)
    others = (stage.on(device.capabilities) for stage in reversed(REGISTERED) if stage.op == problem.op)
    anywhere: Iterable[Kernel[Any]] = getattr(column, "ANYWHERE", ())
    units = any(kernel.matrix_shape for kernel in (*portable, *(kernel for kernel, _ in predicted[:1])))
    near = tuned.SAME if fitted and device.info.kind != "cpu" else tuned.NEAR  # times on a CPU scatter
    known = [] if tune == "off" else tuned.nearest(problem, device, units, near)
    low = column.fallbacks(problem, device) if column and hasattr(column, "fallbacks") else ()
    result: dict[Kernel[Any], str] = {}
    for kernel, why in (
        *known,
        *predicted,
        *((kernel, "portable default") for kernel in (*portable, *low)),
        *((kernel, "registered") for kernel in others),
        *((kernel, "runs anywhere") for kernel in anywhere),
    ):
        result.setdefault(kernel, why)
        for other in _instead(kernel, device):
            result.setdefault(other, f"{why}, with other subgroups")
    return result


def _instead(kernel: Kernel[Any], device: Device) -> Iterator[Kernel[Any]]:
    """Yield what takes the place of `kernel` if its subgroups turn out to have another size than is likely."""
    if kernel.exact:
        others = (
            replace(kernel, lanes=lanes)  # type: ignore[call-arg]  # all of these have it
            for lanes in device.capabilities.other_sizes
        )
        yield from (other for other in others if other.invalid() is None)
    elif kernel.config.get("combine") == "subgroup" and not assured(kernel, device.capabilities):
        yield replace(kernel, combine="tree")  # type: ignore[call-arg]


def suited(stage: type[Kernel[Any]], problem: Problem, device: Device) -> Kernel[Any]:
    """Return `stage` with its defaults, for the first size of subgroups that its shader turns out to have on `device`.

    If no size suits, it is the most likely one.
    """
    offered = device.capabilities
    adapted = [stage.on(replace(offered, subgroup_size=lanes)) for lanes in offered.subgroup_sizes] or [
        stage.on(offered)
    ]
    if len(set(adapted)) == 1:
        return adapted[0]
    return next((kernel for kernel in adapted if refused(kernel, problem, device) is None), adapted[0])


def ranked(
    column: ModuleType, problem: Problem, device: Device, tune: Tune
) -> tuple[list[tuple[Kernel[Any], str]], bool]:
    """Return the LIKELY kernels of the op's field with the shortest predicted times that the device can run, and why.

    If all of these need scratch buffers, the first one without follows. The second value tells whether the prediction
    was fitted to times on such a device. With `tune` "off", devices of a kind are all alike.
    """
    if not hasattr(column, "field"):
        return [], False
    model = adapted.typical(device) if tune == "off" else adapted.model_of(device)
    every = list(column.field(problem, device, model.machine.multiprocessors))
    field = [kernel for kernel in every if model.knows(kernel)] or every
    found: list[tuple[Kernel[Any], str]] = []
    lean = False  # whether one of them needs no scratch buffer
    for kernel, us, limit in model.best(field, problem):
        if lean and len(found) >= LIKELY:
            continue
        whole = not kernel.scratch(problem)
        if (whole or len(found) < LIKELY) and kernel.check(problem, device.capabilities) is None:
            words = f"predicted {us:,.1f} µs, mostly {limit}"
            found.append((kernel, "portable default" if tune == "off" else words))
            lean = lean or whole
    return found, any(family_of(kernel) in model.families for kernel in field)


def refused(kernel: Kernel[Any], problem: Problem, device: Device) -> str | None:
    """Return why `kernel` cannot run `problem` on `device` or computes it incorrectly there; None if neither holds.

    The first line is the reason; for a kernel that fails there, more lines quote the compiler or the wrong element.
    """
    return kernel.check(problem, device.capabilities) or failing(kernel, problem, device)


def choose(problem: Problem, device: Device, tune: Tune | None = None) -> Kernel[Any]:
    """Return the first candidate that can run; raises UnsupportedError with the reasons if none can.

    `tune` is "off" for portable defaults only, "cached" for tuned records as well, "quick" or "auto" to tune first if
    this adapter has no record of the exact size or of the bucket of shapes; by default the device's setting. A choice
    holds until this process adds or deletes records, corrections, rates or stages (`webmm.engine.generation`).
    """
    mode = tune or device.settings.tune
    now = generation.current
    known: Kernel[Any] | None = device.choices.get((now, problem, mode))
    if known is not None:
        return known
    alike = (_near_start(problem), mode, ALIKE)  # apart from the choice for that problem, for which it was not proven
    known = device.choices.get((now, *alike))
    if known is not None and refused(known, problem, device) is None:
        return _keep(device, known, now, problem, mode)
    if mode in ("quick", "auto"):
        hooks.above.tune(problem, device, mode)
    now = generation.current  # what changes from here on is not in this choice
    reasons: list[str] = []
    for kernel, why in candidates(problem, device, mode).items():
        reason = refused(kernel, problem, device)
        if reason is None:
            words = f"; ruled out: {'; '.join(reasons)}" if reasons else ""
            text = "%s %s %s %s: %s, %s%s"
            log.choice.info(text, problem.op, problem, problem.layout, problem.dtype.name, kernel, why, words)
            _keep(device, kernel, now, problem, mode)
            _keep(device, kernel, now, *alike)
            if mode != "off" and device.settings.probe:
                hooks.above.probe(device)
            return kernel
        reasons.append(f"{kernel.name} {reason.splitlines()[0]}")
    raise nothing_for(problem, device, reasons)


def nothing_for(problem: Problem, device: Device, reasons: Iterable[str]) -> UnsupportedError:
    """Return the error of a problem that no candidate can compute on a device, with the reasons."""
    return UnsupportedError(f"no kernel can compute {problem} on {device.capabilities.name}: {'; '.join(reasons)}")


def _near_start(problem: Problem) -> Problem:
    """Return the problem with offsets as small as their alignment allows, for which the same kernels are the best.

    A cache of keys, or a table of which a model reads another row for each token, has a new offset at each call.
    """
    extents = problem.buffers()
    if not any(extent.start for extent in extents) or any(extent.windowed for extent in extents):
        return problem
    return problem.within(tuple(extent.start // ALIKE * ALIKE for extent in extents))


def _keep(device: Device, kernel: Kernel[Any], *key: Any) -> Kernel[Any]:
    """Remember a choice under a key that begins with its generation, and return it."""
    if len(device.choices) >= MAX_CHOICES:
        device.choices.clear()
    device.choices[key] = kernel
    return kernel


def run(problem: Problem, device: Device, *arrays: Array, tune: Tune | None = None) -> None:
    """Queue `problem` with the kernel chosen for it; raises as `choose()` and `Device.run()` do.

    If the device has too little memory for that kernel's scratch buffers, a kernel without any is used instead.
    """
    kernel = choose(problem, device, tune)
    try:
        device.run(kernel, problem, *arrays)
    except MemoryLimitError as error:
        lean = _lean(problem, device) if kernel.scratch(problem) else None
        if lean is None:
            raise
        log.choice.warning("%s: too little memory for %s (%s); using %s", problem, kernel, error, lean)
        mode = tune or device.settings.tune
        for key in ((problem, mode), (_near_start(problem), mode, ALIKE)):
            _keep(device, lean, generation.current, *key)
        device.run(lean, problem, *arrays)


def _lean(problem: Problem, device: Device) -> Kernel[Any] | None:
    """Return the best kernel without scratch buffers, or None if there is none."""
    lean = (kernel for kernel in candidates(problem, device) if not kernel.scratch(problem))
    return next((kernel for kernel in lean if refused(kernel, problem, device) is None), None)
