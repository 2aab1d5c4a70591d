"""The ops: what each computes is a `Problem`, how it is computed its kernels; here is what a bench needs besides."""

from __future__ import annotations

from typing import Any

from webmm.cases.base import Op
from webmm.cases.elementwise import ElementwiseOp
from webmm.cases.gemm import GemmOp
from webmm.cases.normalise import NormaliseOp
from webmm.cases.quantized import QuantizedOp
from webmm.cases.reduce import ReduceOp
from webmm.cases.weights import WeightsOp
from webmm.errors import ConfigError

OPS: dict[str, Op[Any]] = {
    op.name: op for op in (GemmOp(), QuantizedOp(), WeightsOp(), ReduceOp(), NormaliseOp(), ElementwiseOp())
}


def op_of(name: str) -> Op[Any]:
    """Return the op called `name`, or NAME:VARIANT; raises ConfigError for an unknown one, listing those that exist."""
    name, colon, variant = name.partition(":")
    if name not in OPS:
        raise ConfigError(f"unknown op {name!r}; choose from {', '.join(OPS)}")
    op = OPS[name]
    if not colon:
        return op
    if variant not in op.variants:
        raise ConfigError(f"unknown variant {variant!r} of op {name}; choose from {', '.join(op.variants) or 'none'}")
    return type(op)(variant)
