"""Does this driver compute right? A shader proves itself before its first use on a driver, and the verdict is kept.

Drivers are wrong in silence: lavapipe of Mesa 22.3.6 leaves any loop after 65,535 iterations. A fixed list of products
at the start would miss the shader that is then used, or cost seconds, since a CPU's driver takes tenths of a second to
compile one. So the test belongs to the shader: when a kernel is chosen for the first time in some specialisation, that
very shader, which must be compiled anyway, multiplies small matrices first, of a long K where the problem's is. That
costs a dispatch and a readback, 1 to 2 ms on lavapipe, once per text, adapter, driver, engine and version of webmm; a
shader that fails is not chosen on that driver, and a warning names it.

The operands are quarters, so that every product and sum is exact in f32, in any order: a single term that is left out
shows, even of 100,000. What a small stand-in cannot show is a fault of large sizes, such as of grids or of memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm import log
from webmm.choose import candidates
from webmm.choose import verdicts as kept
from webmm.dtypes import F32, FLOATS
from webmm.engine.device import Device
from webmm.engine.timing import submit
from webmm.errors import MemoryLimitError, ShaderError, UnsupportedError
from webmm.kernels.base import LOOP_LIMIT, Kernel
from webmm.kernels.product import ProductKernel
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import Operand, transposes
from webmm.render import render
from webmm.version import __version__

SMALL, SMALL_LONG = 2**24, 2**30  # multiplications that are no time, and that are where K is long: a tile of 128×128
ROUNDING = 2.0**-20  # of |A|·|B|: less than a term of 65,536, more than scaling and a bias can make of an exact sum
APPROXIMATION = 2.0**-12  # likewise, for activations

# What `webmm selftest` multiplies: aligned, with ragged edges, vectors, transposed, and a K beyond what loops may run.
CASES = (
    (64, 64, 64, "nn"),
    (65, 67, 63, "nn"),
    (1, 256, 256, "nn"),
    (256, 1, 256, "nn"),
    (200, 200, 200, "nt"),
    (3, 5, 100_000, "nn"),
)


def failing(kernel: Kernel[Any], problem: Gemm, device: Device) -> str | None:
    """Return why `kernel` must not compute `problem` on this driver, None where its shader is right.

    Raises DeviceLostError. A shader that cannot be tried for want of memory passes, and is tried again next time.
    """
    if not device.settings.selftest:
        return None
    if device.verdicts is None:
        device.verdicts = kept.verdicts(driver(device))
    shader = _text(kernel, problem)
    if shader not in device.verdicts:
        stand_in = next(stand_ins(kernel, problem), None)
        if stand_in is None:
            return None
        try:
            verdict = _verdict(kernel, stand_in, device)
        except (MemoryLimitError, UnsupportedError):
            return None
        device.verdicts[shader] = verdict
        kept.keep_verdicts(driver(device), {shader: verdict})
        if verdict:
            log.choice.warning("%s is not used on %s: %s", kernel, device.info, verdict)
    return device.verdicts[shader] or None


def run(device: Device) -> Iterator[tuple[Gemm, Kernel[Any], str]]:
    """Yield (problem, kernel, what is wrong, "" for nothing) of each case, in each dtype that the device has.

    The kernels are those that would be chosen, best first, up to one that is right. Verdicts are found afresh and kept.
    """
    dtypes = [dtype for dtype in FLOATS if dtype.features <= device.capabilities.features]
    for dtype, (m, n, k, layout) in itertools.product(dtypes, CASES):
        problem = gemm(m, n, k, dtype=dtype, **transposes(layout))
        for kernel in candidates(problem, device, device.settings.tune):
            if kernel.check(problem, device.capabilities):
                continue
            verdict = _verdict(kernel, problem, device)
            kept.keep_verdicts(driver(device), {_text(kernel, problem): verdict})
            yield problem, kernel, verdict
            if not verdict:
                break


def _verdict(kernel: Kernel[Any], problem: Gemm, device: Device) -> str:
    try:
        with device.span(kernel.name, "self-test"):
            return prove(kernel, problem, device)
    except ShaderError as error:
        return str(error).splitlines()[0]


def driver(device: Device) -> str:
    """Return whose verdicts hold for this device: adapter, driver, engine and version of webmm."""
    info = device.info
    return f"{info.name}, {info.backend}, {info.driver}, {device.engine.version()}, webmm {__version__}"


def _text(kernel: Kernel[Any], problem: Gemm) -> str:
    """Return a fingerprint of the shaders that `kernel` runs for `problem`."""
    texts = [render(step, problem).wgsl for step in kernel.dispatches]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def stand_ins(kernel: Kernel[Any], problem: Gemm) -> Iterator[Gemm]:
    """Yield problems that the same shader computes in no time, the best first; none where there is none.

    Each size is a tile and what hangs over, or where K is long, as it then stays, as little as may be.
    """
    assert isinstance(kernel, ProductKernel)
    long = problem.k > LOOP_LIMIT
    sizes = list(_small_sizes(kernel, problem, long))
    for small in sorted(sizes, key=math.prod) if long else sizes:
        if math.prod(small) <= (SMALL_LONG if long else SMALL):
            stand_in = _dense(problem, *small)
            if _text(kernel, stand_in) == _text(kernel, problem):
                yield stand_in


def _small_sizes(kernel: ProductKernel[Any], p: Gemm, long: bool) -> Iterator[tuple[int, int, int]]:
    """Yield sizes by the kernel's tiles, by powers of two for those that tile in another way, and those of `p`."""
    grid = kernel.grid
    tiles = [(16, 16), (grid.elements,) * 2] if grid.elements else [(grid.tile_m, grid.tile_n)]
    steps = [(m, n, kernel.inner_step) for m, n in [*tiles, (1, 1)]] + [(step,) * 3 for step in (16, 64, 256)]
    for step_m, step_n, step_k in steps:
        whole_k = -(-(LOOP_LIMIT + 1) // math.lcm(step_k, 4)) if long else 3
        yield _reduced(p.m, step_m, not long), _reduced(p.n, step_n, not long), _reduced(p.k, step_k, whole_k)
    yield p.m, p.n, p.k


def _reduced(size: int, tile: int, whole: int) -> int:
    """Return a size of `whole` tiles and what hangs over, aligned to vec4 as `size` is; at least one tile or that."""
    step = math.lcm(tile, 4)
    return size if size <= (whole + 1) * step else (whole * step + size % step) or step


def _dense(p: Gemm, m: int, n: int, k: int) -> Gemm:
    """Return `p` on other sizes, without gaps; where it cannot be read by vec4, off by one element instead."""

    def operand(like: Operand, rows: int, columns: int, was: tuple[int, int]) -> Operand:
        dense = Operand(rows if like.transposed else columns, transposed=like.transposed)
        if dense.vectorizable(rows, columns) and not like.vectorizable(*was):
            return dataclasses.replace(dense, offset=1)
        return dense

    return dataclasses.replace(
        p,
        m=m,
        n=n,
        k=k,
        batch=1,
        a=operand(p.a, m, k, (p.m, p.k)),
        b=operand(p.b, k, n, (p.k, p.n)),
        c=operand(p.c, m, n, (p.m, p.n)),
        bias_offset=0,
        **p.trial,
    )


def prove(kernel: Kernel[Any], problem: Gemm, device: Device) -> str:
    """Compute `problem`, dense, on the device, and return what is wrong with the result; "" where it is right."""
    p, rng = problem, np.random.default_rng(0)
    a, b, c, bias = (
        rng.integers(1, 4, shape).astype(np.float64) / 4
        for shape in ((p.m, p.k), (p.k, p.n), (p.m, p.n), {"column": (p.n,), "row": (p.m, 1)}.get(p.bias, (p.m, p.n)))
    )
    scale = a @ b
    expected = p.reference(scale, c, bias if p.bias else 0.0)
    values = {"a": a, "b": b, "c": c if p.beta else np.full(c.shape, np.nan), "bias": bias}
    stored = {"a": p.a, "b": p.b, "c": p.c, "bias": Operand(1)}
    arrays = [
        device.array(_laid_out(values[extent.name], stored[extent.name], extent.end), extent.dtype)
        for extent in p.buffers()
    ]
    try:
        submit(device, device.launch(kernel, p, *arrays))
        got = arrays[2].numpy().astype(np.float64)[p.c.offset :].reshape(p.m, p.n)
    finally:
        for array in arrays:
            array.free()
    return _complaint(got, expected, scale, p)


def _laid_out(values: NDArray[np.float64], operand: Operand, end: int) -> NDArray[np.float64]:
    """Return the buffer that holds `values` as `operand` says."""
    buffer = np.full(end, np.nan)
    buffer[operand.offset :] = (values.T if operand.transposed else values).ravel()
    return buffer


def _complaint(got: NDArray[Any], expected: NDArray[Any], scale: NDArray[Any], p: Gemm) -> str:
    stored = 0.0 if p.out_dtype == F32 else p.out_dtype.eps
    allowed = (ROUNDING + stored + (APPROXIMATION if p.activation else 0.0)) * (scale + 1)
    wrong = ~(np.abs(got - expected) <= allowed)
    if not wrong.any():
        return ""
    row, column = (int(x) for x in np.argwhere(wrong)[0])
    return (
        f"it computes wrongly there: {int(wrong.sum()):,} of {wrong.size:,} elements of a product {p}, "
        f"at ({row}, {column}) {got[row, column]:g} for {expected[row, column]:g}"
    )
