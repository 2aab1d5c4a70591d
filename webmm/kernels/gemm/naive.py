"""Stage 1: one invocation per element of C."""

from __future__ import annotations

from dataclasses import dataclass

from webmm.kernels.base import Kernel


@dataclass(frozen=True)
class Naive(Kernel):
    """One element of C per workgroup of one invocation."""

    name = "naive"
    summary = "one invocation per element, workgroups of 1"
