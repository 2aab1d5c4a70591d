"""Helpers for test cases of all products: small problems that replace large ones, and the layout of operands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import BOOL, F32, I32, DType
from webmm.kernels.base import LOOP_LIMIT
from webmm.kernels.product import ProductKernel
from webmm.problems.product import Operand, Product
from webmm.wgsl.epilogues import OWN, TRIAL_VALUES, Applied, Spread

# Multiplications of a small problem, at most: usually, if K is divided among workgroups, and with a long K (a tile of
# 128×128).
SMALL, SMALL_DIVIDED, SMALL_LONG = 2**24, 2**28, 2**30
APPROXIMATION = 2.0**-12  # error of a driver's activation, as a multiple of |A|·|B|
ROUNDING = 2.0**-20  # of |A|·|B|: less than one of 65,536 terms, more than the rounding by scaling and a bias


def small_sizes(kernel: ProductKernel[Any], p: Product, width: int = 4) -> Iterator[tuple[int, int, int]]:
    """Yield small sizes (m, n, k) for which `kernel` may use the same shader as for `p`, the best first.

    A size is one tile plus the remainder of `p`; with a long K, which stays long, m and n are as small as possible.
    Lengths that are divisible by `width` stay divisible.
    """
    long, divided = p.k > LOOP_LIMIT, kernel.least_k != kernel.inner_step
    most = SMALL_LONG if long else SMALL_DIVIDED if divided else SMALL
    sizes = list(_by_tiles(kernel, p, width, long))
    for small in sorted(sizes, key=math.prod) if long else sizes:
        if math.prod(small) <= most:
            yield small


def _by_tiles(kernel: ProductKernel[Any], p: Product, width: int, long: bool) -> Iterator[tuple[int, int, int]]:
    """Yield sizes based on the kernel's tiles, then on powers of two for kernels without tiles, then those of `p`."""
    grid = kernel.grid
    tiles = [(16, 16), (grid.elements,) * 2] if grid.elements else [(grid.tile_m, grid.tile_n)]
    steps = [(m, n, kernel.least_k) for m, n in [*tiles, (1, 1)]] + [(step,) * 3 for step in (16, 64, 256)]
    for step_m, step_n, step_k in steps:
        whole_k = -(-(LOOP_LIMIT + 1) // math.lcm(step_k, width)) if long else 3
        m, n = (reduced(x, math.lcm(step, width), not long) for x, step in ((p.m, step_m), (p.n, step_n)))
        if step_k != kernel.inner_step and step_k == kernel.least_k and not long:  # two steps in each part of k
            yield m, n, min(p.k, 2 * step_k - kernel.inner_step + (p.k % kernel.inner_step or kernel.inner_step))
        yield m, n, reduced(p.k, math.lcm(step_k, width), whole_k)
    yield p.m, p.n, p.k


def reduced(size: int, step: int, whole: int) -> int:
    """Return `whole` steps plus the remainder of `size`, but at least one step, and not more than `size`."""
    return size if size <= (whole + 1) * step else (whole * step + size % step) or step


def dense(like: Operand, now: tuple[int, int], was: tuple[int, int], widths: tuple[int, ...] = (4,)) -> Operand:
    """Return a dense layout for a matrix of shape `now`, as aligned as one of shape `was` stored as `like`.

    `widths` are the alignments, in elements, that must be equal.
    """
    operand = Operand(now[0] if like.transposed else now[1], transposed=like.transposed)
    for offset in (0, *widths, 1):
        moved = dataclasses.replace(operand, offset=offset)
        if all(moved.aligned(*now, width) == like.aligned(*was, width) for width in widths):
            return moved
    return operand


def laid_out(values: NDArray[Any], operand: Operand, end: int) -> NDArray[Any]:
    """Return a buffer of `end` elements with `values` in the layout `operand`; elements before it are NaN, or 0."""
    buffer = np.full(end, np.nan if values.dtype.kind == "f" else 0, values.dtype)
    buffer[operand.offset :] = (values.T if operand.transposed else values).ravel()
    return buffer


def representable(values: NDArray[Any], dtype: DType) -> NDArray[np.float64]:
    """Return `values`, with infinity for each value that overflows `dtype`."""
    with np.errstate(over="ignore"):
        stored = values.astype(dtype.numpy).astype(np.float64)
    return np.where(np.isinf(stored), stored, values)


def quarters(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return random values of 1/4, 1/2 and 3/4, whose products and sums are exact in f32 in any order."""
    return rng.integers(1, 4, shape).astype(np.float64) / 4


def small_function(p: Applied, m: int, n: int) -> dict[str, Any]:
    """Return numbers and layouts of operands of a function for a small product: of its shape, for the same shader."""
    offset = 0 if all(x.by_fours for x in p.spreads) else 1
    spreads = tuple(Spread(x.dtype, offset, batch=m * n if x.batch else 0, row=n, column=1) for x in p.spreads)
    return {"values": TRIAL_VALUES[: len(p.values)], "spreads": spreads}


def operand_values(p: Any, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return values for the operands of the epilogue of `p`, which have its shape, by the names of their buffers."""
    drawn = [quarters(rng, (p.m, p.n)) for _ in p.spreads]
    typed = {BOOL: lambda x: x > 0.5, I32: lambda x: (4 * x).astype(np.int32)}
    return {
        f"y{i}": typed[x.dtype](v) if x.dtype in typed else v
        for i, (x, v) in enumerate(zip(p.spreads, drawn, strict=True))
    }


def buffers_of(p: Any, values: Mapping[str, NDArray[Any]], stored: Mapping[str, Operand]) -> dict[str, NDArray[Any]]:
    """Return the buffers of `p` that have values, in their layouts, by default dense and row-major."""
    known = [extent for extent in p.buffers() if extent.name in values]
    return {x.name: laid_out(values[x.name], stored.get(x.name, Operand(1, offset=x.start)), x.end) for x in known}


def allowed_errors(
    p: Any, product: NDArray[Any], finished: Callable[[NDArray[Any]], NDArray[Any]], magnitude: Any = None
) -> NDArray[np.float64]:
    """Return the errors that rounding explains in a product of quarters, to which `finished` applies the epilogue.

    `magnitude` is |A|·|B|, by default that of A·B.
    A function of a user's own may have a steep slope and large values.
    """
    size = (np.abs(product) if magnitude is None else magnitude) + 1
    stored_eps = 0.0 if p.out_dtype == F32 else p.out_dtype.eps
    allowed: NDArray[np.float64] = (ROUNDING + stored_eps + (APPROXIMATION if p.activation else 0.0)) * size
    if p.activation not in OWN:
        return allowed
    near, up, down = (finished(product + sign * ROUNDING * size) for sign in (0, 1, -1))
    steep: NDArray[np.float64] = np.abs(up - down) + (APPROXIMATION + stored_eps) * np.abs(near)
    return allowed + steep


def add_cancellations(a: NDArray[Any], b: NDArray[Any]) -> None:
    """Multiply a large element of A, next to a small one, by zeros of B: in every second column of one row of C, and in
    a few columns of another. Float16 would lose the small terms; float32 sums them exactly.
    """
    for row, inner, columns in ((0, slice(0, 2), slice(0, None, 2)), (-1, slice(2, 4), slice(3, None, 32))):
        if a.shape[1] >= 4 and (row == 0 or a.shape[0] > 1):
            a[row] = 0.0
            a[row, inner] = 2.0**17, 0.25
            b[inner.start, columns] = 0.0
