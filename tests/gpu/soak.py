"""Soak test: eight threads with changing shapes, ops and arrays, including closes, frees and exceptions.

`make soak` takes ten minutes. Memory must not grow in the second half, and no call may take more than a second,
excluding compilation (for which other threads wait, too) and time taken by other processes.
"""

import argparse
import contextlib
import gc
import random
import sys
import threading
import time
from collections import deque
from unittest import mock

import numpy as np
import psutil
from faults import places

import webmm
from webmm import Device
from webmm.choose import gemm as gemm_choices
from webmm.errors import DeviceLostError, FreedArrayError, ProblemError
from webmm.kernels.gemm.naive import Naive

THREADS = 8
SECONDS = 600
PULSE = 0.1  # seconds; processor times have a resolution of 0.01 s
LONGEST = 1.0  # seconds of a call, without compilation and time taken by other processes
SLOWEST = 5  # largest factor by which other processes may slow down a call
GROWTH = 160 * 2**20  # bytes of host memory; a leak per call adds up to more in ten minutes
KEPT = 40  # arrays shared by all threads
HANGS = 60  # seconds after which the stacks of all threads are reported


def length(rng):
    """Return a random odd length of at least 9: all use the same shader."""
    return rng.randrange(9, 100, 2)


class InterruptedCallError(Exception):
    """Raised by a caller's progress function."""


def matmul(gpu, rng, shared):
    m, n, k = (length(rng) for _ in range(3))
    a, b = np.full((m, k), 2, np.float32), np.full((k, n), 3, np.float32)
    got = webmm.matmul(a, b, device=gpu)
    assert (got == 6 * k).all(), "matmul is wrong"


def keep(gpu, rng, shared):
    shared.append(gpu.array(np.ones((length(rng), length(rng)), np.float32)))


def free(gpu, rng, shared):
    shared[0].free()


def reduce(gpu, rng, shared):
    x = rng.choice(shared)
    got = webmm.reduce(x, "sum", rng.choice((0, 1))).numpy()
    assert got.sum() == x.size, "reduce is wrong"


def softmax(gpu, rng, shared):
    x = rng.choice(shared)
    assert abs(float(webmm.softmax(x).numpy().sum()) - x.shape[0]) < 1e-2 * x.shape[0], "softmax is wrong"


def gemm(gpu, rng, shared):
    m, n, k = (length(rng) for _ in range(3))
    a, b = gpu.array(np.ones((m, k), np.float32)), gpu.array(np.ones((k, n), np.float32))
    with gpu.array(np.ones((m + 3, n + 5), np.float32)) as whole:
        webmm.gemm(a, b, whole[1 : m + 1, 2 : n + 2], beta=1.0)
        assert whole.numpy().sum() == whole.size + k * m * n, "gemm is wrong"


def qmatmul(gpu, rng, shared):
    m, n, k = (length(rng) for _ in range(3))
    a, b = np.full((m, k), 5, np.uint8), np.full((k, n), 4, np.uint8)
    assert (webmm.qmatmul(a, b, 1.0, 3, 1.0, 1, out_dtype="int32", device=gpu) == 6 * k).all(), "qmatmul is wrong"


def transfer_large(gpu, rng, shared):
    x = np.ones(rng.randrange(2**20, 2**21), np.float32)
    assert gpu.array(x).numpy().sum() == x.size, "the download differs from the upload"


def refused(gpu, rng, shared):
    with contextlib.suppress(ProblemError):
        webmm.matmul(rng.choice(shared), np.ones((301, 2), np.float32))
        raise AssertionError("mismatched operands were accepted")


def interrupted(gpu, rng, shared):
    def progress(done, total):
        raise InterruptedCallError

    with contextlib.suppress(InterruptedCallError):
        webmm.matmul(np.ones((70, 50), np.float32), np.ones((50, 60), np.float32), device=gpu, progress=progress)


def closed(gpu, rng, shared):
    """Open another device and close it while another thread uses it."""
    other = Device(gpu.info.index)
    x = other.array(np.ones(1000, np.float32))

    def use():
        with contextlib.suppress(DeviceLostError):
            while True:
                x.numpy()

    user = threading.Thread(target=use, daemon=True)
    user.start()
    other.close()
    user.join(HANGS)
    assert not user.is_alive(), "a thread hangs on a device that was closed"


USES = (matmul, matmul, keep, keep, free, reduce, softmax, gemm, gemm, qmatmul, transfer_large, refused, interrupted)


