"""Steps of sequences: arrays are made, looked at, overwritten, freed, dropped and read."""

from __future__ import annotations

import contextlib

import numpy as np
from live import BATCH, LARGEST, Live, Pair, step

import webmm
from webmm.errors import FreedArrayError, ProblemError

VIEWS = {
    "transposed": lambda x: x.T,
    "rows": lambda x: x[1:],
    "columns": lambda x: x[..., :-1],
    "reversed": lambda x: x[::-1],
    "columns reversed": lambda x: x[..., ::-1],
    "every second": lambda x: x[..., ::2],
    "every second from the end": lambda x: x[::-2],
    "one of a batch": lambda x: x[0] if len(x.shape) > 2 else x[None],
}


@step(often=2)
def new(s: Live) -> None:
    fresh = s.whole(s.any_shape())
    s.live.append(Pair(s.device.array(fresh), fresh.astype(np.float64)))
    s.given.append(fresh)


@step()
def zeros(s: Live) -> None:
    shape = s.shape()
    s.live.append(Pair(s.device.zeros(shape, s.dtype), np.zeros(shape)))


@step(often=2)
def view(s: Live) -> None:
    found = [pair for pair in s.live if pair.host.ndim >= 2]
    if found:
        seen = s.one_of(found).viewed(VIEWS[s.draw.pick("view", tuple(VIEWS))])
        if seen.host.size:
            s.live.append(seen)


@step()
def repeat(s: Live) -> None:
    found = [pair for pair in (*s.live, *s.shared) if pair.host.ndim == 2]
    if found:
        pair = s.one_of(found)
        shape = (BATCH, *pair.host.shape)
        # Not broadcast_to(), whose views NumPy does not write: a matrix of it is the array itself, and may be assigned.
        host = np.lib.stride_tricks.as_strided(pair.host, shape, (0, *pair.host.strides))
        s.live.append(Pair(pair.array.broadcast_to(shape), host, pair.tolerance))


@step()
def assign(s: Live) -> None:
    found = [pair for pair in s.changeable() if pair.array.contiguous and pair.array.size == pair.array.capacity]
    if not found:
        return
    target = s.one_of(found)
    data, values = s.operand(target.host.shape, LARGEST[s.dtype], not_of=target)
    s.device.assign(target.array, data)
    target.host[...] = values


@step()
def refused(s: Live) -> None:
    with contextlib.suppress(ProblemError):
        webmm.matmul(s.whole((3, 4)), s.device.array(s.whole((5, 6))))
        raise AssertionError("mismatched operands were accepted")


@step(often=2)
def free(s: Live) -> None:
    if s.live:
        gone = s.one_of(s.live)
        if any(pair.shares(gone.array) for pair in s.shared):  # a view of an array that other threads use
            return
        s.live = [pair for pair in s.live if not pair.shares(gone.array)]
        gone.array.free()
        with contextlib.suppress(FreedArrayError):
            gone.array.numpy()
            raise AssertionError("a freed array was accepted")


@step(often=3)
def drop(s: Live) -> None:
    if s.live:
        s.live.remove(s.one_of(s.live))


@step()
def read(s: Live) -> None:
    if s.live:
        pair = s.one_of(s.live)
        s.check(pair)
        if s.draw.pick("read and dropped", (False, True)):
            s.live.remove(pair)
