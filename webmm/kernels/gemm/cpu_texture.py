"""As `cpu_lanes`, with B in a texture, which CPU adapters read a vector register at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from webmm.kernels.base import Scratch, Texture
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.lane_tiles import INNER
from webmm.kernels.traffic import Traffic
from webmm.problems.gemm import Gemm

DEPTH = 8192  # rows of B per layer: the texture size that every device supports
NAME = "b_texture"


@dataclass(frozen=True)
class PackB(GemmKernel):
    """Copy B into a texture: texel (x, y) of a layer is B[y, 4x..4x+3] in f32, zero below the last row."""

    name = "pack_b"
    summary = "a copy of B in a texture"
    single_k = False
    doubles = False
    b_vector_axis = "n"
    binds = ("b", NAME)
    writes = NAME

    @property
    def depth(self) -> int:
        """Rows of B per layer."""
        return DEPTH

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Texels along x and y."""
        return (8, 8, 1)

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the texture: a texel per four columns, with rows beyond DEPTH in further layers."""
        rows, layers = -(-problem.k // INNER) * INNER, -(-problem.k // DEPTH)
        return (Texture(NAME, -(-problem.n // 4), min(rows, DEPTH), layers * problem.batch),)

    def scratch_rule(self, problem: Gemm) -> dict[str, Any]:
        """Return the rule of the texture's size."""
        del problem
        rows, layers = f"min({INNER} * ceil(k / {INNER}), {DEPTH})", f"ceil(k / {DEPTH}) * batch"
        return {NAME: {"width": "ceil(n / 4)", "height": rows, "layers": layers}}

    def dispatch(self, problem: Gemm) -> tuple[int, int, int]:
        """Return workgroup counts: an invocation per texel."""
        x, y, _ = self.workgroup_size
        return -(-problem.n // (4 * x)), -(-(-(-problem.k // INNER) * INNER) // y), problem.batch

    def grid_rule(self, spec: Specialisation) -> dict[str, Any]:
        """Return the rule of `dispatch`."""
        del spec
        x, y, _ = self.workgroup_size
        across, down = f"ceil(n / {INNER * x})", f"ceil({INNER} * ceil(k / {INNER}) / {y})"
        return {"x": across, "y": down, "z": "batch", "rule": f"dispatch ({across}, {down}, batch)"}

    def traffic(self, problem: Gemm) -> Traffic:
        """Count an invocation: it copies a texel."""
        p, vec_b = problem, problem.by_fours[1]
        moved = p.k * p.n * p.batch * p.dtype.itemsize
        return Traffic(
            workgroups=math.prod(self.dispatch(p)),
            invocations=self.invocations,
            steps=1,
            fmas=0,
            vector_loads=vec_b,
            scalar_loads=4 * (not vec_b),
            loaded=4 * p.dtype.itemsize * self.invocations,
            read=moved,
            written=4 * moved // p.dtype.itemsize,
            vector_stores=1,
        )

    def iterations(self, problem: Gemm) -> int:
        """Return 0: it has no loop."""
        del problem
        return 0


@dataclass(frozen=True)
class CpuTexture(CpuLanes):
    """As `cpu_lanes`; every call first copies B to a texture, since B may have changed."""

    name = "cpu_texture"
    follows = "cpu_lanes"
    summary = "for CPU adapters: B in a texture"
    doubles = False  # a texture holds f32
    binds = ("a", NAME, "c", "bias")

    def of_b(self, problem: Gemm) -> tuple[float, float]:
        """Return the vec4 of B that an invocation loads from the texture in a step."""
        del problem
        return self.tn, 0

    @property
    def before(self) -> tuple[GemmKernel, ...]:
        """The dispatch that copies B to the texture."""
        return (PackB(),)

    @property
    def depth(self) -> int:
        """Rows of B per layer."""
        return DEPTH

    def scratch(self, problem: Gemm) -> tuple[Texture | Scratch, ...]:
        """Return the texture of B."""
        return PackB().scratch(problem)

    def scratch_rule(self, problem: Gemm) -> dict[str, Any]:
        """Return the rule of the texture's size."""
        return PackB().scratch_rule(problem)
