"""The precision and epilogue of a product, as the variant of op gemm names them."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.problems.gemm import PRECISIONS, Gemm
from webmm.wgsl.epilogues import ACTIVATIONS


@dataclass(frozen=True)
class Finish:
    """The precision and epilogue in a variant, which has some of these parts: high+bias-column+gelu+to-float16."""

    precision: str = PRECISIONS[0]
    bias: str = ""
    activation: str = ""
    out_dtype: str = ""

    @classmethod
    def parse(cls, variant: str) -> Finish | None:
        """Return the parsed variant, or None if it is invalid."""
        words = variant.split("+")
        found = cls(
            next((word for word in words if word in PRECISIONS), PRECISIONS[0]),
            next((kind for kind in ("row", "column") if f"bias-{kind}" in words), ""),
            next((word for word in words if word in ACTIVATIONS), ""),
            next((word.removeprefix("to-") for word in words if word.startswith("to-")), ""),
        )
        return found if str(found) == variant else None

    @classmethod
    def of(cls, p: Gemm) -> Finish:
        """Return the precision and epilogue of a problem."""
        return cls(p.precision, p.bias, p.activation, p.out_dtype.name if p.out_dtype != p.dtype else "")

    def __str__(self) -> str:
        precision = self.precision if self.precision != PRECISIONS[0] else ""
        parts = (
            precision,
            self.bias and f"bias-{self.bias}",
            self.activation,
            self.out_dtype and f"to-{self.out_dtype}",
        )
        return "+".join(part for part in parts if part)
