"""Steps of sequences: calls that write to an array that they also read, through any other view of its buffer.

Such a call is either right or refused before anything is written; one whose arrays share nothing must be accepted. The
whole buffer is compared, so that a stray write is found, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from live import LARGEST, Live, Pair, step

import webmm
from webmm.errors import ProblemError

SIDE = 5  # rows and columns; the same for all, since each layout needs a shader
ROOM = 4 * SIDE * SIDE  # elements of the buffer
STARTS = (0, 0, SIDE, SIDE * SIDE, SIDE * SIDE + 2, 2 * SIDE * SIDE)
LOOKS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "rows reversed": lambda x: x[::-1],
    "columns reversed": lambda x: x[:, ::-1],
    "reversed": lambda x: x[::-1, ::-1],
}
Matrix = Callable[[Any], Any]  # from the flat buffer, on the device or not, to a view


def matrix(s: Live, name: str, looks: tuple[str, ...] = tuple(LOOKS)) -> Matrix:
    """Return a view of the buffer: SIDE × SIDE elements from any position, in any order, also with gaps."""
    start, look = s.draw.pick(f"{name} from", STARTS), LOOKS[s.draw.pick(f"{name} is", looks)]
    wide = s.draw.pick(f"gaps in {name}", (False, False, True))
    width = 2 * SIDE if wide else SIDE
    start = min(start, ROOM - width * SIDE)
    return lambda x: look(x[start : start + width * SIDE].reshape(SIDE, width)[:, :SIDE])


def vector(s: Live) -> Matrix:
    """Return a view for a bias: neighbours, every second element, or a column."""
    start, apart = s.draw.pick("bias from", STARTS), s.draw.pick("bias steps", (1, 2, SIDE))
    column = s.draw.pick("bias per row", (False, True))
    start = min(start, ROOM - apart * SIDE)
    found = slice(start, start + apart * SIDE, apart)
    return lambda x: x[found].reshape(SIDE, 1) if column and apart == 1 else x[found]


def buffer(s: Live) -> Pair:
    values = s.whole((ROOM,), 2)
    return Pair(s.device.array(values), values.astype(np.float64))


def one_of(s: Live, name: str, whole: Pair, other: Pair) -> Pair:
    """Return the buffer that an operand is a view of: that of out, or another one."""
    return whole if s.draw.pick(f"{name} in the buffer of out", (False, True)) else other


def written(s: Live, call: Callable[[], Any], into: Pair, exact: Any, whole: Pair, shared: bool) -> None:
    """Make a call that writes `exact` into a view; it may be refused if that view shares the buffer."""
    try:
        got = call()
    except ProblemError:
        if not shared:
            raise
        s.check(whole)  # nothing has changed
        s.draw.words.append("refused")
        return
    if got is not into.array:
        raise AssertionError(f"the result is {got!r}, not out")
    into.host[...] = exact
    s.check(whole)


def needs_a_copy(residual: Pair | None, into: Pair) -> bool:
    """Tell whether the residual has to be copied to `into`, which is always part of an array here."""
    if residual is None:
        return False
    there, out = residual.array, into.array
    return not residual.shares(out) or (there.offset, there.strides) != (out.offset, out.strides)


@step(often=2)
def out_of_matmul(s: Live) -> None:
    """matmul(a, b, bias=, residual=, out=), each from the same buffer or from another one."""
    whole, other = buffer(s), buffer(s)
    chosen: dict[str, Pair] = {}
    for name in ("a", "b", "residual", "bias"):
        if name in ("residual", "bias") and not s.draw.pick(f"has {name}", (False, True)):
            continue
        source = one_of(s, name, whole, other)
        chosen[name] = source.viewed(vector(s) if name == "bias" else matrix(s, name))
    if s.draw.pick("out is an operand", (False, False, True)):
        into = s.one_of([each for name, each in chosen.items() if name != "bias"])
        buffer_of_out = whole if into.shares(whole.array) else other
    else:
        into, buffer_of_out = whole.viewed(matrix(s, "out", ("plain", "plain", "transposed"))), whole
    shared = any(each.shares(into.array) for each in chosen.values()) or any(n < 0 for n in into.array.strides)
    shared = shared or needs_a_copy(chosen.get("residual"), into)
    exact = chosen["a"].host @ chosen["b"].host
    exact = exact + sum(chosen[name].host for name in ("bias", "residual") if name in chosen)
    a, b, *_ = given = {name: each.array for name, each in chosen.items()}
    more = {name: x for name, x in given.items() if name not in ("a", "b")}
    written(s, lambda: webmm.matmul(given[a], given[b], out=into.array, **more), into, exact, buffer_of_out, shared)


@step()
def c_of_gemm(s: Live) -> None:
    whole, other = buffer(s), buffer(s)
    a, b = (one_of(s, name, whole, other).viewed(matrix(s, name)) for name in "ab")
    c, beta = whole.viewed(matrix(s, "c")), s.draw.pick("beta", (0.0, 1.0, -1.0))
    exact = a.host @ b.host + beta * c.host
    shared = any(each.shares(c.array) for each in (a, b)) or any(n < 0 for n in c.array.strides)
    written(s, lambda: webmm.gemm(a.array, b.array, c.array, beta=beta), c, exact, whole, shared)


@step()
def assign_from_itself(s: Live) -> None:
    """Assign a view of an array to it."""
    values = s.whole((SIDE, SIDE), 2)
    whole = Pair(s.device.array(values), values.astype(np.float64))
    seen = whole.viewed(LOOKS[s.draw.pick("data is", tuple(LOOKS))])
    exact = seen.host.copy()

    def call() -> Any:
        s.device.assign(whole.array, seen.array)
        return whole.array

    written(s, call, whole, exact, whole, True)


@step()
def out_on_host(s: Live) -> None:
    """The same for NumPy arrays, which share memory in the same ways."""
    flat = s.whole((ROOM,), 2)
    a, b, residual, out = (matrix(s, name) for name in ("a", "b", "residual", "out"))
    exact = flat.astype(np.float64)
    exact_out = a(exact) @ b(exact) + residual(exact)
    got = webmm.matmul(a(flat), b(flat), residual=residual(flat), out=out(flat), device=s.device)
    out(exact)[...] = exact_out
    if got.base is not flat and got is not flat:
        raise AssertionError("the result is not out")
    s.compare(flat, exact, 0.0, s.dtype)


@step()
def out_of_live(s: Live) -> None:
    """Overwrite a live array, or a view of one, by a product of others."""
    found = [pair for pair in s.changeable() if pair.host.ndim == 2]
    found = [pair for pair in found if pair.array.strides[1] == 1 and pair.array.strides[0] > 0]
    if not found:
        return
    c, k = s.one_of(found), s.length("k")
    (m, n), largest = c.host.shape, LARGEST[s.dtype] // 4
    a, left = s.operand((m, k), largest // k, not_of=c)
    b, right = s.operand((k, n), largest // (k * max(1, np.abs(left).max())), not_of=c)
    a = a if isinstance(a, webmm.Array) else s.device.array(a)
    webmm.matmul(a, b, out=c.array)
    c.host[...] = left @ right
