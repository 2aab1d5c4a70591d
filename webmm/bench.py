"""Running the ladder: which sizes, within which time, checked before it is timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webmm import __version__, roofline, timing
from webmm.array import Array
from webmm.device import Device
from webmm.dtypes import F32
from webmm.errors import ShaderError, UnsupportedError, WebmmError
from webmm.kernels.gemm.base import GemmKernel
from webmm.problem import Gemm, gemm
from webmm.records import Record, Status
from webmm.verify import Checker, bound

CPU_STAGE = "cpu"
DEFAULT_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
SIZES_SHOWN = 4
CASE_OVERHEAD = 0.6  # seconds that compiling, checking and warming up take on top of the timed runs


@dataclass(frozen=True)
class Progress:
    """Where a bench is: what runs now, how many cases are done, and seconds left by its own estimate."""

    label: str
    done: int
    total: int
    seconds_left: float


def default_sizes(ceiling: roofline.Roofline) -> list[int]:
    """Return the four largest default sizes at which a product at the peak rate takes at most 0.1 s."""
    fitting = [n for n in DEFAULT_SIZES if 2 * n**3 <= 0.1 * ceiling.gflops * 1e9]
    return fitting[-SIZES_SHOWN:] or [DEFAULT_SIZES[0]]


@dataclass
class Operands:
    """One problem's matrices, on both sides."""

    problem: Gemm
    checker: Checker
    a: Array
    b: Array

    @classmethod
    def random(cls, device: Device, problem: Gemm) -> Operands:
        """Draw A and B uniformly from [-0.5, 0.5), always the same."""
        rng = np.random.default_rng(0)
        dtype = problem.dtype.numpy
        a = (rng.random((problem.m, problem.k), np.float32) - 0.5).astype(dtype)
        b = (rng.random((problem.k, problem.n), np.float32) - 0.5).astype(dtype)
        return cls(problem, Checker(problem, a, b), device.array(a), device.array(b))


@dataclass
class Bench:
    """Kernels × sizes on a device. A case is left out, and said so, where one run would outlast `budget`/40 seconds."""

    device: Device
    kernels: Sequence[GemmKernel]
    sizes: Sequence[tuple[int, int, int]]
    dtype: str = "float32"
    budget: float = 60.0
    ceiling: roofline.Roofline | None = None
    on_progress: Callable[[Progress], object] = lambda progress: None
    _rates: dict[GemmKernel, float] = field(default_factory=dict)  # operations per second, of the last size

    def run(self) -> Iterator[Record]:
        """Yield a record for NumPy and each kernel, size by size, smallest first."""
        self.ceiling = self.ceiling or roofline.measure(self.device)
        start, done = time.perf_counter(), 0
        problems = sorted((gemm(*size, dtype=self.dtype) for size in self.sizes), key=lambda p: p.flops)
        total = len(problems) * (1 + len(self.kernels))
        for problem in problems:
            try:
                operands = Operands.random(self.device, problem)
            except WebmmError as error:
                for kernel in self.kernels:
                    yield record_of(self.device, problem, kernel, "unsupported", str(error))
                continue
            self._tell(CPU_STAGE, problem, done, total, start)
            yield self._numpy(operands)
            done += 1
            # The fastest at the last size first: what a budget leaves out is then what matters least.
            for kernel in sorted(self.kernels, key=lambda kernel: -self._rates.get(kernel, 0)):
                self._tell(kernel.name, problem, done, total, start)
                spent = time.perf_counter() - start
                yield self._case(kernel, operands, spent)
                done += 1

    def _tell(self, name: str, problem: Gemm, done: int, total: int, start: float) -> None:
        spent = time.perf_counter() - start
        left = spent / done * (total - done) if done else self.budget
        self.on_progress(Progress(f"{name} {problem}", done, total, min(left, max(0.0, self.budget - spent))))

    def _case(self, kernel: GemmKernel, operands: Operands, spent: float) -> Record:
        problem = operands.problem
        if spent + CASE_OVERHEAD > self.budget:
            return record_of(self.device, problem, kernel, "skipped", f"the budget of {self.budget:.0f} s is used up")
        try:
            if not kernel.check(problem, self.device.capabilities) and (reason := self._too_slow(kernel, problem)):
                return record_of(self.device, problem, kernel, "skipped", reason)
        except WebmmError:
            pass  # measuring will say what is wrong
        record = measure(self.device, kernel, operands, self.ceiling)
        if record.median_us:
            self._rates[kernel] = problem.flops / record.median_us * 1e6
        return record

    def _too_slow(self, kernel: GemmKernel, problem: Gemm) -> str | None:
        limit = self.budget / 40
        rate = self._rates.get(kernel) or self._probe(kernel, problem)
        predicted = problem.flops / rate
        if predicted <= limit:
            return None
        return (
            f"one run would take about {predicted:.1f} s at the {rate / 1e9:.3g} GFLOP/s reached before; "
            f"the limit is {limit:.1f} s (--budget raises it)"
        )

    def _probe(self, kernel: GemmKernel, problem: Gemm) -> float:
        """Return the rate on a growing cube, until a run takes 20 ms or the cube is as large as the problem."""
        n, rate = 64, 1.0
        size = round((problem.m * problem.n * problem.k) ** (1 / 3))
        while n <= max(64, size):
            cube = gemm(n, n, n, dtype=self.dtype)
            if kernel.check(cube, self.device.capabilities):
                break
            operands = Operands.random(self.device, cube)
            c = self.device.empty((n, n), cube.out_dtype)
            launch = self.device.launch(kernel, cube, operands.a, operands.b, c)
            timing.submit(self.device, launch)  # drivers compile at the first dispatch
            start = time.perf_counter()
            timing.submit(self.device, launch)
            seconds = time.perf_counter() - start
            rate = cube.flops / seconds
            if seconds > 0.02:
                break
            n *= 2
        return rate

    def _numpy(self, operands: Operands) -> Record:
        """Time NumPy on the same matrices; float16 is multiplied in float32, which is what NumPy is fast at."""
        a, b = (x.astype(np.float32) for x in (operands.checker.a, operands.checker.b))
        out = np.empty((operands.problem.m, operands.problem.n), np.float32)
        timed = timing.time_call(lambda: np.matmul(a, b, out=out))
        error = Checker(gemm(*out.shape, a.shape[1], dtype=F32), a, b).error(out)
        return record_of(self.device, operands.problem, None, timed=timed, max_error=error, ceiling=self.ceiling)


