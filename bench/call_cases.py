"""The cases of `calls.py`: everyday ones, those in which the call takes longer than its kernel, and matrix units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx_peer import Model
from whole_numbers import whole_numbers

import webmm
from webmm import BlockWeights
from webmm.engine.device import Array

SMALL = (64, 256)
LENGTH = 100  # products in the chain
SHORT = {"float32": "f32", "float16": "f16"}


@dataclass(frozen=True)
class Case:
    """A call on operands, with its equivalents in NumPy (for part of the result), PyTorch and ONNX.

    Everyday cases have a `group`. `numpy` returns the elements of the result at the index `part`; they may differ by
    `tolerance`, a fraction of the largest.
    """

    name: str
    operands: list[Any]
    call: Callable[..., Any]
    group: str = ""
    numpy: Callable[..., NDArray[Any]] | None = None
    part: Any = (slice(0, 2),)
    tolerance: float = 0.0
    torch: Callable[..., Any] | None = None
    dense: list[NDArray[Any]] = field(default_factory=list)  # PyTorch's operands, if they differ
    onnx: tuple[Model, ...] = ()
    into: str = ""  # the dtype of an output array that the call takes as its last argument
    steps: int = 1  # products in a call
    on_host: bool = False  # operands and result are NumPy arrays
    graph: bool = True  # whether a CUDA graph can capture it


def product(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str, group: str = "") -> Case:
    """Return `A @ B`."""
    a, b = (whole_numbers(dtype, *shape) for shape in shapes)
    result = (dtype, (*a.shape[:-1], b.shape[-1]))
    model = Model(("MatMul",), tuple((dtype, shape) for shape in shapes), result)
    top = (slice(0, 1), slice(0, 2)) if a.ndim == 3 else slice(0, 2)
    numpy = lambda a, b: a[top].astype(np.float64) @ b[: 1 if b.ndim == 3 else None].astype(np.float64)  # noqa: E731
    multiplied = lambda a, b: a @ b  # noqa: E731
    return Case(f"{name} {SHORT[dtype]}", [a, b], multiplied, group, numpy, top, 1e-3, multiplied, onnx=(model,))


def square(n: int, dtype: str, group: str = "") -> Case:
    """Return `A @ B` of square matrices."""
    return product(f"A @ B {n}³", ((n, n), (n, n)), dtype, group)


def transposed(case: Case) -> Case:
    """Return a product with its second operand transposed, without a peer in ONNX."""

    def swapped(multiply: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b: multiply(a, b.T)

    assert case.numpy
    assert case.torch
    a, b = case.operands
    return replace(
        case,
        name=f"{case.name}, nt",
        operands=[a, np.ascontiguousarray(b.T)],
        call=swapped(case.call),
        numpy=swapped(case.numpy),
        torch=swapped(case.torch),
        dense=[],
        onnx=(),
    )


@cache
def blocks(k: int, n: int, block: int) -> tuple[BlockWeights, NDArray[np.float32]]:
    """Return 4-bit weights and their dequantized values."""
    words = whole_numbers("uint32", n, k // 8) * np.uint32(0x01234567)
    scales, zeros = np.full((n, k // block), 0.125, np.float32), np.full((n, k // block), 8, np.uint8)
    weights = BlockWeights((k, n), 4, block, words, scales, zeros)
    return weights, weights.dequantize()


def weights(m: int, n: int, block: int, dtype: str, group: str = "") -> Case:
    """Return a product with square 4-bit weights; the peer may round x to 8 bits, if that is its fastest mode."""
    x, (packed, dense) = whole_numbers(dtype, m, n), blocks(n, n, block)
    operands = ((dtype, (m, n)), ("uint8", (n, n // block, block // 2)), (dtype, (n, n // block)))
    settings = {"K": n, "N": n, "bits": 4, "block_size": block}
    models = [
        Model(("MatMulNBits",), operands, (dtype, (m, n)), {**settings, "accuracy_level": level}) for level in (0, 4)
    ]
    return Case(
        f"qmatmul_weights {m}×{n}×{n} block {block} {SHORT[dtype]}",
        [x, packed],
        webmm.qmatmul_weights,
        group,
        lambda x, w: x[:2].astype(np.float32) @ dense,
        tolerance=1e-2,
        torch=lambda x, w: x @ w,
        dense=[x, dense.astype(dtype)],
        onnx=tuple(models),
    )


def integers(n: int, group: str = "") -> Case:
    """Return a product of uint8 and int8 with an int32 result; PyTorch's counterpart takes int8 only."""
    a, b = whole_numbers("uint8", n, n), whole_numbers("int8", n, n)
    operands = (("uint8", (n, n)), ("int8", (n, n)))
    models = (
        Model(("MatMulInteger",), operands, ("int32", (n, n))),
        Model(("MatMul",), operands, ("float32", (n, n)), dequantized=True),
    )
    return Case(
        f"qmatmul {n}³ uint8 × int8",
        [a, b],
        lambda a, b: webmm.qmatmul(a, b, 1.0, 0, 1.0, 0, out_dtype="int32"),
        group,
        lambda a, b: a[:2].astype(np.float64) @ b.astype(np.float64),
        torch=int_mm,
        dense=[a.astype(np.int8), b],
        onnx=models,
    )


