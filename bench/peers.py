"""References for the benchmarks: cuBLAS and PyTorch's kernels, on the same GPU as webmm.

PyTorch is not a requirement of webmm; without it, or without a CUDA device, the benchmarks omit these references.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import __version__
from webmm.cases.base import Case
from webmm.cases.quantized import Integers
from webmm.engine.timing import SAMPLE_TIME, WARM_UP, Timing, sample_count
from webmm.measure.records import Record
from webmm.measure.verify import SAMPLED, Checker, bound
from webmm.problems.base import Problem
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized
from webmm.problems.reduce import Reduction

LONG = 0.5  # seconds of a graph, from which on a call is timed once, without a graph


def available() -> bool:
    """Return whether PyTorch is installed and has a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def cublas(problem: Gemm, checker: Checker, peak_gflops: float) -> Record:
    """Return cuBLAS's record for a dense `problem` in its layout, timed as a CUDA graph with TF32 off."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (_stored(x, operand) for x, operand in ((checker.a, problem.a), (checker.b, problem.b)))
    out = torch.empty((*a.shape[:-1], problem.n), dtype=a.dtype, device="cuda")
    timed = time_graph(lambda: torch.matmul(a, b, out=out))
    errors = checker.error(out.cpu().numpy()), bound(problem)
    return record(problem, "cublas", f", cuBLAS {_cublas_version()}", {"tf32": False}, timed, errors, peak_gflops)


def int_mm(problem: Quantized, case: Integers) -> Record:
    """Return the record of cuBLASLt for a dense int8 `problem`; its result are the int32 sums, not requantized.

    PyTorch requires sizes that are multiples of 8.
    """
    import torch

    a, b = (_stored(x, operand) for x, operand in ((case.a, problem.a), (case.b, problem.b)))
    out = torch.empty((problem.m, problem.n), dtype=torch.int32, device="cuda")
    timed = time_graph(lambda: torch._int_mm(a, b, out=out))
    rows = np.unique(np.linspace(0, problem.m - 1, SAMPLED).astype(int))
    expected = case.a[rows].astype(np.float64) @ case.b.astype(np.float64)  # exact: below 2^53
    error = float(np.abs(out.cpu().numpy()[rows] - expected).max())
    config = {"int_mm": True, "out_dtype": "int32"}
    return record(problem, "cublas", ", torch._int_mm", config, timed, (error, 0.0), float("nan"))


def pytorch(
    case: Case[Any], call: Callable[..., Any], operands: list[NDArray[Any]], same: bool, peak_gflops: float
) -> Record:
    """Return the record of `call`, timed as a CUDA graph; if it computes the `same` as the case, it is also checked."""
    import torch

    on_gpu = [torch.from_numpy(x).cuda() for x in operands]
    with torch.no_grad():
        timed = time_graph(lambda: call(*on_gpu))
        errors = (case.error(call(*on_gpu).cpu().numpy()), case.bound) if same else (None, None)
    return record(case.problem, "pytorch", "", {}, timed, errors, peak_gflops)


def along(problem: Reduction) -> Callable[[Any], Any]:
    """Return PyTorch's counterpart of `problem`, a function of x[m, n, k]."""
    import torch
    from torch.nn import functional

    length, epsilon = problem.length, getattr(problem, "epsilon", 0.0)
    calls: dict[str, Callable[[Any], Any]] = {
        "sum": lambda x: torch.sum(x, 1),
        "mean": lambda x: torch.mean(x, 1),
        "max": lambda x: torch.amax(x, 1),
        "min": lambda x: torch.amin(x, 1),
        "argmax": lambda x: torch.argmax(x, 1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "softmax": lambda x: torch.softmax(x, 1),
        "layer_norm": lambda x: functional.layer_norm(x.squeeze(2), (length,), eps=epsilon),
        "rms_norm": lambda x: functional.rms_norm(x.squeeze(2), (length,), eps=epsilon),
    }
    return calls[problem.variant]


def record(
    problem: Problem,
    kernel: str,
    library: str,
    config: dict[str, Any],
    timed: Timing,
    errors: tuple[float | None, float | None],
    peak_gflops: float,
) -> Record:
    import torch

    m, n, k, batch = problem.sizes
    gflops = problem.flops / timed.median_us / 1e3
    return Record(
        op=problem.op,
        kernel=kernel,
        config=config,
        m=m,
        n=n,
        k=k,
        batch=batch,
        dtype=problem.dtype.name,
        layout=problem.layout,
        variant=problem.variant,
        engine=f"PyTorch {torch.__version__}{library}",
        adapter=torch.cuda.get_device_name(),
        backend="CUDA",
        driver=str(torch.version.cuda),
        version=__version__,
        median_us=timed.median_us,
        best_us=timed.best_us,
        gflops=gflops,
        clock="timestamp",
        max_error=errors[0],
        error_bound=errors[1],
        peak_fraction=gflops / peak_gflops,
    )


def _stored(x: NDArray[Any], operand: Operand) -> Any:
    """Return `x` on the GPU, transposed in memory if `operand` is."""
    import torch

    if operand.transposed:
        return torch.from_numpy(np.ascontiguousarray(x.swapaxes(-1, -2))).cuda().mT
    return torch.from_numpy(np.ascontiguousarray(x)).cuda()


def _seconds(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - began


def time_graph(
    call: Callable[[], Any], repeats: int = 1, warm_up: float = WARM_UP, sample_time: float = SAMPLE_TIME
) -> Timing:
    """Time `call` as a CUDA graph of `repeats` calls between two events, which excludes its launch from Python.

    If the graph would take more than LONG seconds, one call is timed by the wall clock: PyTorch's softmax over a long
    first axis takes up to 1.3 s.
    """
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()  # loads the library
        for _ in range(2):
            took = _seconds(call, torch.cuda.synchronize)
            if repeats * took > LONG:
                return Timing.of([took], "wall")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()

    def once() -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 / repeats

    began, estimate = time.perf_counter(), once()
    while time.perf_counter() - began < warm_up:
        estimate = once()
    return Timing.of([once() for _ in range(sample_count(estimate * repeats, sample_time))], "timestamp")


def _cublas_version() -> str:
    import ctypes

    try:
        library = ctypes.CDLL(next(f"libcublas.so.{n}" for n in (13, 12) if _loads(f"libcublas.so.{n}")))
        value = ctypes.c_int()
        return ".".join(
            str(value.value) for which in range(3) if library.cublasGetProperty(which, ctypes.byref(value)) == 0
        )
    except (StopIteration, OSError):
        return "unknown"


def _loads(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
