"""Benchmark of kernels over sizes: each kernel's result is checked before it is timed, within a time budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from webmm import choose
from webmm.calls.gemm import matmul
from webmm.cases import OPS, op_of
from webmm.cases.base import Case, Op, Size, blank
from webmm.engine import timing
from webmm.engine.device import Array, Device
from webmm.errors import ShaderError, WebmmError
from webmm.kernels.base import Kernel
from webmm.measure import diagnosis, references, roofline
from webmm.measure.records import Record, Status, status_of
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.version import __version__

CPU_STAGE = "cpu"
REFERENCES = (*references.NAMES[1:], CPU_STAGE)  # the kernels of records of other libraries
CASE_OVERHEAD = 0.6  # seconds for compiling, checking and warming up, in addition to the timed runs


@dataclass(frozen=True)
class Progress:
    """Progress of a bench: what runs now, how many cases are done, and the estimated seconds left."""

    label: str
    done: int
    total: int
    seconds_left: float


@dataclass
class Bench:
    """Kernels × sizes on a device.

    A case is recorded as skipped, with the reason, if one run would take longer than `budget`/40 seconds.
    """

    device: Device
    kernels: Sequence[Kernel[Any]]
    sizes: Sequence[Size]
    dtype: str = "float32"
    budget: float = 60.0
    ceiling: roofline.Roofline | None = None
    on_progress: Callable[[Progress], object] = lambda progress: None
    op: Op[Any] = OPS["gemm"]
    layout: str = "nn"
    clock: str = ""  # timestamp or wall; empty: timestamps if the device supports them
    reference: references.Reference | None = None  # None: NumPy
    _rates: dict[Kernel[Any], float] = field(default_factory=dict)  # operations per second at the previous size

    def run(self) -> Iterator[Record]:
        """Yield a record for the reference and each kernel, size by size, smallest first."""
        self.ceiling = self.ceiling or roofline.measure(self.device)
        start, done = time.perf_counter(), 0
        problems = sorted(
            (self.op.problem(size, self.dtype, self.layout) for size in self.sizes), key=lambda p: p.flops
        )
        total = len(problems) * (1 + len(self.kernels))
        for problem in problems:
            reasons = [kernel.check(problem, self.device.capabilities) for kernel in self.kernels]
            if all(reasons):  # the operands may not even fit into the host's memory
                for kernel, reason in zip(self.kernels, reasons, strict=True):
                    yield record_of(self.device, problem, kernel, "unsupported", reason)
                continue
            try:
                case = self.op.case(self.device, problem)
            except WebmmError as error:
                for kernel in self.kernels:
                    yield record_of(self.device, problem, kernel, "unsupported", str(error))
                continue
            self._report(self.reference.name if self.reference else CPU_STAGE, problem, done, total, start)
            yield self._library(case, self.reference) if self.reference else self._numpy(case)
            done += 1
            # The kernels that were fastest at the previous size come first: a spent budget then skips the slowest.
            for kernel in sorted(self.kernels, key=lambda kernel: -self._rates.get(kernel, 0)):
                self._report(kernel.name, problem, done, total, start)
                spent = time.perf_counter() - start
                yield self._case(kernel, case, spent)
                done += 1

    def _report(self, name: str, problem: Problem, done: int, total: int, start: float) -> None:
        spent = time.perf_counter() - start
        left = spent / done * (total - done) if done else self.budget
        self.on_progress(Progress(f"{name} {problem}", done, total, min(left, max(0.0, self.budget - spent))))

    def _case(self, kernel: Kernel[Any], case: Case[Any], spent: float) -> Record:
        problem = case.problem
        if spent + CASE_OVERHEAD > self.budget:
            return record_of(self.device, problem, kernel, "skipped", f"the budget of {self.budget:.0f} s is used up")
        try:
            if not kernel.check(problem, self.device.capabilities) and (reason := self._too_slow(kernel, problem)):
                return record_of(self.device, problem, kernel, "skipped", reason)
        except WebmmError:
            pass  # measure() records the error
        record = measure(self.device, kernel, case, self.ceiling, clock=self.clock)
        if record.median_us:
            self._rates[kernel] = problem.flops / record.median_us * 1e6
        return record

    def _too_slow(self, kernel: Kernel[Any], problem: Problem) -> str | None:
        limit = self.budget / 40
        rate = self._rates.get(kernel) or self._probe(kernel, problem)
        predicted = problem.flops / rate
        if predicted <= limit:
            return None
        return (
            f"one run would take about {predicted:.1f} s at the {rate / 1e9:.3g} GFLOP/s reached before; "
            f"the limit is {limit:.1f} s (--budget raises it)"
        )

    def _probe(self, kernel: Kernel[Any], problem: Problem) -> float:
        """Return the rate, in operations/s, on a cube that grows until a run takes 20 ms or it exceeds the problem.

        Infinity for a kernel that takes no cube, such as one for short rows.
        """
        n, rate = 64, math.inf
        cube = self.op.probe(n, self.dtype)
        while n == 64 or cube.flops <= problem.flops:
            if kernel.check(cube, self.device.capabilities):
                break
            arrays = _arrays(self.device, self.op.case(self.device, cube))
            launch = self.device.launch(kernel, cube, *arrays)
            timing.submit(self.device, launch)  # drivers compile at the first dispatch
            start = time.perf_counter()
            timing.submit(self.device, launch)
            seconds = time.perf_counter() - start
            rate = cube.flops / seconds
            if seconds > timing.PROBE_TIME:
                break
            n *= 2
            cube = self.op.probe(n, self.dtype)
        return rate

    def _numpy(self, case: Case[Any]) -> Record:
        timed = timing.time_call(case.numpy)
        error = case.numpy_error(case.numpy())
        return record_of(self.device, case.problem, None, timed=timed, max_error=error, bound=case.bound)

    def _library(self, case: Case[Any], reference: references.Reference) -> Record:
        """Return the record of another library, whose result is checked like a kernel's."""
        problem = case.problem
        stored = (case.inputs[name].numpy() for name in ("a", "b"))
        try:
            run, wait, result = reference.product(problem, *stored)
            error = case.error(result().astype(problem.out_dtype.numpy))
            timed = timing.time_calls(run, wait)
            record = record_of(self.device, problem, None, timed=timed, max_error=error, bound=case.bound)
        except Exception as error:  # of any class: a library's failure is no failure of webmm
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            record = record_of(self.device, problem, None, "skipped", why)
        return replace(record, kernel=reference.name, engine=reference.engine, adapter=reference.device)


