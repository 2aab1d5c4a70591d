"""Search for the fastest kernel of a problem, within a time budget, on drivers that may fail in any way.

Candidates that exceed the device's limits are not tried. The others run one after another in a worker process: if a
candidate does not compile, gives a wrong result, crashes the driver or hangs, its outcome is recorded, the process is
replaced if necessary, and the search continues. Each candidate is checked before it is timed. The search is successive
halving (Jamieson and Talwalkar, 2016): all candidates are timed briefly, the fastest third for longer, and so on. A
stage that falls far behind gets no more candidates.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webmm import log, plugins
from webmm.cases import OPS, op_of
from webmm.cases.base import Case
from webmm.choose import candidates
from webmm.engine.device import Device
from webmm.errors import WebmmError
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Kernel
from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.measure.bench import measure, record_of
from webmm.measure.records import Record
from webmm.problems.base import Problem

# For each round: seconds of warm-up, and the fraction of the budget that is spent when the round ends
ROUNDS = ((0.02, 0.6), (0.08, 0.85), (0.2, 1.0))
KEEP = 3  # each round keeps the fastest third of the previous one
FIRST_ROUND = 48  # candidates in the first round, at most
MAX_TIMEOUT = 30.0  # seconds after which a candidate is abandoned
MIN_TIMEOUT = 3.0  # seconds that each candidate gets, even if the budget is used up
HOPELESS = 4  # times the best so far: slower stages get no more candidates, slower candidates are abandoned
START_TIMEOUT = 60.0  # seconds for a process to open the device


@dataclass(frozen=True)
class Candidate:
    """One candidate to measure, as it is sent to the worker process."""

    kernel: str
    config: dict[str, Any]
    sizes: tuple[int, int, int]
    dtype: str
    warm_up: float
    layout: str = "nn"
    batch: int = 1
    op: str = "gemm"
    variant: str = ""

    @classmethod
    def of(cls, kernel: Kernel[Any], problem: Problem, warm_up: float) -> Candidate:
        """Return the job that measures `kernel` on `problem`."""
        p, (m, n, k, batch) = problem, problem.sizes
        return cls(kernel.name, kernel.config, (m, n, k), p.dtype.name, warm_up, p.layout, batch, p.op, p.variant)

    @property
    def problem(self) -> Problem:
        """The problem, with dense operands."""
        m, n, k = self.sizes
        dense: Problem = op_of(self.op, self.variant).dense((m, n, k, self.batch), self.dtype, self.layout)
        return dense


class TunerProcess:
    """A process that measures jobs; started when needed, and replaced if a job hangs or crashes it."""

    def __init__(self, adapter: str, command: Sequence[str] | None = None, *, engine: str = "") -> None:
        self._command = [*(command or (sys.executable, "-m", "webmm.measure.tuner")), adapter, engine, *plugins.files()]
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    @classmethod
    def like(cls, device: Device) -> TunerProcess:
        """Return a worker that opens the same adapter with the same engine."""
        info = device.info
        return cls(str(info.index) if info.index >= 0 else info.name, engine=device.engine.name)

    def measure(self, job: Candidate, timeout: float) -> Record | tuple[str, str]:
        """Return the job's record, or (status, reason) if the process ended or hung."""
        try:
            process = self._ready()
        except _WorkerGoneError as gone:
            return gone.outcome
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(dataclasses.asdict(job)) + "\n")
            process.stdin.flush()
            answer = self._line(timeout)
            return Record(**json.loads(answer))
        except BrokenPipeError:
            return self._gone(("runtime", "the process ended before it received the candidate")).outcome
        except (ValueError, TypeError):
            return self._gone(("runtime", f"the process did not answer with a record, but {answer[:80]!r}")).outcome
        except _WorkerGoneError as gone:
            return gone.outcome

    def _ready(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._lines = queue.Queue()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "WEBMM_TUNE": "off"},  # the worker must not start a search itself
            )
            threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()
            self._line(START_TIMEOUT)  # "ready": the device is open
        return self._process

    def _line(self, timeout: float) -> str:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise self._gone(("timeout", f"no answer within {timeout:.0f} s; the process was killed")) from None
        if line is None:
            code = self._process.wait() if self._process else 0
            raise self._gone(("runtime", f"the process ended with code {code}: the driver crashed or was killed"))
        return line

    def _gone(self, outcome: tuple[str, str]) -> _WorkerGoneError:
        self.close()
        return _WorkerGoneError(outcome)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> TunerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _WorkerGoneError(Exception):
    def __init__(self, outcome: tuple[str, str]) -> None:
        super().__init__(*outcome)
        self.outcome = outcome


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


@dataclass(frozen=True)
class SearchProgress:
    """Progress of a search: the candidate, the number of steps done and in total, and seconds left of the budget."""

    label: str
    done: int
    total: int
    seconds_left: float


