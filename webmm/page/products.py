"""The steps of `matmul()` on the page, where products in host memory are cut into pieces; Python streams large ones.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webmm.arguments.arrays import element_of
from webmm.arguments.products import bias_kind, shape_with
from webmm.calls.executor import Data, labelled
from webmm.calls.operands import Temporaries
from webmm.calls.pieces import in_pieces
from webmm.calls.product import in_matrices, multiplied
from webmm.calls.sides import is_resident
from webmm.cut.streams import BATCH
from webmm.dtypes import DType
from webmm.engine.device import Array
from webmm.problems.gemm import gemm
from webmm.wgsl.epilogues import Terms
from webmm.wgsl.own import Epilogue


def matrix_product(
    call: Temporaries,
    a: Data,
    b: Data,
    bias: Data | None,
    residual: Data | None,
    function: Epilogue,
    alpha: float,
    precision: str,
    out_dtype: DType | None,
) -> Data:
    """Return the product of two arrays with its other terms; `function` is the activation, with its values."""
    shape, dtype = shape_with(a, b, bias, residual, function.operands), out_dtype or element_of(a)
    gemm(1, 1, 1, dtype=element_of(a), out_dtype=dtype, precision=precision)  # raises for what is unsupported
    result = call.result(shape, dtype, a, b, bias, residual, *function.operands)
    beta = 0.0 if residual is None else 1.0
    given = replace(Terms(), alpha=alpha, beta=beta, bias=bias_kind(bias))
    terms = replace(given, activation=function.name, values=function.numbers)
    x, y, c, added, *operands = in_matrices(a, b, (result, residual, *function.operands), len(shape))
    if is_resident(c):
        multiplied(call, x, y, c, bias, added, terms, precision, operands)
    elif c.size:
        _in_pieces(call, x, y, c, bias, added, terms, precision, operands)
    return result


def _in_pieces(
    call: Temporaries,
    a: Data,
    b: Data,
    c: Data,
    bias: Data | None,
    residual: Data | None,
    terms: Terms,
    precision: str,
    operands: Sequence[Data],
) -> None:
    """As `multiplied()`, of arrays in host memory."""

    def compute(a: Array, b: Array, *others: Array) -> None:
        *more, c = others
        given = iter(more)
        added = None if bias is None else next(given)
        before = None if residual is None else next(given)
        multiplied(call, a, b, c, added, before, terms, precision, list(given))

    given = [x for x in (bias, residual, *operands) if x is not None]
    cut = [labelled(a, BATCH + "mk"), labelled(b, BATCH + "kn"), *(labelled(x, BATCH + "mn") for x in given)]
    in_pieces(call, compute, cut, labelled(c, BATCH + "mn", anywhere=False), BATCH + "mn")
