"""Steps of sequences: products of matrices, also of integers, quantised weights and float64, and of many small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from live import BATCH, LARGEST, SMALL, TOLERANCE, Live, step

import webmm
from webmm.wgsl.epilogues import ACTIVATIONS

MANY = 600  # matrices that take a launch each, more than a device keeps of one call; it takes long
SUBSCRIPTS = (
    *("ij,jk->ik", "ij,kj->ki", "bij,bjk->bik", "bij,jk->bik", "...ij,...jk->...ik", "ij,ij->", "ij,ij->j", "i,j->ij"),
    *("ij->ji", "ij->j", "bij->bj", "bij->i", "ij,j", "bij,bij->bji"),
)


def factors(s: Live, a: tuple[int, ...], b: tuple[int, ...], terms: int, **more: Any) -> Any:
    """Return operands of these shapes, of whose products `terms` can be added exactly, and their values."""
    largest = LARGEST[more.get("dtype", s.dtype)] // 4
    x, left = s.operand(a, largest // terms, **more)
    y, right = s.operand(b, largest // (terms * max(1, np.abs(left).max())), **more)
    return x, y, left, right


@step(often=6)
def matmul(s: Live) -> None:
    (m, n), k, batch = s.shape(), s.length("k"), s.draw.pick("batch", ((), (), (BATCH,)))
    shared = s.draw.pick("batch of b", ((), batch))
    a, b, left, right = factors(s, (*batch, m, k), (*shared, k, n), k)
    exact, settings, largest = left @ right, {}, LARGEST[s.dtype] // 4
    if s.draw.setting("bias", (False, False, True)):
        settings["bias"], added = s.operand((n,), largest)
        exact = exact + added
    if s.draw.setting("activation", (False, False, True)):
        settings["activation"], exact = "relu", ACTIVATIONS["relu"].reference(exact)
    if s.draw.setting("residual", (False, False, True)):
        settings["residual"], added = s.operand(exact.shape, largest)
        exact = exact + added
    s.keep(webmm.matmul(a, b, device=s.device, **settings), exact)


@step(often=3)
def gemm(s: Live) -> None:
    found = [pair for pair in s.changeable() if pair.host.ndim >= 2 and pair.largest <= LARGEST[s.dtype] // 4]
    found = [pair for pair in found if 1 in pair.array.strides[-2:] and min(pair.array.strides) > 0]
    if not found:
        return
    c, k = s.one_of(found), s.length("k")
    *batch, m, n = c.host.shape
    a, b, left, right = factors(s, (*batch, m, k), (k, n), k, not_of=c)
    beta = s.draw.pick("beta", (0.0, 1.0, -1.0))
    webmm.gemm(*(x if isinstance(x, webmm.Array) else s.device.array(x) for x in (a, b)), c.array, beta=beta)
    c.host[...] = left @ right + beta * c.host


@step(often=2)
def einsum(s: Live) -> None:
    subscripts = s.draw.pick("subscripts", SUBSCRIPTS)
    terms, _, result = subscripts.partition("->")
    lengths = {letter: BATCH if letter == "b" else s.length(letter) for letter in sorted({*terms} - {",", "."})}
    shapes = [tuple(lengths[letter] for letter in term.replace("...", "")) for term in terms.split(",")]
    shapes = [(BATCH, *shape) if "." in term else shape for term, shape in zip(terms.split(","), shapes, strict=True)]
    count = int(np.prod([n for letter, n in lengths.items() if letter not in result]))
    if len(shapes) == 2:
        x, y, *values = factors(s, *shapes, count)
        given: Any = (x, y)
    else:
        x, *values = s.operand(shapes[0], LARGEST[s.dtype] // count)
        given = (x,)
    s.keep(webmm.einsum(subscripts, *given, device=s.device), np.einsum(subscripts, *values))


@step()
def many_products(s: Live) -> None:
    """Products of matrices that lie apart: a launch each."""
    host = s.whole((s.draw.pick("matrices", (5, 5, 5, MANY)), 3, 2, 2), 1)
    a, b = s.device.array(host)[:, ::2], s.device.array(host[:, :2].copy())
    s.keep(a @ b, host[:, ::2].astype(np.float64) @ host[:, :2].astype(np.float64))


@step()
def float64(s: Live) -> None:
    """Numbers that float32 cannot hold."""
    (m, n), k = s.shape(), s.length("k")
    given, values = [], []
    for shape in ((m, k), (k, n)):
        x = s.draw.whole(shape, 2**12).astype(np.float64) * 2**12 + s.draw.whole(shape, 2**8)
        given.append(s.device.array(x) if s.draw.pick("on the device", (False, True)) else x)
        values.append(x.copy())
    s.given += [x for x in given if isinstance(x, np.ndarray)]
    s.keep(webmm.matmul(*given, device=s.device), values[0] @ values[1])


@step()
def qmatmul(s: Live) -> None:
    (m, n), k = s.shape(), s.length("k")
    a, b = s.draw.integers((m, k), "uint8"), s.draw.integers((k, n), "int8")
    zeros = s.draw.integers((m,), "uint8")
    exact = (a.astype(np.int64) - zeros[:, None]) @ (b.astype(np.int64) - 3)
    x = s.device.array(a) if s.draw.pick("a on the device", (False, True)) else a
    s.given += [a, b, zeros]
    got = webmm.qmatmul(x, b, 1.0, zeros, 1.0, 3, out_dtype="int32", device=s.device)
    s.keep(got, exact)


@step()
def qmatmul_weights(s: Live) -> None:
    k, n = s.shape()
    x, values = s.operand((s.length("rows of x"), k), SMALL)
    weights = webmm.quantize_blocks(s.draw.whole((k, n), 2), s.draw.pick("bits", (4, 8)))
    exact = values @ weights.dequantize().astype(np.float64)
    given = weights.to(s.device) if s.draw.pick("weights on the device", (False, True)) else weights
    s.given += [part for part in weights.parts if isinstance(part, np.ndarray)]
    s.keep(webmm.qmatmul_weights(x, given, device=s.device), exact, TOLERANCE[s.dtype])
    given.free()
