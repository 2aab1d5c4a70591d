"""Self-tests: each shader is proven on a driver before its first use there, and the verdict is saved.

Drivers may compute wrong results silently: lavapipe of Mesa 22.3.6 exits any loop after 65,535 iterations. Testing a
fixed list of problems at start-up would miss the shader that is used later, or cost seconds, since a CPU driver takes
tenths of a second to compile a shader. Therefore the test belongs to the shader: when a kernel is chosen for the first
time in some specialisation, its shader, which must be compiled anyway, first computes a small problem, with long loops
if the actual problem has them. That costs a dispatch and a readback (1 to 2 ms on lavapipe), once per shader, device,
driver, engine and version of webmm. A shader that fails is not chosen on that driver, and a warning names it.

Each op defines small stand-ins for a problem, and operands for which a single missing term changes the result
(`Op.stand_ins()`, `Op.trial()`). A small problem cannot reveal faults of large sizes, such as in grids or in memory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import log
from webmm.bench import blank
from webmm.cases import OPS, op_of
from webmm.cases.base import Trial
from webmm.choose import candidates
from webmm.choose import verdicts as kept
from webmm.engine.device import Device
from webmm.engine.timing import submit
from webmm.errors import MemoryLimitError, ShaderError, UnsupportedError
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.render import render
from webmm.version import __version__


def failing(kernel: Kernel[Any], problem: Problem, device: Device) -> str | None:
    """Return why `kernel` must not compute `problem` on this driver, or None if its shader is right.

    A shader that cannot be tested because memory is short passes, and is tested the next time. Raises DeviceLostError.
    """
    if not device.settings.selftest:
        return None
    if device.verdicts is None:
        device.verdicts = kept.verdicts(driver(device))
    try:
        shader = _text(kernel, problem, device)
    except ShaderError as error:  # in a plugin's template
        return str(error).splitlines()[0]
    if shader not in device.verdicts:
        stand_in = next(stand_ins(kernel, problem, device), None)
        if stand_in is None:
            return None
        try:
            verdict = _verdict(kernel, stand_in, device)
        except (MemoryLimitError, UnsupportedError):
            return None
        device.verdicts[shader] = verdict
        if verdict:
            log.choice.warning("%s is not used on %s: %s", kernel, device.info, verdict)
    return device.verdicts[shader] or None


def run(device: Device) -> Iterator[tuple[Problem, Kernel[Any], str]]:
    """Test each op's cases in each dtype that the device supports; yield (problem, kernel, complaint or "").

    For each case, candidates are tested in order of preference, up to the first that is right. All are tested again,
    whatever the saved verdicts, and the new verdicts are saved.
    """
    for problem in _cases():
        if not problem.features <= device.capabilities.features:
            continue
        for kernel in candidates(problem, device, device.settings.tune):
            if kernel.check(problem, device.capabilities):
                continue
            verdict = _verdict(kernel, problem, device)
            yield problem, kernel, verdict
            if not verdict:
                break


def _cases() -> Iterator[Problem]:
    for op in OPS.values():
        for known, (size, layout) in itertools.product([op_of(op.name, v) for v in op.variants or ("",)], op.tried):
            yield from (known.problem(size, dtype.name, layout) for dtype in known.dtypes)


def _verdict(kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Return the complaint about the shader, "" if it is right, and save it as its verdict.

    If the engine refuses the shader, nothing is known about its results, and no verdict is saved.
    """
    try:
        with device.span(kernel.name, "self-test"):
            verdict = prove(kernel, problem, device)
    except ShaderError as error:
        return str(error).splitlines()[0]
    kept.keep_verdicts(driver(device), {_text(kernel, problem, device): verdict})
    return verdict


def driver(device: Device) -> str:
    """Return the key of this device's verdicts: adapter, driver, engine, version of webmm, limits and features."""
    info, offered = device.info, device.capabilities
    opened_with = json.dumps([sorted(offered.limits.items()), sorted(offered.features)])
    fingerprint = hashlib.sha256(opened_with.encode()).hexdigest()[:8]
    engine = device.engine.version()
    return f"{info.name}, {info.backend}, {info.driver}, {engine}, webmm {__version__}, limits {fingerprint}"


def _text(kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Return a fingerprint of the shaders that `kernel` runs for `problem`."""
    texts = [render(step, problem, device.engine.dialect).wgsl for step in kernel.dispatches]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def stand_ins(kernel: Kernel[Any], problem: Problem, device: Device) -> Iterator[Problem]:
    """Yield small problems that the same shader computes, the most revealing first; there may be none."""
    text = _text(kernel, problem, device)
    return (small for small in OPS[problem.op].stand_ins(kernel, problem) if _text(kernel, small, device) == text)


def prove(kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Compute `problem`, whose operands are dense, and return the complaint about the result; "" if it is right."""
    trial = OPS[problem.op].trial(problem)
    with ExitStack() as freed:
        arrays = {
            extent: freed.enter_context(device.array(trial.buffers.get(extent.name, blank(extent)), extent.dtype))
            for extent in problem.buffers()
        }
        submit(device, device.launch(kernel, problem, *arrays.values()))
        extent, result = next((extent, array) for extent, array in arrays.items() if extent.written)
        got = result.numpy().astype(np.float64)[extent.start : extent.end]
    return _complaint(problem, got.reshape(trial.expected.shape), trial)


def _complaint(problem: Problem, got: NDArray[np.float64], trial: Trial) -> str:
    with np.errstate(invalid="ignore"):
        near = np.abs(got - trial.expected) <= trial.allowed
    wrong = ~(near | (got == trial.expected) | (np.isnan(got) & np.isnan(trial.expected)))
    if not wrong.any():
        return ""
    at = tuple(int(x) for x in np.argwhere(wrong)[0])
    return (
        f"it computes wrong results: {int(wrong.sum()):,} of {wrong.size:,} elements of {problem.op} {problem}; "
        f"at {at}, expected {trial.expected[at]:g}, got {got[at]:g}"
    )
