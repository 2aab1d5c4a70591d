"""The public call for attention."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

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
    mask_shape,
    of_row_sums,
    settings_of,
)
from webmm.arguments.products import check_stored_once
from webmm.arguments.views import broadcast
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Operandish, Temporaries, number, opened, returned
from webmm.calls.pieces import in_placed_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import (
    arranged,
    assign,
    converted,
    filled,
    is_resident,
    laid_out,
    range_of,
    reshaped,
    run_kernel,
    spread,
)
from webmm.choose.limits import largest_buffer
from webmm.cut.pieces import Piece, ranges
from webmm.dtypes import F32, F64, I32, DType, dtype_of
from webmm.engine.aliasing import check_separate
from webmm.engine.device import Array, Device
from webmm.errors import ProblemError
from webmm.kernels.attention.row_sums import RowSums
from webmm.problems.attention import LEAST_SCORE
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
    with opened("attention", device, q, k, v, *given, devices=devices) as call:
        counts = lengths if lengths is None or isinstance(lengths, Array) else host_array(lengths)
        factor, cap = None if scale is None else number("scale", scale), number("softcap", softcap)
        x, settings = checked(call, q, k, v, mask, counts, causal, window, cap, factor)
        dtype = None if out_dtype is None else dtype_of(out_dtype)
        if out is None:
            return returned(attended(call, x, settings, dtype))
        _check_out(out, x, dtype)
        into = out if out.ndim <= 4 else call.result(x.shape, element_of(out), out)
        attend(call, x, settings, into)
        if into is not out:
            assign(call, out, into)
        return out


def _check_out(out: NDArray[Any] | Array, x: Operands, dtype: DType | None) -> None:
    """Raise ProblemError unless the result, of that dtype if there is one, can be written to `out`."""
    on_device = is_resident(*vars(x).values())
    if not isinstance(out, Array if on_device else np.ndarray):
        raise ProblemError("out must be an Array if an operand is an Array, else a NumPy array")
    found = element_of(out)
    expected = dtype or found
    check_floats("attention", expected)
    if out.shape != x.shape or found != expected:
        raise ProblemError(
            f"out is {found.name} of shape {out.shape}; the result is {expected.name} of shape {x.shape}"
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ProblemError("out is read-only; pass a writable array")
    check_stored_once("out", out)
    check_separate("out", out, vars(x))


def combine(result: Data, top: Data, weight: Data, piece: Data, sums: Data) -> None:
    """Add a piece of the keys to the result of those before: its own result, largest scores and sums of weights."""
    with np.errstate(all="ignore"):
        larger = np.maximum(top, sums[..., :1])
        before, new = weight * np.exp2(top - larger), sums[..., 1:] * np.exp2(sums[..., :1] - larger)
        top[...], weight[...] = larger, before + new
        result[...] = (result * before + piece * new) / np.where(weight == 0, 1, weight)


def described(lengths: Data) -> tuple[str, int, int]:
    """Return what elements in host memory are called, the least and the largest of them; 0 of none."""
    host = np.asarray(lengths)
    return host.dtype.name, *((int(host.min()), int(host.max())) if host.size else (0, 0))


# The steps, in both languages


@dataclass(frozen=True, eq=False)
class Operands:
    """The arrays of a call, which were checked."""

    q: Data
    k: Data
    v: Data
    mask: Data | None
    lengths: Data | None

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return (*self.q.shape[:-1], self.v.shape[-1])


def checked(
    call: Temporaries,
    q: Operandish,
    k: Operandish,
    v: Operandish,
    mask: Operandish | None,
    lengths: Data | None,
    causal: bool | str,
    window: tuple[int, int],
    softcap: float,
    scale: float | None,
) -> tuple[Operands, Settings]:
    """Return the operands and what the options mean; raises ProblemError for what does not fit."""
    q, k, v = call.data(q), call.data(k), call.data(v)
    shape = attention_shape(q, k, v)
    keys = k.shape[-2]
    settings = settings_of(causal, window, softcap, scale, q, k, lengths is not None)
    if mask is not None:
        mask = call.data(mask)
        check_mask(mask, (*shape[:-1], keys))
    counts = None if lengths is None else _counts(call, lengths, shape[:-3], keys)
    return Operands(q, k, v, mask, counts), settings


def attended(call: Temporaries, x: Operands, settings: Settings, dtype: DType | None) -> Data:
    """Return a new array with the result, by default of the dtype of q."""
    if dtype is not None:
        check_floats("attention", dtype)
    result = call.result(x.shape, dtype or element_of(x.q), x.q, x.k, x.v, x.mask, x.lengths)
    attend(call, x, settings, result)
    return result


def attend(call: Temporaries, x: Operands, settings: Settings, result: Data) -> None:
    """Compute the result, with the keys in pieces if those of a head exceed a binding."""
    if 0 in result.shape:
        return
    keys = x.k.shape[-2]
    at_once = keys_at_once(min(map(largest_buffer, call.devices)), x.k, x.v, x.mask)
    if 0 < keys <= at_once:
        _compute(call, x, settings, result)
    else:
        assign(call, result, _in_key_pieces(call, x, settings, at_once))


def _compute(call: Temporaries, x: Operands, settings: Settings, result: Data, sums: bool = False) -> None:
    """Compute the result in pieces of the batch, of the heads of k and v, and of queries.

    With `sums`, it is the largest score and the sum of weights of each query, two columns in the place of the result.
    """
    groups = heads_of(x.k)

    def five(x: Data) -> Data:
        return arranged(call, x, lambda x: grouped(x, groups), grouped_shape(x, groups))

    def compute(piece: Piece, q: Array, k: Array, v: Array, *others: Array) -> None:
        *more, o = others
        if x.mask is not None:
            more[0] = laid_out(more[0], broadcast(more[0], (*q.shape[:4], k.shape[3])))
        hidden = None if x.mask is None else more[0]
        counts = None if x.lengths is None else more[-1]
        first = piece.at["q"][0] if "q" in piece.at else 0
        problem = attention_of(q, k, v, o, settings, first, hidden, counts)
        if sums:
            run_kernel(call, RowSums(), of_row_sums(problem), q, k, v, o, *more)
        else:
            call.run(problem, q, k, v, o, *more)

    operands = [labelled(five(x.q), "bgrqw"), labelled(five(x.k), "bgrkw"), labelled(five(x.v), "bgrkx")]
    if x.mask is not None:
        operands.append(labelled(five(spread(call, x.mask, mask_shape(x.mask, x.q.shape[:-3]))), "bgrqk"))
    if x.lengths is not None:
        operands.append(labelled(x.lengths, "b"))
    flops = 2 * math.prod(x.shape[:-1]) * x.k.shape[-2] * (x.q.shape[-1] + x.v.shape[-1])
    in_placed_pieces(call, compute, operands, labelled(five(result), "bgrqx", placed=True), "bgq", flops=flops)


def _in_key_pieces(call: Temporaries, x: Operands, settings: Settings, most: int) -> Data:
    """Return the result, in pieces of at most so many keys, combined by the largest scores and the sums of weights.

    It is in host memory, and zeros if there are no keys.
    """
    rows = x.shape[:-1]
    result, top, weight = filled(x.shape, F64, 0), filled((*rows, 1), F64, LEAST_SCORE), filled((*rows, 1), F64, 0)
    for start, stop in ranges(x.k.shape[-2], most):
        k, v = (range_of(each, -2, start, stop - start) for each in (x.k, x.v))
        mask = x.mask
        if mask is not None and mask.ndim and mask.shape[-1] > 1:
            mask = range_of(mask, -1, start, stop - start)
        there = replace(settings, first_key=start)
        piece, sums = call.result(x.shape, F32), call.result((*rows, 2), F32)
        _compute(call, replace(x, k=k, v=v, mask=mask), there, piece)
        _compute(call, replace(x, k=k, v=k, mask=mask), there, sums, True)
        combine(result, top, weight, piece, sums)
    return result


def _counts(call: Temporaries, lengths: Data, batch: Shape, keys: int) -> Data:
    """Return the lengths of sequences as a vector of int32; raises ProblemError for other shapes, dtypes or values."""
    check_lengths(lengths, batch)
    if is_resident(lengths):
        check_resident_counts(lengths)
        return reshaped(lengths, (lengths.size,))
    check_counts(*described(lengths), keys)
    return reshaped(converted(call, lengths, I32), (lengths.size,))
