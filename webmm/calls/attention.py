"""The public call for attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm import choose
from webmm.arguments.arrays import Shape, element_of, host_array
from webmm.arguments.attention import (
    Settings,
    attention_of,
    attention_shape,
    check_counts,
    check_lengths,
    check_mask,
    check_resident_counts,
    grouped,
    grouped_shape,
    heads_of,
    keys_at_once,
    mask_axes,
    mask_shape,
    of_row_sums,
    settings_of,
)
from webmm.arguments.pieces import in_place
from webmm.arguments.products import check_stored_once
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, Labelled
from webmm.calls.operands import Operandish, Temporaries, number, opened, returned
from webmm.calls.pieces import in_placed_pieces
from webmm.calls.planned import planned
from webmm.choose.limits import largest_buffer
from webmm.cut.pieces import Piece
from webmm.dtypes import DType, dtype_of
from webmm.engine.aliasing import check_separate
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.kernels.attention.row_sums import RowSums
from webmm.problems.attention import LEAST_SCORE, Attention
from webmm.problems.base import check_floats


@planned
def attention(
    q: Operandish,
    k: Operandish,
    v: Operandish,
    *,
    causal: bool | str = False,
    mask: Operandish | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    window: tuple[int, int] = (-1, -1),
    lengths: Operandish | None = None,
    out: NDArray[Any] | Array | None = None,
    out_dtype: DTypeLike | None = None,
    precision: str | None = None,
    device: Device | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return softmax(scale · q · kᵀ) · v for each head, (…, heads, queries, value width), without scores in memory.

    Arguments:

    - `q`: (…, heads, queries, width), float32, float16 or bfloat16; of float64, cast it.
    - `k`, `v`: (…, heads, keys, width) and (…, heads, keys, value width), of the dtype of `q`. The heads of `q` may be
      a multiple of theirs: consecutive heads of `q` share one of `k` and `v`. Strides are read in place, so that arrays
      of (batch, tokens, heads, width) are passed as views.
    - `causal`: True or "start" aligns the first query with the first key, "end" the last query with the last key, of
      its sequence if there are `lengths`; a query sees the keys up to its position.
    - `mask`: bool (True: attend) or float (added to the scores), which broadcasts to (…, heads, queries, keys).
    - `scale`: of the scores, by default 1/√width.
    - `softcap`: c > 0 turns scores s into c·tanh(s/c), before the mask.
    - `window`: keys (left, right) that a query sees before and after its position, aligned as by `causal`; -1 for all.
    - `lengths`: integers of the shape of the batch: the keys of each sequence. What follows them is never read.
    - `out`: the array to write the result to, of its shape and dtype.
    - `out_dtype`: the dtype of the result, by default that of `q`.
    - `precision`: "high" or None: sums and softmax are float32 in either case.
    - `device`: by default the device of the operands, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    A query that sees no key gets zeros. A NaN among the scores that a query sees makes its row NaN, as does ∞; -∞ is
    no key, and so is a score below -2¹²⁶. What hidden keys contain is of no importance, if it is finite.
    Calls of any size are cut into pieces; if the keys of a head exceed a binding, those of keys are combined by the
    host. Returns a NumPy array, or an `Array` on the same device if an operand is one, or `out`.

    Raises ProblemError for shapes, dtypes and options that do not fit, as the messages say; UnsupportedError if the
    device cannot compute the smallest piece, MemoryLimitError if it is out of memory.

    Example: ``webmm.attention(q, k, v, causal=True)``
    """
    if precision not in (None, "high"):
        raise ProblemError(f'precision must be "high" or None, not {precision!r}')
    given = [x for x in (mask, lengths, out) if x is not None]
    with opened("attention", device, q, k, v, *given, devices=devices) as temporary:
        arrays = [temporary.data(x) for x in (q, k, v)]
        shape = attention_shape(*arrays)
        scores = (*shape[:-1], arrays[1].shape[-2])
        factor, cap = None if scale is None else number("scale", scale), number("softcap", softcap)
        settings = settings_of(causal, window, cap, factor, arrays[0], arrays[1], lengths is not None)
        hidden = None if mask is None else temporary.data(mask)
        if hidden is not None:
            check_mask(hidden, scores)
        counts = None if lengths is None else _counts(lengths, shape[:-3], scores[-1])
        more = {"mask": hidden, "lengths": counts}
        everything = {"q": arrays[0], "k": arrays[1], "v": arrays[2], **more}
        result = _result(temporary, out, shape, everything, out_dtype)
        into = result if out is None or result.ndim <= 4 else temporary.result(shape, element_of(result), result)
        at_once = keys_at_once(min(map(largest_buffer, temporary.devices)), arrays[1], arrays[2], hidden)
        if 0 in shape or not scores[-1]:
            _fill_zeros(result)
        elif at_once < scores[-1]:
            _copy(_in_key_pieces(temporary, arrays, more, settings, at_once), result)
        else:
            _compute(temporary, arrays, more, into, settings)
            _copy(into, result)
        return returned(result) if out is None else out


