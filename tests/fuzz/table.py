"""The fuzzed ops: for each, a function that draws a problem, calls the op, and computes the expected result.

The functions draw arguments of the public calls, and return the result, the expected result in float64, and the allowed
rounding error. A row may restrict an op to some of `DEVICES`; by default it must support every problem on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from draw import Draw
from numpy.typing import NDArray
from poisoned import WRITABLE

import webmm
from webmm.arguments.attention import seen_by
from webmm.cases.attention import plain
from webmm.cases.attention_reference import Given
from webmm.dtypes import F32, dtype_of
from webmm.measure.verify import bound, product_bound, sum_bound
from webmm.problems.attention import dense_heads
from webmm.problems.gemm import gemm as gemm_problem
from webmm.problems.reduce import OPERATIONS
from webmm.problems.scheme import Scheme, reference
from webmm.wgsl.epilogues import ACTIVATIONS
from webmm.wgsl.expressions import reference as of_expression

# Limits by name, and Device.memory.
DEVICES: dict[str, Mapping[str, int]] = {
    "plain": {},
    "small bindings": {"max-storage-buffer-binding-size": 2**14},
    "least workgroups": {  # the limits guaranteed by WebGPU
        "max-compute-invocations-per-workgroup": 256,
        "max-compute-workgroup-size-x": 256,
        "max-compute-workgroup-storage-size": 2**14,
    },
    "little memory": {"memory": 2**15},
}
ALL = ("plain", "plain", *DEVICES)
ROUNDINGS = 6  # by alpha, bias, activation and residual, in addition to those of a sum
STEEPEST = 1.13  # largest slope of an activation

Result = tuple[Any, NDArray[Any], Any, str]  # result, expected result, allowed error, dtype


@dataclass(frozen=True)
class Row:
    """An op: the function that draws its problems, and the devices that must support all of them."""

    problem: Callable[[Draw], Result]
    devices: tuple[str, ...] = ALL


def matmul(draw: Draw) -> Result:
    dtype, (on_host, b_on_host) = draw.dtype(), _on_host(draw)
    out = draw.setting("out_dtype", [None, None, *draw.floats()])
    activation = draw.setting("activation", (None, None, *ACTIVATIONS))
    a_shape, b_shape, shape = _product_shapes(draw)
    a, left = draw.operand("a", draw.values(a_shape, dtype, special=not activation), on_host)
    b, right = draw.operand("b", draw.values(b_shape, dtype), b_on_host)
    rows, columns = shape[-2:] if a.ndim > 1 < b.ndim else (a.shape[-2], 1) if a.ndim > 1 else (1, b.shape[-1])
    columns = columns if b.ndim > 1 else 1
    result, alpha = out or dtype, draw.setting("alpha", (1.0, 1.0, -0.5, 3.0))
    settings: dict[str, Any] = {"alpha": alpha, "activation": activation, "out_dtype": out, "device": draw.device}
    exact, scale = _product(left, right, alpha)
    if (kind := draw.setting("bias", ("", "", "column", "row"))) and a.ndim > 1 < b.ndim:
        of = draw.setting("type of bias", (dtype, "float32"))
        settings["bias"], given = draw.operand(
            "bias", draw.values((columns,) if kind == "column" else (rows, 1), of), on_host
        )
        added = given.astype(dtype_of(dtype).numpy).astype(np.float64)
        exact, scale = exact + added, scale + np.abs(added)
    if activation:
        with np.errstate(all="ignore"):
            exact = ACTIVATIONS[activation].reference(exact)
    if draw.setting("residual", (False, False, True)):
        settings["residual"], added = draw.operand("residual", draw.values(shape, result), on_host)
        exact, scale = exact + added.astype(np.float64), scale + np.abs(added.astype(np.float64))
    if on_host and b_on_host and shape and draw.setting("out", (False, True)):
        settings["out"], _ = draw.operand("out", np.zeros(shape, dtype_of(result).numpy), True, WRITABLE, written=True)
    got = webmm.matmul(a, b, **settings)
    return got, exact, _product_error(a.shape[-1], scale, dtype, result, activation or ""), result


def gemm(draw: Draw) -> Result:
    dtype = draw.dtype()
    out = draw.setting("dtype of c", draw.floats())
    batch = draw.batch()
    m, n, k = (draw.size(name) for name in "mnk")
    a, left = draw.operand("a", draw.values((*_broadcasting(draw, "a", batch), m, k), dtype, special=True))
    b, right = draw.operand("b", draw.values((*_broadcasting(draw, "b", batch), k, n), dtype))
    alpha, beta = draw.setting("alpha", (1.0, 1.0, -2.0)), draw.setting("beta", (0.0, 1.0, -0.5))
    start = draw.values((*batch, m, n), out) if beta else np.full((*batch, m, n), np.nan, dtype_of(out).numpy)
    c, before = draw.operand("c", start, views=WRITABLE, written=True)
    exact, scale = _product(left, right, alpha)
    if beta:
        before = before.astype(np.float64)
        exact, scale = exact + beta * before, scale + np.abs(beta * before)
    got = webmm.gemm(a, b, c, alpha=alpha, beta=beta)
    return got, np.broadcast_to(exact, c.shape), _product_error(k, scale, dtype, out), out


def qmatmul(draw: Draw) -> Result:
    kinds, on_host = [draw.setting(f"type of {name}", ("uint8", "int8")) for name in "ab"], _on_host(draw)
    m, n, k = (draw.size(name) for name in "mnk")
    batch = draw.batch()
    batches = [_broadcasting(draw, name, batch) for name in "ab"]
    a, left = draw.operand("a", draw.integers((*batches[0], m, k), kinds[0]), on_host[0])
    b, right = draw.operand("b", draw.integers((*batches[1], k, n), kinds[1]), on_host[1])
    given: list[NDArray[Any]] = []
    for name, each, matrix, kind in zip("ab", batches, ((m, 1), (1, n)), kinds, strict=True):
        forms = ("one", "vector", "matrix", *["batch"] * bool(each))
        shapes = [
            {"one": (), "vector": (max(matrix),), "matrix": matrix, "batch": (*each, *matrix)}[
                draw.setting(f"{what} of {name}", forms) if max(matrix) > 1 else "one"
            ]
            for what in ("scales", "zeros")
        ]
        given.append(np.abs(draw.values(shapes[0], "float32")) + np.float32(0.1))
        given.append(draw.integers(shapes[1], kind).astype(np.int32))
    out = draw.setting("out_dtype", ("uint8", "int8", "int32", "float32", None))
    requantised = out in ("uint8", "int8") or (out is None and draw.setting("requantised", (False, True)))
    scale_c = draw.setting("scale_c", (40.0, 1000.0)) if requantised else None
    zero_c = draw.pick("zero_c", (None, 0, 5, 100)) if requantised else None
    bias = draw.integers((n,), "int16").astype(np.int32) if draw.setting("bias", (False, True)) else None
    result = out or (kinds[0] if requantised else "float32")
    whole = np.broadcast_shapes(*batches)
    exact = np.empty((*whole, m, n), dtype_of(result).numpy)
    for index in np.ndindex(*whole):
        x, y = (_matrix(each, whole, index) for each in (left, right))
        terms = (_matrix(each, whole, index) for each in given)
        scheme = Scheme(*(x.reshape(-1) if x.size != 1 else x.reshape(()) for x in terms), scale_c, zero_c or 0, bias)
        exact[index] = reference(x, y, scheme, dtype_of(result))
    got = webmm.qmatmul(a, b, *given, scale_c, zero_c, bias=bias, out_dtype=out, device=draw.device)
    return got, exact.astype(np.float64), 0.0, result


def dequantize(draw: Draw) -> Result:
    """Quantise and dequantise: the result is within half a step of the original."""
    dtype = draw.setting("dtype", ("uint8", "int8"))
    x = draw.values(tuple(draw.size(str(i), 65) for i in range(draw.setting("axes", (1, 2, 3)))), "float32")
    axis = draw.pick("axis", (None, *range(-x.ndim, x.ndim)))
    q, scale, zero = webmm.quantize(x, dtype, axis, draw.setting("symmetric", (False, True)))
    steps = scale if axis is None else np.moveaxis(scale.reshape(-1, *(1,) * (x.ndim - 1)), 0, axis)
    assert q.dtype == dtype
    allowed = np.broadcast_to(steps.astype(np.float64), x.shape) * 0.5 + 2 * F32.eps * np.abs(x)
    return webmm.dequantize(q, scale, zero, axis), x.astype(np.float64), allowed, "float32"


def qmatmul_weights(draw: Draw) -> Result:
    dtype, on_host = draw.dtype(), draw.setting("x on the host", (False, False, True))
    out = draw.setting("out_dtype", [None, *draw.floats()])
    bits, block = draw.setting("bits", (4, 8)), draw.setting("block", (32, 128))
    k, n = draw.size("k"), draw.size("n")
    shape = draw.setting("leading axes", (0, 1, 1, 2))
    x, values = draw.operand("x", draw.values((*(draw.size("m", 40) for _ in range(shape)), k), dtype), on_host)
    symmetric = draw.setting("symmetric", (False, True))
    weights = webmm.quantize_blocks(draw.values((k, n), "float32"), bits, block, symmetric=symmetric)
    exact, scale = _product(values, weights.dequantize(), 1.0)
    resident = weights.to(draw.device) if draw.setting("weights on the device", (False, True)) else weights
    got = webmm.qmatmul_weights(x, resident, out_dtype=out, device=draw.device)
    return got, exact, _product_error(k, scale, dtype, out or dtype, whole=False), out or dtype


def reduce(draw: Draw) -> Result:
    on_host, op = draw.setting("x on the host", (False, True)), draw.setting("op", [*OPERATIONS])
    dtype = "int32" if OPERATIONS[op].integers and draw.setting("int32", (False, False, True)) else draw.dtype()
    x, values = _reducible(draw, dtype, on_host, op)
    index = OPERATIONS[op].index
    axis = draw.pick("axis", (None, *range(-x.ndim, x.ndim)))
    if not index and x.ndim > 1 and draw.setting("several axes", (False, False, True)):
        axis = draw.pick("axes", ((0, -1), (-1, -2), tuple(range(x.ndim)), (x.ndim - 1,)))
    keepdims = draw.setting("keepdims", (False, True))
    out = "int32" if index or dtype == "int32" else draw.setting("out_dtype", draw.floats())
    wide = values.astype(np.int64 if dtype == "int32" else np.float64)
    over = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis % x.ndim,)
    count = int(np.prod([x.shape[i] for i in over]))
    with np.errstate(all="ignore"):
        exact, unit = _reduced(wide, op, axis, keepdims, count)
        allowed = (product_bound if op == "prod" else sum_bound)(count, dtype_of(out)) * unit
        if index or op in ("max", "min") or dtype == "int32":
            allowed = 0.0 if out in (dtype, "float32", "int32") else _rounding(exact, out)
    got = webmm.reduce(x, op, axis, keepdims, out_dtype=None if index else out, device=draw.device)
    return got, exact, allowed, out


def softmax(draw: Draw) -> Result:
    dtype, on_host = draw.dtype(), draw.setting("x on the host", (False, True))
    x, values = _array(draw, dtype, on_host)
    axis = draw.pick("axis", range(-x.ndim, x.ndim))
    wide = values.astype(np.float64)
    e = np.exp(wide - wide.max(axis, keepdims=True)) if wide.size else wide
    exact = e / e.sum(axis, keepdims=True) if e.size else e
    return (
        webmm.softmax(x, axis, device=draw.device),
        exact,
        _normalised_error(exact, x.shape[axis], dtype, axis),
        dtype,
    )


def layer_norm(draw: Draw) -> Result:
    return _norm(draw, "layer_norm")


def rms_norm(draw: Draw) -> Result:
    return _norm(draw, "rms_norm")


def gelu(draw: Draw) -> Result:
    dtype, on_host = draw.dtype(), draw.setting("x on the host", (False, True))
    x, values = _array(draw, dtype, on_host)
    approximate, kind = draw.setting("approximate", (False, True)), dtype_of(dtype)
    wide = values.astype(np.float64)
    name = "gelu_tanh" if approximate else "gelu"
    exact = ACTIVATIONS[name].reference(wide) if wide.size else wide
    allowed = (F32.exp_error + (kind.eps if kind != F32 else 0.0)) * (np.abs(wide) + kind.tiny / kind.eps)
    return webmm.gelu(x, approximate, device=draw.device), exact, allowed, dtype


def elementwise(draw: Draw) -> Result:
    expression, reals = draw.setting(
        "expression",
        (
            ("x + y", 2),
            ("x * s - y", 2),
            ("maximum(x, y) / (abs(x) + 1)", 2),
            ("where(x < y, x, -y)", 2),
            ("tanh(x)", 1),
        ),
    )
    dtype, on_host = draw.dtype(), draw.setting("on the host", (False, False, True))
    shape = tuple(draw.size(str(i), 33) for i in range(draw.setting("axes", (1, 2, 3, 4))))
    special = draw.setting("special", (False, True))
    x, left = draw.operand("x", draw.values(shape, dtype, special=special), on_host)
    operands, wide = {"x": x}, {"x": left.astype(np.float64)}
    if reals == 2:
        repeated = tuple(draw.setting(f"y repeats {i}", (n, n, 1)) if n else n for i, n in enumerate(shape))
        operands["y"], right = draw.operand("y", draw.values(repeated, dtype), on_host)
        wide["y"] = right.astype(np.float64)
    if " s " in expression:
        operands["s"] = wide["s"] = draw.pick("s", (2, 0.5, -3.0))
    exact = np.asarray(of_expression(expression, wide))
    terms = sum(np.abs(np.nan_to_num(each)) for each in wide.values())
    with np.errstate(all="ignore"):
        allowed = (F32.exp_error + dtype_of(dtype).eps) * (np.abs(exact) + 4 * terms + 1)
    return webmm.elementwise(expression, device=draw.device, **operands), exact, allowed, dtype


def attention(draw: Draw) -> Result:
    dtype, on_host = draw.dtype(), draw.setting("on the host", (False, False, True))
    batch, shared, group = (draw.setting(name, (1, 2)) for name in ("batch", "heads of k", "heads of q for each"))
    queries, keys = draw.size("queries", 33, empty=False), draw.size("keys", 65, empty=False)
    width, wide = (draw.setting(name, (1, 8, 24, 33, 64)) for name in ("width", "value width"))
    causal, softcap = draw.setting("causal", (False, True, "end")), draw.setting("softcap", (0.0, 0.0, 5.0))
    window = draw.setting("window", ((-1, -1), (-1, -1), (9, -1), (5, 2)))
    shapes = {"q": (shared * group, queries, width), "k": (shared, keys, width), "v": (shared, keys, wide)}
    drawn = {name: draw.operand(name, draw.values((batch, *of), dtype), on_host) for name, of in shapes.items()}
    if kind := draw.setting("mask", ("", "", "bool", "float32")):
        values = draw.values((batch, shared * group, queries, keys), "float32")
        drawn["mask"] = draw.operand("mask", values > 0 if kind == "bool" else values, on_host)
    if draw.setting("lengths", (False, False, True)):
        lengths = np.array([draw.pick("length", range(keys + 1)) for _ in range(batch)], np.int32)
        drawn["lengths"] = (lengths, lengths)
    seen, lengths = seen_by(causal, window), "lengths" in drawn
    problem = replace(
        plain((batch, shared * group, queries, keys, width), dtype_of(dtype)),
        **{"kv_heads": shared, "value_width": wide, "softcap": softcap, "left": seen.left, "right": seen.right},
        **{"shift": (0 if lengths else keys) - queries if seen.from_end else 0, "from_end": seen.from_end and lengths},
        **{"lengths": lengths, "mask_dtype": dtype_of(kind) if kind else None},
        mask=dense_heads(shared * group, queries, keys) if kind else None,
    )
    q, k, v = (drawn.pop(name) for name in "qkv")
    found = webmm.attention(
        *(q[0], k[0], v[0]),
        **{name: given for name, (given, _) in drawn.items()},
        **{"causal": causal, "softcap": softcap, "window": window, "device": draw.device},
    )
    held = {name: values for name, (_, values) in {"q": q, "k": k, "v": v, **drawn}.items()}
    return found, *Given(problem, held).all_rows(), dtype


def rotary(draw: Draw) -> Result:
    dtype, on_host = draw.dtype(), draw.setting("on the host", (False, False, True))
    tokens, pairs, of = draw.size("tokens", 33), draw.size("pairs", 33), draw.setting("type of cos", ("float32", dtype))
    x, values = draw.operand("x", draw.values((*draw.batch(), tokens, 2 * pairs), dtype), on_host)
    (cos, c), (sin, s) = (draw.operand(name, draw.values((tokens, pairs), of), on_host) for name in ("cos", "sin"))
    interleaved = draw.setting("interleaved", (False, True))
    shape = (*x.shape[:-1], pairs, 2) if interleaved else (*x.shape[:-1], 2, pairs)
    a, b = np.moveaxis(values.astype(np.float64).reshape(shape), -1 if interleaved else -2, 0)
    c, s = c.astype(np.float64), s.astype(np.float64)
    together = -1 if interleaved else -2
    exact = np.stack((a * c - b * s, b * c + a * s), together).reshape(x.shape)
    scale = np.stack((np.abs(a * c) + np.abs(b * s), np.abs(b * c) + np.abs(a * s)), together).reshape(x.shape)
    allowed = (2 * F32.eps + dtype_of(dtype).eps) * (scale + dtype_of(dtype).tiny)
    return webmm.rotary(x, cos, sin, interleaved, device=draw.device), exact, allowed, dtype


OPS = {
    "matmul": Row(matmul),
    "gemm": Row(gemm),
    "qmatmul": Row(qmatmul),
    "qmatmul_weights": Row(qmatmul_weights),
    "dequantize": Row(dequantize, ("plain",)),
    "reduce": Row(reduce),
    "softmax": Row(softmax),
    "layer_norm": Row(layer_norm),
    "rms_norm": Row(rms_norm),
    "gelu": Row(gelu),
    "elementwise": Row(elementwise),
    "attention": Row(attention),
    "rotary": Row(rotary),
}


def _product_shapes(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of a, b and a @ b: vectors, matrices, or broadcastable batches."""
    m, n, k = (draw.size(name) for name in "mnk")
    form = draw.setting("form", ("matrices", "matrices", "matrices", "row", "column", "vectors"))
    if form == "vectors":
        return (k,), (k,), ()
    batch = draw.batch()
    a, b = _broadcasting(draw, "a", batch), _broadcasting(draw, "b", batch)
    whole = np.broadcast_shapes(a, b)
    if form == "row":
        return (k,), (*b, k, n), (*b, n)
    if form == "column":
        return (*a, m, k), (k,), (*a, m)
    return (*a, m, k), (*b, k, n), (*whole, m, n)