def int8(n: int, into: str) -> Case:
    """Return a product of int8 with a float32 result, or with int8, requantised; PyTorch's result is int32."""
    a, b = (whole_numbers("int8", n, n) for _ in range(2))
    scale = 8.0 if into == "int8" else 1.0
    rounded = (scale, 0) if into == "int8" else ()

    def in_numpy(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        sums = a[:2].astype(np.float64) @ b.astype(np.float64)
        return np.clip(np.floor(sums / scale + 0.5), -128, 127) if into == "int8" else sums  # halves round up

    call = lambda a, b: webmm.qmatmul(a, b, 1.0, 0, 1.0, 0, *rounded)  # noqa: E731
    return Case(f"qmatmul {n}³ int8 to {into}", [a, b], call, numpy=in_numpy, torch=int_mm)


def high(n: int) -> Case:
    """Return a float32 product with precision "high"; that of the peers is float32's own."""
    case = square(n, "float32")
    call = lambda a, b: webmm.matmul(a, b, precision="high")  # noqa: E731
    return replace(case, name=f"matmul {n}³ f32, high", call=call, onnx=())


def int_mm(a: Any, b: Any) -> Any:
    """Return PyTorch's product of int8 matrices."""
    import torch

    return torch._int_mm(a, b)


def bias_gelu(n: int, group: str = "") -> Case:
    """Return a product with a bias and GELU."""
    a, b, bias = (whole_numbers("float32", *shape) for shape in ((n, n), (n, n), (n,)))

    def in_torch(a: Any, b: Any, bias: Any) -> Any:
        import torch

        return torch.nn.functional.gelu(torch.addmm(bias, a, b))

    operands = tuple(("float32", x.shape) for x in (a, b, bias))
    return Case(
        f"bias and GELU {n}³ f32",
        [a, b, bias],
        lambda a, b, bias: webmm.matmul(a, b, bias=bias, activation="gelu"),
        group,
        lambda a, b, bias: np.vectorize(gelu)(a[:2].astype(np.float64) @ b + bias),
        tolerance=1e-3,
        torch=in_torch,
        onnx=(
            Model(("Gemm", "Gelu"), operands, ("float32", (n, n))),
            Model(("MatMul", "BiasGelu"), operands, ("float32", (n, n)), late=1),
        ),
    )


def gelu(x: float) -> float:
    """Return x·Φ(x)."""
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def softmax(n: int, group: str = "") -> Case:
    """Return the softmax of each row."""

    def in_numpy(x: NDArray[Any]) -> NDArray[Any]:
        powers = np.exp(x[:2].astype(np.float64))
        return powers / powers.sum(1, keepdims=True)

    of = ("float32", (n, n))
    x, model = whole_numbers(*of[:1], n, n), Model(("Softmax",), (of,), of, {"axis": -1})
    in_torch = lambda x: x.softmax(-1)  # noqa: E731
    return Case(f"softmax {n}² f32", [x], webmm.softmax, group, in_numpy, tolerance=1e-3, torch=in_torch, onnx=(model,))


def layer_norm(n: int, group: str = "") -> Case:
    """Return the layer norm of each row, with weights and a bias."""

    def in_numpy(x: NDArray[Any], w: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        rows = x[:2].astype(np.float64)
        return (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5) * w + b

    def in_torch(x: Any, w: Any, b: Any) -> Any:
        import torch

        return torch.nn.functional.layer_norm(x, x.shape[-1:], w, b)

    x, w, b = (whole_numbers("float32", *shape) for shape in ((n, n), (n,), (n,)))
    operands = tuple(("float32", x.shape) for x in (x, w, b))
    model = Model(("LayerNormalization",), operands, operands[0], {"epsilon": 1e-5})
    return Case(
        f"layer norm {n}² f32",
        *([x, w, b], webmm.layer_norm, group, in_numpy),
        tolerance=1e-3,
        torch=in_torch,
        onnx=(model,),
    )


def row_sums(n: int, group: str = "") -> Case:
    """Return the sum of each row."""
    x = whole_numbers("float32", n, n)
    model = Model(("ReduceSum",), (("float32", (n, n)),), ("float32", (n,)), {"keepdims": 0}, (1,))
    call, in_torch = (lambda x: webmm.reduce(x, "sum", 1)), (lambda x: x.sum(1))
    return Case(f"row sums {n}² f32", [x], call, group, lambda x: x[:2].sum(1), torch=in_torch, onnx=(model,))


def everyday(sized: Callable[[int], int]) -> Iterator[Case]:
    """Yield the 29 everyday cases, with their sizes scaled by `sized`."""
    for dtype in ("float32", "float16"):
        for n in (512, 1024, 2048, 4096):
            yield square(sized(n), dtype, SHORT[dtype])
        for block in (32, 128):
            for m in (1, 32, 1024):
                yield weights(sized(m), sized(4096), block, dtype, SHORT[dtype])
    for n in (1024, 2048, 4096):
        yield integers(sized(n), "integers")
    yield product("64 × 512³", ((64, sized(512), sized(512)),) * 2, "float32", "f32")
    yield from (bias_gelu(sized(n), "f32") for n in (2048, 4096))
    yield from (of_rows(sized(8192), "f32") for of_rows in (softmax, layer_norm, row_sums))


def small(n: int) -> Iterator[Case]:
    """Yield a case of each op at a size where the call takes longer than its kernel."""
    by_operator = square(n, "float32")
    yield by_operator
    yield replace(by_operator, name=f"matmul {n}³ f32", call=webmm.matmul)
    yield replace(by_operator, name=f"gemm {n}³ f32", call=webmm.gemm, into="float32")
    yield from (of_rows(n) for of_rows in (row_sums, softmax, integers))
    yield weights(n, n, 32, "float32")


def others(sized: Callable[[int], int]) -> Iterator[Case]:
    """Yield small calls, large results, a readback, products from NumPy to NumPy, and a chain of products."""
    for n in SMALL:
        yield from small(n)
    n, m = sized(8192), sized(2048)
    yield product(f"{n}×{n}×64", ((n, 64), (64, n)), "float32")
    yield product(f"32 × ({m}×{m}×64)", ((32, m, 64), (32, 64, m)), "float32")
    yield replace(
        square(64, "float32"),
        name="64³ f32, an element read",
        call=lambda a, b: float((a @ b)[0, 0].numpy()),
        numpy=None,
        torch=lambda a, b: (a @ b)[0, 0].item(),
        onnx=(),
        graph=False,
    )
    for n in (64, sized(1024)):
        yield replace(
            square(n, "float32"),
            name=f"NumPy to NumPy {n}³ f32",
            call=webmm.matmul,
            torch=lambda a, b: (a.cuda() @ b.cuda()).cpu(),
            onnx=(),
            on_host=True,
            graph=False,
        )
    yield chain(sized(256))


def chain(n: int) -> Case:
    """Return a chain of products, each of which needs the previous result, with a bias and GELU."""

    def in_webmm(x: Array, w: Array, bias: Array) -> Array:
        for _ in range(LENGTH):
            x = webmm.matmul(x, w, bias=bias, activation="gelu")
        return x

    def in_torch(x: Any, w: Any, bias: Any) -> Any:
        import torch

        for _ in range(LENGTH):
            x = torch.nn.functional.gelu(torch.addmm(bias, x, w))
        return x

    x, w, bias = (whole_numbers("float32", *shape) for shape in ((n, n), (n, n), (n,)))
    operands = [x, w / np.float32(32), bias]
    return Case(f"a product of {LENGTH}, {n}³ f32", operands, in_webmm, torch=in_torch, steps=LENGTH, graph=False)


def on_matrix_units(sized: Callable[[int], int]) -> Iterator[Case]:
    """Yield products in float16, in float32 with precision "high", and in int8."""
    for n in (1024, 2048, 4096):
        yield square(sized(n), "float16")
    yield product("64 × 512³", ((64, sized(512), sized(512)),) * 2, "float16")
    m, n = sized(512), sized(4096)
    yield transposed(product(f"A @ B {m}×{n}×{n}", ((m, n), (n, n)), "float16"))
    yield from (high(sized(n)) for n in (2048, 4096, 8192))
    for into in ("float32", "int8"):
        yield (case := int8(sized(4096), into))
        yield transposed(case)