def seconds_of_other_processes():
    """Return the average processor time in seconds taken by other processes or virtual machines."""
    every, own = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(every) - every.idle - getattr(every, "iowait", 0)
    return (busy - own.user - own.system) / psutil.cpu_count()


class Soak:
    """The threads that share a device, the errors they found, and samples of memory."""

    def __init__(self, seconds):
        self.gpu, self.seconds = Device(), seconds
        self.shared = deque([self.gpu.array(np.ones((9, 9), np.float32))], KEPT)
        self.calls, self.wrong, self.longest = [0] * THREADS, [], (0.0, "")
        self.compiling = self.away = 0.0  # seconds
        self.ended = False
        self.samples = []  # (seconds, host memory without arrays and pipelines)
        self.warm_up()
        self.count_compiling()
        self.start = time.monotonic()

    def warm_up(self):
        """Compile most of the shaders."""
        rng = random.Random(0)
        for use in (*USES, closed) * 3:
            with contextlib.suppress(FreedArrayError):
                use(self.gpu, rng, self.shared)

    def count_compiling(self):
        true = self.gpu.pipelines.compile

        def compile(*args, **kwargs):
            start = time.monotonic()
            try:
                return true(*args, **kwargs)
            finally:
                self.compiling += time.monotonic() - start

        self.gpu.pipelines.compile = compile

    def count_stalls(self):
        """Count the seconds taken by other processes, or for which the whole machine stalled."""
        before = seconds_of_other_processes()
        while not self.ended:
            start = time.monotonic()
            time.sleep(PULSE)
            late, now = time.monotonic() - start - PULSE, seconds_of_other_processes()
            self.away += max(0.0, late, now - before)
            before = now

    def work(self, number):
        rng = random.Random(number)
        while time.monotonic() - self.start < self.seconds and not self.wrong:
            use = closed if number == 0 and rng.random() < 0.05 else rng.choice(USES)
            start, compiling, away = time.monotonic(), self.compiling, self.away
            try:
                use(self.gpu, rng, self.shared)
            except (FreedArrayError, IndexError):
                pass  # another thread freed it
            except BaseException as error:
                self.wrong.append(f"{use.__name__}: {error!r}")
            taken = time.monotonic() - start - (self.compiling - compiling)  # all threads wait for compilation
            taken = max(taken - (self.away - away), taken / SLOWEST)
            self.longest = max(self.longest, (taken, use.__name__))
            self.calls[number] += 1

    def run(self):
        """Run the threads, sample memory meanwhile, and return the problems found."""
        threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(THREADS)]
        threading.Thread(target=self.count_stalls, daemon=True).start()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() - self.start > self.seconds + HANGS:
                return [f"threads hang\n{places()}"]
            time.sleep(min(1.0, self.seconds / 20))
            gc.collect()
            self.samples.append((time.monotonic() - self.start, self.host_memory()))
        self.ended = True
        self.shared.clear()
        gc.collect()
        wrong = self.wrong or [*self.problems_found()]  # an error ends the threads, before there are enough samples
        self.gpu.close()
        return wrong

    def host_memory(self):
        stats = self.gpu.memory_stats()  # the memory of a CPU adapter is the host's
        on_device = stats.pipeline_bytes + stats.pool_bytes + stats.array_bytes
        return psutil.Process().memory_info().rss - on_device

    def problems_found(self):
        stats = self.gpu.memory_stats()
        halves = [[size for at, size in self.samples if (at > self.seconds / 2) == late] for late in (False, True)]
        if not all(halves):
            yield f"no memory was sampled in half of {self.seconds:g} s: the machine is too busy for so short a run"
            return
        early, late = max(halves[0]), max(halves[1])
        print(
            f"{sum(self.calls):,} calls, the longest {self.longest[0]:.2f} s ({self.longest[1]}); host memory up to",
            end=" ",
        )
        print(f"{early / 2**20:.0f} MiB in the first half, {late / 2**20:.0f} in the second; {stats}")
        if late - early > GROWTH:
            yield f"host memory grew from {early:,} to {late:,} bytes"
        if stats.array_bytes:
            yield f"{stats.array_bytes:,} bytes of arrays are left"
        if self.longest[0] > LONGEST:
            yield f"{self.longest[1]} took {self.longest[0]:.2f} s"


def soak(seconds):
    """Run for `seconds`, and return the problems found."""
    # Drivers compile at the first dispatch, while all threads wait: a long kernel takes seconds.
    with mock.patch.object(gemm_choices, "candidates", return_value=[Naive()]):
        return Soak(seconds).run()


def main():
    """Run the soak test and print the problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=SECONDS)
    wrong = soak(parser.parse_args().seconds)
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
