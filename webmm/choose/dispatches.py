"""The dispatches of a floating-point matrix product of arrays on a device. The module is in the translated subset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webmm.arguments.arrays import Strided, element_of
from webmm.arguments.products import batch_axes, problem_of, problems, row_major
from webmm.choose.gemm import pieces
from webmm.choose.limits import dispatch_limits
from webmm.dtypes import DType
from webmm.engine.device import Device
from webmm.problems.gemm import Gemm
from webmm.wgsl.epilogues import Terms


@dataclass(frozen=True)
class Dispatch:
    """A problem and its arrays, of which None is the call's array for `size` partial sums over k, of type `sums`."""

    problem: Gemm
    arrays: list[Any]
    size: int
    sums: DType


def product_dispatches(
    arrays: tuple[Any, Any, Any],
    bias: Strided | None,
    epilogue: Terms,
    precision: str,
    operands: Sequence[Any],
    device: Device,
) -> Iterator[Dispatch]:
    """Yield the dispatches of c ← epilogue(a @ b), for `arrays` a, b and c.

    They have equal batches, kernels can read a and b, and `operands`, those of the epilogue, have the shape of c.
    """
    a, b, c, kind = row_major(*arrays, epilogue.bias)
    over = [x if c is arrays[2] else x.mT for x in operands]
    offset = 0 if bias is None else bias.offset
    first = problem_of(a, b, c, offset, replace(epilogue, bias=kind), precision, *over)
    limits = dispatch_limits(device, element_of(a))
    for problem in problems(first, batch_axes(a, b, c, *over)):
        for piece in pieces(problem, device, limits):
            into = None if piece.apart and not piece.last else c
            added = None if piece.apart and piece.last else bias
            more = [*([added] if piece.problem.bias else []), *(over if piece.problem.spreads else [])]
            yield Dispatch(piece.problem, [a, b, into, *more], piece.problem.m * piece.problem.n, problem.dtype.sums)
