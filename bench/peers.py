"""The vendor's library as a reference: cuBLAS through PyTorch, on the GPU that webmm runs on.

PyTorch is not among webmm's requirements; where it has no CUDA device there is simply no peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from webmm import __version__
from webmm.problem import Gemm
from webmm.records import Record
from webmm.timing import WARM_UP, Timing, sample_count
from webmm.verify import Checker, bound


def available() -> bool:
    """Tell whether PyTorch is here and has a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def cublas(problem: Gemm, checker: Checker, peak_gflops: float) -> Record:
    """Return cuBLAS's record for a dense row-major `problem`, with TF32 off, replayed from a CUDA graph."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in (checker.a, checker.b))
    out = torch.empty((problem.m, problem.n), dtype=a.dtype, device="cuda")
    timed = time_graph(lambda: torch.matmul(a, b, out=out))
    gflops = problem.flops / timed.median_us / 1e3
    return Record(
        op=problem.op,
        kernel="cublas",
        config={"tf32": False},
        m=problem.m,
        n=problem.n,
        k=problem.k,
        batch=problem.batch,
        dtype=problem.dtype.name,
        engine=f"PyTorch {torch.__version__}, cuBLAS {_cublas_version()}",
        adapter=torch.cuda.get_device_name(),
        backend="CUDA",
        driver=str(torch.version.cuda),
        version=__version__,
        median_us=timed.median_us,
        best_us=timed.best_us,
        gflops=gflops,
        clock="timestamp",
        max_error=checker.error(out.cpu().numpy()),
        error_bound=bound(problem),
        peak_fraction=gflops / peak_gflops,
    )


def time_graph(call: Callable[[], Any]) -> Timing:
    """Time `call` as a CUDA graph between two events, so that its launch from Python is not in it."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()

    def once() -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    began, estimate = time.perf_counter(), once()
    while time.perf_counter() - began < WARM_UP:
        estimate = once()
    return Timing.of([once() for _ in range(sample_count(estimate))], "timestamp")


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