def _compute(
    temporary: Temporaries,
    arrays: list[Data],
    more: dict[str, Data | None],
    result: Data,
    settings: Settings,
    run: Callable[..., None] | None = None,
) -> None:
    """Compute the result in pieces of the batch, of the heads of k and v, and of queries.

    `run` queues a problem for a device and its arrays; by default it is `choose.run()`.
    """
    q, k, v = arrays
    groups = heads_of(k)
    mask, lengths = more["mask"], more["lengths"]

    def compute(piece: Piece, q: Array, k: Array, v: Array, *others: Array) -> None:
        *rest, o = others
        hidden = None if mask is None else rest.pop(0).broadcast_to((*q.shape[:4], k.shape[3]))
        counts = rest.pop(0) if lengths is not None else None
        first = piece.at["q"][0] if "q" in piece.at else 0
        more = (x for x in (hidden, counts) if x is not None)
        (run or choose.run)(attention_of(q, k, v, o, settings, first, hidden, counts), o.device, q, k, v, o, *more)

    operands = [
        Labelled(_five(temporary, x, groups), axes) for x, axes in zip(arrays, ("bgrqw", "bg1kw", "bg1kx"), strict=True)
    ]
    if mask is not None:
        spread = _five(temporary, _over_batch(mask, q.shape[:-3]), groups)
        operands.append(Labelled(spread, mask_axes(spread.shape)))
    if lengths is not None:
        operands.append(Labelled(lengths, "b"))
    flops = 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])
    into = _Strided(_five(temporary, result, groups), "bgrqx")
    in_placed_pieces(temporary.devices, compute, operands, into, "bgq", flops=flops)


def _in_key_pieces(
    temporary: Temporaries,
    arrays: list[Data],
    more: dict[str, Data | None],
    settings: Settings,
    most: int,
) -> NDArray[Any]:
    """Return the result, in pieces of at most so many keys, combined by the largest scores and the sums of weights."""
    q, k, v = arrays
    mask = more["mask"]
    result = np.zeros((*q.shape[:-1], v.shape[-1]))
    top, weight = np.full((*q.shape[:-1], 1), LEAST_SCORE), np.zeros((*q.shape[:-1], 1))
    for start in range(0, k.shape[-2], most):
        keys = slice(start, start + most)
        piece, sums = (np.empty((*q.shape[:-1], columns), np.float32) for columns in (v.shape[-1], 2))
        hidden = mask if mask is None or mask.ndim == 0 or mask.shape[-1] == 1 else mask[..., keys]
        given = {**more, "mask": hidden}
        there = replace(settings, first_key=start)
        _compute(temporary, [q, k[..., keys, :], v[..., keys, :]], given, piece, there)
        _compute(temporary, [q, k[..., keys, :], k[..., keys, :]], given, sums, there, _row_sums)
        with np.errstate(all="ignore"):
            larger = np.maximum(top, sums[..., :1])
            before, new = weight * np.exp2(top - larger), sums[..., 1:] * np.exp2(sums[..., :1] - larger)
            top, weight = larger, before + new
            result = (result * before + piece * new) / np.where(weight == 0, 1, weight)
    return result


