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

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import log
from webmm.cases import OPS, op_of
from webmm.cases.base import Trial, blank
from webmm.choose import candidates
from webmm.choose.verdicts import failing, keep_verdicts, text_of, verdicts_key
from webmm.engine.device import Device
from webmm.engine.launches import testing
from webmm.engine.timing import submit
from webmm.errors import MemoryLimitError, ShaderError, UnsupportedError
from webmm.kernels import REGISTERED
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import assured
from webmm.measure import diagnosis
from webmm.measure.verify import Wrong, wrong_elements
from webmm.problems.base import Problem

__all__ = ["failing", "prove", "run", "stand_ins", "test", "verdicts_key"]


def test(kernel: Kernel[Any], problem: Problem, device: Device, shader: str) -> None:
    """Test `shader`, that of `kernel` for `problem`, whose verdict is not known, and store it in `device.verdicts`.

    A shader that cannot be tested because memory is short gets none, and is tested the next time. Raises
    DeviceLostError.
    """
    stand_in = next(stand_ins(kernel, problem, device), None)
    if stand_in is None:
        return
    try:
        verdict = _verdict(kernel, stand_in, device)
    except (MemoryLimitError, UnsupportedError):
        return
    if device.verdicts is not None:  # they were loaded before
        device.verdicts[shader] = verdict
    if verdict:
        log.choice.warning("%s is not used on %s: %s", kernel, device.info, verdict.partition("\n")[0])


def run(device: Device) -> Iterator[tuple[Problem, Kernel[Any], str]]:
    """Test each op's cases in each dtype that the device supports; yield (problem, kernel, complaint or "").

    For each case, candidates are tested in order of preference, up to the first that is right; if stages from outside
    the package are registered, these are tested instead, all of them. All are tested again, whatever the saved
    verdicts, and the new verdicts are saved.
    """
    for problem in _cases():
        if not problem.features <= device.capabilities.features:
            continue
        own = [stage.on(device.capabilities) for stage in REGISTERED if stage.op == problem.op]
        for kernel in own if REGISTERED else candidates(problem, device, device.settings.tune):
            if kernel.check(problem, device.capabilities):
                continue
            verdict = _verdict(kernel, problem, device)
            yield problem, kernel, verdict
            if not verdict and not REGISTERED:
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
        with device.span(kernel.name, "self-test"), testing():
            verdict = prove(kernel, problem, device)
    except ShaderError as error:
        return diagnosis.refusal(error, kernel, problem, device)
    line = verdict.partition("\n")[0]  # verdicts of several lines would be left out when the file is read
    keep_verdicts(verdicts_key(device), {text_of(kernel, problem, device): line})
    return verdict


def stand_ins(kernel: Kernel[Any], problem: Problem, device: Device) -> Iterator[Problem]:
    """Yield small problems that the same shader computes, the most revealing first; there may be none."""
    text = text_of(kernel, problem, device)
    return (small for small in OPS[problem.op].stand_ins(kernel, problem) if text_of(kernel, small, device) == text)


def prove(kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    """Compute `problem`, whose operands are dense, and return the complaint about the result; "" if it is right.

    It is computed for ordinary operands, and for those at the ends of the range, if its op defines some.
    """
    op = OPS[problem.op]
    trials = (trial for make in (op.trial, op.extremes) if (trial := make(problem)))
    return next((complaint for trial in trials if (complaint := _complaint_about(trial, kernel, problem, device))), "")


def _complaint_about(trial: Trial, kernel: Kernel[Any], problem: Problem, device: Device) -> str:
    with ExitStack() as freed:
        arrays = {
            extent: freed.enter_context(device.array(trial.buffers.get(extent.name, blank(extent)), extent.dtype))
            for extent in problem.buffers()
        }
        submit(device, device.launch(kernel, problem, *arrays.values()))
        extent, result = next((extent, array) for extent, array in arrays.items() if extent.written)
        got = result.numpy().astype(np.float64)[extent.start : extent.end]
    wrong = _wrong(got.reshape(trial.expected.shape), trial)
    if wrong is None:
        return ""
    words = f"it computes wrong results: {diagnosis.in_words(wrong, problem)} ({problem.op} {problem})"
    if not assured(kernel, device.capabilities):
        words += f"; its subgroups may have other sizes than {kernel.subgroup} lanes"
    return words + diagnosis.steps(wrong, kernel, problem, device)


def _wrong(got: NDArray[np.float64], trial: Trial) -> Wrong | None:
    with np.errstate(invalid="ignore"):
        near = (np.abs(got - trial.expected) <= trial.allowed) & np.isfinite(trial.expected)
    near |= np.isinf(trial.allowed)
    return wrong_elements(
        got, trial.expected, ~(near | (got == trial.expected) | (np.isnan(got) & np.isnan(trial.expected)))
    )