def tune(
    device: Device,
    problem: Problem,
    budget: float,
    *,
    worker: TunerProcess,
    first: Sequence[Kernel[Any]] = (),
    on_step: Callable[[SearchProgress], object] = lambda step: None,
) -> list[Record]:
    """Return a record of every candidate tried for `problem`, within `budget` seconds; those timed longest come last.

    `first` are tried before the drawn candidates. The default kernels (`first`, or else the first candidate drawn) are
    timed in every round, so that the winner can be compared with them.
    """
    start = time.perf_counter()
    field = list(dict.fromkeys([*first, *drawn(device, problem)]))
    defaults = [*first] or field[:1]
    records: list[Record] = []
    stages: dict[type[Kernel[Any]], float] = {}  # the best time of each so far; infinite if it only had timeouts
    shortest = math.inf  # seconds that measuring took for the quickest candidate
    for warm_up, share in ROUNDS:
        survivors: list[tuple[float, Kernel[Any]]] = []
        for done, kernel in enumerate(field):
            now = time.perf_counter()
            left = start + budget - now
            if left <= (1 - share) * budget and (survivors or left <= 0):
                break
            if stages.get(type(kernel), 0) > HOPELESS * min(stages.values(), default=math.inf):
                continue
            on_step(SearchProgress(str(kernel), done, len(field), left))
            timeout = min(MAX_TIMEOUT, max(MIN_TIMEOUT, min(left, HOPELESS * shortest)))
            record = _outcome(device, problem, kernel, warm_up, worker, timeout)
            log.tuning.debug("%s: %s: %s", problem, kernel, record.reason or f"{record.median_us:.1f} µs")
            records.append(record)
            known = stages.get(type(kernel), math.inf)
            if record.status == "ok" and record.median_us:
                survivors.append((record.median_us, kernel))
                shortest = min(shortest, time.perf_counter() - now)
                stages[type(kernel)] = min(known, record.median_us)
            elif record.status == "timeout":
                stages[type(kernel)] = known
        survivors.sort(key=lambda pair: pair[0])
        ranked = [kernel for _, kernel in survivors]
        best = ranked[: max(1, -(-len(survivors) // KEEP))]
        field = [*best, *(kernel for kernel in defaults if kernel in ranked and kernel not in best)]
    return records


def _outcome(
    device: Device, problem: Problem, kernel: Kernel[Any], warm_up: float, worker: TunerProcess, timeout: float
) -> Record:
    outcome = worker.measure(Candidate.of(kernel, problem, warm_up), timeout)
    if isinstance(outcome, Record):
        return outcome
    status, reason = outcome
    return record_of(device, problem, kernel, status, reason)  # type: ignore[arg-type]


def drawn(device: Device, problem: Problem) -> Iterator[Kernel[Any]]:
    """Yield the candidates: the likely choices, then a sample of their stages' settings, always in the same order.

    The op's first stage, the simplest, is not tried unless it is the likeliest.
    """
    simplest, *_ = ladder = list(STAGES[problem.op].values())
    able = [k for k in candidates(problem, device) if k.check(problem, device.capabilities) is None]
    likely = [k for k in able if plugins.file_of(type(k))]
    for kernel in able:
        if kernel not in likely:
            log.tuning.warning("%s is not tuned: define its class in a file that a process can import", kernel.name)
    likely = [k for k in likely if type(k) is not simplest or type(likely[0]) is simplest]
    yield from likely
    stages = [stage for stage in ladder if stage in map(type, likely)]
    pools = []
    for stage in stages:
        eligible = (kernel for kernel in stage.space() if kernel.check(problem, device.capabilities) is None)
        pool = [kernel for kernel in eligible if worthwhile(kernel, device)]
        random.Random(0).shuffle(pool)
        pools.append(pool)
    count = len(likely)
    while count < FIRST_ROUND and any(pools):
        for pool in pools:
            if pool:
                yield pool.pop()
                count += 1


def worthwhile(kernel: Kernel[Any], device: Device) -> bool:
    """Return whether a candidate may win: on GPUs, loops that are not unrolled never did (see pipelined.wgsl)."""
    if not isinstance(kernel, RegisterTiled) or device.info.kind == "cpu":
        return True
    return kernel.unroll == kernel.bk and kernel.config.get("prefetch") != "workgroup"


def serve_jobs(adapter: str = "", engine: str = "", *files: str) -> None:
    """Measure jobs from standard input, one JSON line each, and answer each with its record.

    Jobs may name webmm's kernels and those that the plugins in `files` register.
    """
    for file in files:
        plugins.load(file)
    device = Device(adapter or None, engine=engine or None)
    print("ready", flush=True)
    while _serve(device):
        device = Device(adapter or None, engine=engine or None)


def _serve(device: Device) -> bool:
    """Measure jobs on this device until the input ends or the device is lost; return whether it was lost."""
    operands: Case[Any] | None = None
    with device:
        for line in sys.stdin:
            job = Candidate(**json.loads(line))
            problem = job.problem
            kernel = configure(job.kernel, {name: str(value) for name, value in job.config.items()}, job.op)
            try:
                if operands is None or operands.problem != problem:
                    operands = OPS[job.op].case(device, problem)
                record = measure(device, kernel, operands, warm_up=job.warm_up)
            except WebmmError as error:
                record = record_of(device, problem, kernel, "runtime", str(error))
            print(json.dumps(dataclasses.asdict(record)), flush=True)
            if device.lost:
                return True
    return False


if __name__ == "__main__":
    serve_jobs(*sys.argv[1:])