def time_product(device: Device, problem: Gemm) -> tuple[timing.Timing, Kernel[Any]]:
    """Time the public call `A @ B` on arrays of the device by the wall clock; also return the kernel that it uses.

    Bias, activation and conversion to `out_dtype` are part of the call.
    """
    m, n, k, count = problem.sizes
    batch = (count,) if count > 1 else ()
    shapes = ((*batch, m, k), (*batch, k, n))
    stored = (
        (*batch, *shape[:-3:-1]) if flag == "t" else shape for shape, flag in zip(shapes, problem.layout, strict=True)
    )
    with ExitStack() as freed:
        operands = [freed.enter_context(device.zeros(shape, problem.dtype)) for shape in stored]
        a, b = (x.mT if flag == "t" else x for x, flag in zip(operands, problem.layout, strict=True))
        epilogue: dict[str, Any] = {"activation": problem.activation or None, "out_dtype": problem.out_dtype.name}
        if problem.bias:
            shape = (m, 1) if problem.bias == "row" else (n,)
            epilogue["bias"] = freed.enter_context(device.zeros(shape, problem.dtype))
        return timing.time_calls(lambda: matmul(a, b, **epilogue), device.synchronize), choose.choose(problem, device)


def _arrays(device: Device, case: Case[Any]) -> list[Array]:
    """Return an array for each buffer of the case; the result is poisoned, to detect elements that are not written."""
    return [
        device.array(blank(extent)) if extent.written else case.inputs[extent.name] for extent in case.problem.buffers()
    ]


