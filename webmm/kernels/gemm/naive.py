"""One invocation per element of C, in workgroups of one."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.gemm.base import GemmKernel


@dataclass(frozen=True)
class Naive(GemmKernel):
    """One element of C per workgroup of one invocation."""

    name = "naive"
    follows = ""
    summary = "one invocation per element, workgroups of 1"

    @property
    def register_tile(self) -> tuple[int, int]:
        """One element."""
        return 1, 1