def measure(
    device: Device,
    kernel: GemmKernel,
    operands: Operands,
    ceiling: roofline.Roofline | None = None,
    warm_up: float = timing.WARM_UP,
) -> Record:
    """Check `kernel` on the operands, then time it; whatever goes wrong becomes the record's status and reason."""
    problem = operands.problem
    if reason := kernel.check(problem, device.capabilities):
        return record_of(device, problem, kernel, "unsupported", reason)
    try:
        return _measure(device, kernel, operands, ceiling, warm_up)
    except UnsupportedError as error:
        return record_of(device, problem, kernel, "unsupported", str(error))
    except ShaderError as error:
        return record_of(device, problem, kernel, "compile", str(error))
    except WebmmError as error:
        return record_of(device, problem, kernel, "runtime", str(error))


def _measure(
    device: Device, kernel: GemmKernel, operands: Operands, ceiling: roofline.Roofline | None, warm_up: float
) -> Record:
    problem = operands.problem
    poison = np.full((problem.m, problem.n), np.nan, problem.out_dtype.numpy)  # an element left out shows
    with device.array(poison) as c:
        launch = device.launch(kernel, problem, operands.a, operands.b, c)
        timing.submit(device, launch)
        error, allowed = operands.checker.error(c.numpy()), bound(problem)
        if not error <= allowed:
            reason = f"the largest error is {error:.2e}·|A||B|, rounding explains at most {allowed:.2e}"
            return record_of(device, problem, kernel, "incorrect", reason, max_error=error)
        timed = timing.time_launch(device, launch, warm_up)
    return record_of(device, problem, kernel, timed=timed, max_error=error, ceiling=ceiling)


def record_of(
    device: Device,
    problem: Gemm,
    kernel: GemmKernel | None,
    status: Status = "ok",
    reason: str | None = None,
    *,
    timed: timing.Timing | None = None,
    max_error: float | None = None,
    ceiling: roofline.Roofline | None = None,
) -> Record:
    """Return the record of `kernel`, or of NumPy for None, on `problem`."""
    info, values = device.info, dict[str, Any]()
    if timed:
        gflops = problem.flops / timed.median_us / 1e3
        values = {
            "median_us": timed.median_us,
            "best_us": timed.best_us,
            "gflops": gflops,
            "clock": timed.clock,
            "error_bound": bound(problem),
            "peak_fraction": gflops / ceiling.gflops if ceiling and kernel else None,
        }
    return Record(
        op=problem.op,
        kernel=kernel.name if kernel else CPU_STAGE,
        config=kernel.config if kernel else {},
        m=problem.m,
        n=problem.n,
        k=problem.k,
        batch=problem.batch,
        dtype=problem.dtype.name,
        engine=engine_name() if kernel else f"numpy {np.__version__}",
        adapter=info.name if kernel else "CPU",
        backend=info.backend if kernel else "",
        driver=info.driver if kernel else "",
        version=__version__,
        status=status,
        reason=reason,
        max_error=max_error,
        **values,
    )


def engine_name() -> str:
    """Return the engine that runs the shaders, with its version."""
    import wgpu

    native = wgpu.backends.wgpu_native.lib_version_info
    return f"wgpu-py {wgpu.__version__} (wgpu-native {'.'.join(map(str, native))})"


def relative(record: Record, base: Record | None) -> float:
    """Return how many times as fast `record` is as `base`; NaN where either has no time."""
    if base is None or not base.median_us or not record.median_us:
        return math.nan
    return base.median_us / record.median_us