def measure(
    device: Device,
    kernel: Kernel[Any],
    case: Case[Any],
    ceiling: roofline.Roofline | None = None,
    warm_up: float = timing.WARM_UP,
    clock: str = "",
) -> Record:
    """Check `kernel` on the case, then time it; an error becomes the record's status and reason."""
    problem = case.problem
    if reason := kernel.check(problem, device.capabilities):
        return record_of(device, problem, kernel, "unsupported", reason)
    try:
        return _measure(device, kernel, case, ceiling, warm_up, clock)
    except WebmmError as error:
        words = diagnosis.refusal(error, kernel, problem, device) if isinstance(error, ShaderError) else str(error)
        return record_of(device, problem, kernel, status_of(error), words)


def _measure(
    device: Device,
    kernel: Kernel[Any],
    case: Case[Any],
    ceiling: roofline.Roofline | None,
    warm_up: float,
    clock: str,
) -> Record:
    problem = case.problem
    arrays = _arrays(device, case)
    (result,) = (array for array, extent in zip(arrays, problem.buffers(), strict=True) if extent.written)
    with result:
        launch = device.launch(kernel, problem, *arrays)
        timing.submit(device, launch)
        got = result.numpy()
        error = case.error(got)
        if not error <= case.bound:
            reason, wrong = diagnosis.incorrect(case, got, error)
            if wrong:
                reason += diagnosis.steps(wrong, kernel, problem, device)
            return record_of(device, problem, kernel, "incorrect", reason, max_error=error)
        timed = timing.time_launch(device, launch, warm_up, clock=clock)
    return record_of(device, problem, kernel, timed=timed, max_error=error, bound=case.bound, ceiling=ceiling)


class Named(Protocol):
    """What a record says of a kernel, or of another text that computes a problem."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def config(self) -> dict[str, Any]:
        """The values of the tunables."""

    @property
    def matrix_shape(self) -> Any:
        """What it uses of matrix units, None for nothing."""


def record_of(
    device: Device,
    problem: Problem,
    kernel: Named | None,
    status: Status = "ok",
    reason: str | None = None,
    *,
    timed: timing.Timing | None = None,
    max_error: float | None = None,
    bound: float | None = None,
    ceiling: roofline.Roofline | None = None,
) -> Record:
    """Return the record of `kernel`, or of NumPy if `kernel` is None, on `problem`."""
    info, values = device.info, dict[str, Any]()
    m, n, k, batch = problem.sizes
    if timed:
        gflops = problem.flops / timed.median_us / 1e3
        of_peak = ceiling and kernel and not kernel.matrix_shape  # matrix units exceed the FMA rate
        values = {
            "median_us": timed.median_us,
            "best_us": timed.best_us,
            "spread_us": timed.spread_us,
            "samples": timed.samples,
            "gflops": gflops,
            "clock": timed.clock,
            "error_bound": bound,
            "peak_fraction": gflops / op_of(problem.op).peak(problem, ceiling) if ceiling and of_peak else None,
        }
    return Record(
        op=problem.op,
        kernel=kernel.name if kernel else CPU_STAGE,
        config=kernel.config if kernel else {},
        m=m,
        n=n,
        k=k,
        batch=batch,
        dtype=problem.dtype.name,
        layout=problem.layout,
        variant=OPS[problem.op].variant_of(problem) if problem.op in OPS else "",
        engine=device.engine.version() if kernel else f"numpy {np.__version__}",
        adapter=info.name if kernel else "CPU",
        backend=info.backend if kernel else "",
        driver=info.driver if kernel else "",
        version=__version__,
        status=status,
        reason=reason,
        max_error=max_error,
        **values,
    )


def relative(record: Record, base: Record | None) -> float:
    """Return the speedup of `record` over `base`; NaN if either has no time."""
    if base is None or not base.median_us or not record.median_us:
        return math.nan
    return base.median_us / record.median_us
