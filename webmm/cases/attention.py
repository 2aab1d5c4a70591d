"""Benchmark and self-test cases of attention."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.cases.attention_reference import Floats, Given
from webmm.cases.base import Case, Exhibit, Op, Size, Trial, split_size
from webmm.cases.products import reduced
from webmm.cases.steps.attention import AttentionSubject
from webmm.dtypes import BOOL, F32, MATRIX_DTYPES, DType, dtype_of
from webmm.engine.device import Device
from webmm.errors import ConfigError
from webmm.kernels.attention.base import AttentionKernel
from webmm.measure.roofline import Roofline
from webmm.measure.verify import Wrong, wrong_elements
from webmm.problems.attention import Attention, Heads, dense_heads

WIDTH = 64
HEADS = 8
CHECKED = 2**27  # products of a query and a key, up to which all queries are checked
SAMPLED = 64  # queries of each head that are checked otherwise
LENGTHS = (1024, 2048, 4096, 8192)
SHOWN = {
    "gpu": ((512, 512, 64, 8), (2048, 2048, 64, 12), (1, 4096, 128, 32)),
    "cpu": ((65, 65, 64, 2), (256, 256, 64, 4), (1, 1024, 64, 8)),
}


class AttentionCase(Case[Attention]):
    """Random operands, and the expected results of some queries."""

    scale = " of the bound"

    def __init__(self, device: Device, problem: Attention) -> None:
        p = self.problem = problem
        rng = np.random.default_rng(0)
        self.arrays = {
            name: (2 * rng.random((p.batch, *lengths), np.float32) - 1).astype(p.dtype.numpy)
            for name, lengths in shapes_of(p).items()
        }
        self.inputs = {name: device.array(x) for name, x in self.arrays.items()}
        each = p.queries
        if p.queries * p.keys * p.heads * p.batch > CHECKED:
            each = min(each, SAMPLED)
        self.rows = np.unique(np.linspace(0, p.queries - 1, each).astype(np.intp))

    @property
    def bound(self) -> float:
        """Errors are parts of what rounding explains."""
        return 1.0

    @functools.cached_property
    def expected(self) -> tuple[Floats, Floats]:
        """The expected results of the checked queries, and their errors."""
        p, given = self.problem, Given(self.problem, self.arrays)
        found = [given.rows(b, h, self.rows) for b, h in itertools.product(range(p.batch), range(p.heads))]
        result, allowed = (np.stack(each) for each in zip(*found, strict=True))
        return result, allowed

    def _checked(self, got: NDArray[Any]) -> Floats:
        p = self.problem
        shaped = got.reshape(p.batch * p.heads, p.queries, p.value_width)
        return np.asarray(shaped[:, self.rows], np.float64)

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error in units of what rounding explains; inf if any result is NaN."""
        if np.isnan(got.astype(np.float32)).any():
            return math.inf
        expected, allowed = self.expected
        return float((np.abs(self._checked(got) - expected) / allowed).max())

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the wrong elements among the checked results."""
        expected, allowed = self.expected
        found = self._checked(got)
        elements = wrong_elements(found, expected, ~(np.abs(found - expected) <= allowed))
        if elements is None:
            return None
        places = self._checked(np.arange(got.size)).reshape(-1)
        return replace(elements, first=int(places[elements.first]))

    @functools.cached_property
    def _in_f32(self) -> list[NDArray[np.float32]]:
        p = self.problem
        q, k, v = (np.asarray(self.arrays[name], np.float32) for name in "qkv")
        return [q, *(np.repeat(x, p.group, axis=1) for x in (k, v))]

    def numpy(self) -> NDArray[Any]:
        """Compute two products and a softmax, in float32."""
        p = self.problem
        q, k, v = self._in_f32
        scores = q @ k.swapaxes(-1, -2)
        scores *= np.float32(p.scale)
        if p.right >= 0:
            scores += np.where(np.tri(p.queries, p.keys, p.shift + p.right, bool), np.float32(0), np.float32(-np.inf))
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        result: NDArray[Any] = scores @ v
        return result

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of NumPy's result."""
        return self.error(got)


def shapes_of(p: Attention) -> dict[str, tuple[int, int, int]]:
    """Return (heads, tokens, columns) of q, k and v."""
    return {
        "q": (p.heads, p.queries, p.width),
        "k": (p.kv_heads, p.keys, p.width),
        "v": (p.kv_heads, p.keys, p.value_width),
    }