def _broadcasting(draw: Draw, name: str, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return a batch that broadcasts to `batch`."""
    how = draw.setting(f"batch of {name}", ("whole", "whole", "ones", "none"))
    return () if how == "none" else tuple(1 if how == "ones" else n for n in batch)


def _on_host(draw: Draw) -> tuple[bool, bool]:
    """Return whether a (and the epilogue's operands) and b are on the host; the result is if both are."""
    return draw.setting("on the host", ((False, False), (False, False), (True, True), (True, True), (True, False)))


def _matrix(x: NDArray[Any], batch: tuple[int, ...], index: tuple[int, ...]) -> NDArray[Any]:
    """Return the matrix of `x` at `index` of the batch, or `x` if it has no batch axes."""
    return x if x.ndim <= 2 else np.asarray(np.broadcast_to(x, (*batch, *x.shape[-2:]))[index])


def _rounding(exact: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return the largest error of one rounding to `dtype`."""
    return np.asarray(dtype_of(dtype).eps * np.abs(exact) + dtype_of(dtype).tiny)


def _product(a: NDArray[Any], b: NDArray[Any], alpha: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return alpha·a @ b and its scale, |alpha|·|a| @ |b|, in float64."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        return alpha * (left @ right), abs(alpha) * (np.abs(left) @ np.abs(right))


def _product_error(
    k: int, scale: NDArray[Any], dtype: str, out: str, activation: str = "", whole: bool = True
) -> NDArray[Any]:
    """Return the allowed error of a product with its epilogue, stored as `out`."""
    problem = gemm_problem(1, 1, k + ROUNDINGS, dtype=dtype_of(dtype))
    share = bound(replace(problem, out_dtype=dtype_of(out)))
    if activation and activation != "relu":
        share = share * STEEPEST + F32.exp_error
    return np.asarray(share * (scale + dtype_of(out).tiny / (dtype_of(out).eps or 1)))


def _array(
    draw: Draw, dtype: str, on_host: bool, special: bool = False, empty: bool = True
) -> tuple[Any, NDArray[Any]]:
    """Return an operand of one to four axes."""
    return draw.operand("x", draw.values(_shape(draw, empty), dtype, special), on_host)


def _shape(draw: Draw, empty: bool) -> tuple[int, ...]:
    axes = draw.setting("axes", (1, 2, 2, 3, 4))
    most = {1: 200, 2: 200, 3: 65, 4: 17}[axes]
    return tuple(draw.size(str(i), most, empty) for i in range(axes))


def _reducible(draw: Draw, dtype: str, on_host: bool, op: str) -> tuple[Any, NDArray[Any]]:
    """Return an operand for an operation: any integers, values near 1 for products (no overflow), or any values."""
    empty = OPERATIONS[op].empty is not None
    if dtype == "int32":
        anything = draw.integers(_shape(draw, empty), dtype)
        return draw.operand(
            "x", anything | 1 if op == "prod" else anything, on_host
        )  # odd: products of even numbers would become 0
    if op == "prod":
        near = np.exp(draw.values(_shape(draw, empty), "float32") / 64)
        return draw.operand("x", near.astype(dtype_of(dtype).numpy), on_host)
    return _array(draw, dtype, on_host, special=op != "mean", empty=empty)


def _reduced(
    x: NDArray[Any], op: str, axis: Any, keepdims: bool, count: int
) -> tuple[NDArray[Any], NDArray[Any] | float]:
    """Return NumPy's result, and the unit of its allowed error."""
    magnitudes = np.abs(x)
    if op == "logsumexp":
        most = x.max(axis, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(most), most, 0)
        total = np.log(np.exp(x - shift).sum(axis, keepdims=True)) + shift
        exact = np.where(np.isfinite(most), total, most)
        exact = exact if keepdims else exact.reshape(np.sum(x, axis).shape)
        return np.asarray(exact), 8 + magnitudes.max(axis, keepdims=keepdims, initial=0)
    if op in ("argmax", "argmin"):
        return np.asarray(getattr(x, op)(axis, keepdims=keepdims)).astype(np.float64), 0.0
    if op in ("max", "min"):
        return np.asarray(getattr(x, op)(axis, keepdims=keepdims)), 0.0
    if x.dtype == np.int64:
        return np.asarray(getattr(x, op)(axis, keepdims=keepdims)).astype(np.int32).astype(np.float64), 0.0
    if op == "prod":
        product = np.asarray(x.prod(axis, keepdims=keepdims))
        return product, np.abs(product) + 2.0**-126
    total, scale = x.sum(axis, keepdims=keepdims), magnitudes.sum(axis, keepdims=keepdims) + 2.0**-126
    return (np.asarray(total), scale) if op == "sum" else (np.asarray(total) / np.float64(count), scale / max(count, 1))


def _normalised_error(y: NDArray[Any], length: int, dtype: str, axis: int = -1) -> NDArray[Any]:
    """Return the allowed error of normalised rows: two consecutive sums, and an exponential or a square root."""
    kind = dtype_of(dtype)
    share = 2 * sum_bound(length) + F32.exp_error + (kind.eps if kind != F32 else 0.0)
    return np.asarray(share * (np.abs(y).max(axis, keepdims=True, initial=0) + kind.tiny))


def _norm(draw: Draw, function: str) -> Result:
    dtype, on_host = draw.dtype(), draw.setting("x on the host", (False, True))
    x, values = _array(draw, dtype, on_host)
    eps, wide, length = draw.setting("eps", (1e-5, 1e-2)), values.astype(np.float64), x.shape[-1]
    settings: dict[str, Any] = {"eps": eps, "device": draw.device}
    if not wide.size:
        return getattr(webmm, function)(x, **settings), wide, 0.0, dtype
    centred = wide - wide.mean(-1, keepdims=True) if function == "layer_norm" else wide
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    exact = centred / spread
    # A mean has the rounding error of the largest element, which is then divided by the standard deviation.
    allowed = _normalised_error(exact, length, dtype) + sum_bound(length) * np.abs(wide).max(-1, keepdims=True) / spread
    if draw.setting("weight", (False, True)):
        settings["weight"], weight = draw.operand("weight", draw.values((length,), dtype), on_host)
        exact, allowed = exact * weight.astype(np.float64), allowed * np.abs(weight.astype(np.float64))
    if function == "layer_norm" and draw.setting("bias", (False, True)):
        settings["bias"], bias = draw.operand("bias", draw.values((length,), dtype), on_host)
        exact = exact + bias.astype(np.float64)
        allowed = allowed + (F32.eps + dtype_of(dtype).eps) * np.abs(bias.astype(np.float64))
    return getattr(webmm, function)(x, **settings), exact, allowed + dtype_of(dtype).tiny, dtype