def _row_sums(problem: Attention, device: Device, *arrays: Array) -> None:
    """Queue the largest score and the sum of weights of each query, two columns in the place of the result."""
    device.run(RowSums(), of_row_sums(problem), *arrays)


class _Strided(Labelled):
    """A result that kernels write with any strides."""

    def in_place(self, binding: int, written: bool = False) -> bool:
        return isinstance(self.data, Array) and in_place(self.data, binding, True, False)


def _result(
    temporary: Temporaries,
    out: NDArray[Any] | Array | None,
    shape: Shape,
    operands: dict[str, Data | None],
    out_dtype: DTypeLike | None,
) -> Data:
    """Return `out`, or a new array for the result; raises ProblemError if `out` does not fit."""
    given = [x for x in operands.values() if x is not None]
    dtype = None if out_dtype is None else dtype_of(out_dtype)
    if dtype is not None:
        check_floats("attention", dtype)
    if out is None:
        return temporary.result(shape, dtype or element_of(given[0]), *given)
    on_device = any(isinstance(x, Array) for x in given)
    if not isinstance(out, Array if on_device else np.ndarray):
        raise ProblemError("out must be an Array if an operand is an Array, else a NumPy array")
    found = element_of(out)
    expected: DType = dtype or found
    check_floats("attention", found)
    if out.shape != shape or found != expected:
        raise ProblemError(f"out is {found.name} of shape {out.shape}; the result is {expected.name} of shape {shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ProblemError("out is read-only; pass a writable array")
    check_stored_once("out", out)
    check_separate("out", out, operands)
    return out


def _counts(lengths: Operandish, batch: Shape, keys: int) -> Data:
    """Return the lengths of sequences as a vector of int32; raises ProblemError for other shapes, dtypes or values."""
    if isinstance(lengths, Array):
        check_lengths(lengths, batch)
        check_resident_counts(lengths, lengths.contiguous)
        return lengths.reshape(lengths.size)
    host = host_array(lengths)
    check_lengths(host, batch)
    check_counts(host.dtype.name, int(host.min(initial=keys)), int(host.max(initial=0)), keys)
    return np.ascontiguousarray(host, np.int32).reshape(-1)


def _over_batch(mask: Data, batch: Shape) -> Data:
    """Return a mask with all axes of q, whose batch is `batch`, or of ones."""
    shape = mask_shape(mask, batch)
    return mask.broadcast_to(shape) if isinstance(mask, Array) else np.broadcast_to(mask, shape)


def _five(temporary: Temporaries, x: Data, groups: int) -> Data:
    """Return (…, heads, tokens, columns) as (batch, groups, heads of a group, tokens, columns), a view if possible."""
    if not isinstance(x, Array):
        return x.reshape(grouped_shape(x, groups))
    layout = grouped(x, groups)
    if layout is None:
        return temporary.array(x.numpy()).reshape(grouped_shape(x, groups))
    return Array(x.storage, layout.shape, x.element, layout.strides, layout.offset)


def _copy(computed: Data, result: Data) -> None:
    """Copy what was computed to the array of the result, if that is another one."""
    if computed is result:
        return
    if isinstance(result, Array):
        result.device.assign(result, computed if isinstance(computed, Array) else computed.astype(result.dtype))
    else:
        result[...] = computed


def _fill_zeros(result: Data) -> None:
    """Set a result without elements, or of queries without keys."""
    if isinstance(result, Array):
        result.device.assign(result, np.zeros(result.shape, result.dtype))
    elif result.size:
        result[...] = 0