class AttentionOp(Op[Attention]):
    """o = softmax(q·kᵀ/√width)·v for each head."""

    name = "attention"
    shape = "N, HEADSxTOKENSxWIDTH nor HEADSxQUERIESxKEYSxWIDTH"
    result = "o"
    indices = 3
    variants = ("full", "causal")
    tried = (((64, 64, 64, 2), "nn"), ((33, 65, 40, 3), "nn"))

    def parse(self, text: str) -> Size:
        """Return (queries, keys, width, heads) of a size such as 512, 8x512x64 or 8x1x512x64."""
        parts = split_size(text)
        if len(parts) == 1:
            return parts[0], parts[0], WIDTH, HEADS
        if len(parts) == 3:
            return parts[1], parts[1], parts[2], parts[0]
        if len(parts) == 4:
            return parts[1], parts[2], parts[3], parts[0]
        raise self.invalid_size(text)

    def default_sizes(self, ceiling: Roofline, budget: float) -> list[Size]:
        """Return 512 tokens of 8 heads, and longer ones that take at most 0.1 s at the peak rate, and a few queries."""
        del budget
        room = 0.1 * ceiling.gflops * 1e9
        longer = [n for n in LENGTHS if 4 * n * n * WIDTH * HEADS <= room]
        last = longer[-1] if longer else 512
        return [*((n, n, WIDTH, HEADS) for n in (512, *longer)), (1, 2 * last, WIDTH, HEADS)]

    def problem(self, size: Size, dtype: str, layout: str = "nn") -> Attention:
        """Return the attention of dense arrays."""
        if layout != "nn":
            raise ConfigError(f"op attention has no layout {layout!r}: kernels read any strides; omit the layout")
        queries, keys, width, *heads = size
        return plain((1, heads[0] if heads else HEADS, queries, keys, width), dtype_of(dtype), self.variant == "causal")

    def dense(self, sizes: tuple[int, int, int, int], dtype: str, layout: str) -> Attention:
        """Return the problem with these sizes."""
        return self.problem(sizes, dtype, layout or "nn")

    def probe(self, n: int, dtype: str) -> Attention:
        """Return a problem of one head, whose work grows with the cube of `n`."""
        return self.problem((n, n, WIDTH, 1), dtype)

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """All stages, with and without a causal mask."""
        return tuple(Exhibit(f"{words} attention", SHOWN, words) for words in self.variants)

    def case(self, device: Device, problem: Attention) -> AttentionCase:
        """Return `problem` with random arrays."""
        return AttentionCase(device, problem)

    def stand_ins(self, kernel: AttentionKernel, problem: Attention) -> Iterator[Attention]:
        """Yield small problems with the same choices: a tile and the remainder of queries, two steps of keys."""
        p = problem
        queries = [reduced(p.queries, step, 1) for step in (kernel.tile_q, 4)]
        keys = [reduced(p.keys, step, 2) for step in (kernel.tile_k, 4)]
        heads = p.group if p.group > 1 else min(p.heads, 2)
        for n, m in [*zip(queries, keys, strict=True), (p.queries, p.keys)]:
            small = replace(
                *(p,),
                batch=min(p.batch, 2) if p.lengths else 1,
                heads=heads,
                kv_heads=1 if p.group > 1 else heads,
                queries=n,
                keys=m,
                left=min(p.left, m // 2),
                right=min(p.right, m // 4),
                shift=-n if p.from_end else max(0, m - n) // 2,
                first_key=0,
                lengths_offset=0,
            )
            yield relaid(small, p)

    def trial(self, problem: Attention) -> Trial:
        """Return random operands of which every key matters, with one that dominates some queries."""
        return _trial(problem, _drawn(problem))

    def extremes(self, problem: Attention) -> Trial:
        """Return queries of NaN and infinities, large scores, equal ones, and keys of infinities."""
        p, arrays = problem, _drawn(problem)
        arrays["q"][:, :, 0] *= 2.0**7
        if p.queries > 1:
            arrays["q"][:, :, 1] = 0.0
        if p.queries > 2:
            arrays["q"][:, :, 2, -1] = np.nan
        if p.queries > 3:
            arrays["q"][:, :, 3, 0] = np.inf
        if p.mask_dtype is not None and p.mask_dtype != BOOL:
            arrays["mask"][..., ::3] = -np.inf
        if p.mask_dtype is not None:
            arrays["mask"][:, :, -1] = False if p.mask_dtype == BOOL else -np.inf
        return _trial(p, arrays)

    def examples(self) -> Iterator[tuple[str, Attention]]:
        """Yield each dtype, aligned or not, and each kind of mask."""
        for dtype, width in itertools.product(MATRIX_DTYPES, (64, 40, 61)):
            yield f"{dtype.name} {width}", plain((1, 4, 256, 512, width), dtype)
        every = plain((2, 4, 65, 129, 64), F32)
        mask = Heads(0, 0, 129, 1)
        yield "causal", replace(every, right=0)
        yield "window and softcap", replace(every, left=7, right=3, softcap=30.0, heads=8, q=dense_heads(8, 65, 64))
        yield "lengths", replace(every, lengths=True, from_end=True, shift=-65, right=0)
        for dtype in (BOOL, *MATRIX_DTYPES):
            yield f"mask of {dtype.name}", replace(every, mask=mask, mask_dtype=dtype)

    def steps(self, kernel: Any, problem: Attention) -> AttentionSubject:
        """Return NumPy's values for the steps of a kernel."""
        return AttentionSubject(self, kernel, problem)

    def traced(self, problem: Attention) -> bool:
        """Return whether the operands of a benchmark are all that it reads."""
        return problem.mask is None and not problem.lengths

    def element(self, problem: Attention, place: int) -> tuple[int, ...]:
        """Return head, query and column of an element of the dense result."""
        p = problem
        head, query, column = np.unravel_index(place, (p.batch * p.heads, p.queries, p.value_width))
        return int(head), int(query), int(column)


def plain(sizes: tuple[int, int, int, int, int], dtype: DType, causal: bool = False) -> Attention:
    """Return the attention of dense arrays: batch, heads, queries, keys and width."""
    batch, heads, queries, keys, width = sizes
    q, k = dense_heads(heads, queries, width), dense_heads(heads, keys, width)
    return Attention(
        *(batch, heads, heads, queries, keys, width, width, dtype, dtype, q, k, k, q),
        scale=width**-0.5,
        right=0 if causal else -1,
    )


def relaid(small: Attention, like: Attention) -> Attention:
    """Return a problem with dense arrays, each as aligned as in the problem `like`."""
    p, heads = small, {"q": small.heads, "k": small.kv_heads, "v": small.kv_heads, "o": small.heads}
    tokens = {"q": p.queries, "k": p.keys, "v": p.keys, "o": p.queries}
    columns = {"q": p.width, "k": p.width, "v": p.value_width, "o": p.value_width}
    layouts: dict[str, Any] = {}
    for x in "qkvo":
        wide, there = columns[x], getattr(like, x)
        dense = dense_heads(heads[x], tokens[x], wide)
        aligned = there.adjacent(wide)
        layouts[x] = dense if dense.adjacent(wide) <= aligned else replace(dense, offset=aligned)
    if p.mask is not None:
        layouts["mask"] = dense_heads(p.heads, p.queries, p.keys)
    return replace(p, **layouts)


def _drawn(p: Attention) -> dict[str, NDArray[Any]]:
    """Return arrays of multiples of 1/8, the mask and the lengths of a problem."""
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {
        name: rng.integers(-8, 9, (p.batch, *lengths)) / 8.0 for name, lengths in shapes_of(p).items()
    }
    arrays["v"] += 1.0  # so that a term that is missing or read twice changes the result
    arrays["k"][:, :, -1] *= 4.0
    if p.mask_dtype is not None:
        drawn = rng.integers(0, 4, (p.batch, p.heads, p.queries, p.keys))
        arrays["mask"] = drawn > 0 if p.mask_dtype == BOOL else drawn / 4.0
    if p.lengths:
        arrays["lengths"] = np.maximum(p.keys - np.arange(p.batch) * (p.keys // 3), 0).astype(np.int32)
    return arrays


def _trial(p: Attention, arrays: dict[str, NDArray[Any]]) -> Trial:
    expected, allowed = Given(p, arrays).all_rows()
    layouts = {"q": p.q, "k": p.k, "v": p.v, "mask": p.mask}
    ends = {extent.name: extent.end for extent in p.buffers()}
    buffers = {name: laid(x, layouts[name], ends[name]) for name, x in arrays.items() if name != "lengths"}
    if p.lengths:
        buffers["lengths"] = arrays["lengths"]
    return Trial(buffers, expected, allowed)


def laid(values: NDArray[Any], where: Heads | None, end: int) -> NDArray[Any]:
    """Return a buffer of `end` elements with `values` in a layout; elements between them are NaN, or True."""
    assert where is not None
    buffer = np.full(end, np.nan if values.dtype.kind == "f" else 1, values.dtype)
    strides = (buffer.itemsize * far for far in where.strides)
    np.lib.stride_tricks.as_strided(buffer[where.offset :], values.shape, tuple(strides))[...] = values
    return buffer


OP = AttentionOp
