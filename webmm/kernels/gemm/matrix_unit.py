"""Beyond the ladder: products of whole fragments, on the matrix units of a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from webmm.dtypes import F16, FLOATS
from webmm.kernels.base import Binding, Capabilities, MatrixShape, tunable
from webmm.kernels.gemm.base import GemmKernel, Specialisation
from webmm.kernels.product import Grid
from webmm.problem import Gemm

CHUNK = 8  # float16 that a lane moves at once: 16 bytes
# An H200 runs two workgroups at once on a multiprocessor up to here, and one from 24,576 bytes on: with A and B both
# along k, C in workgroup memory, too, reads 158 TFLOP/s at 4096³, fragments that go straight to storage 272.
ROOM = 23_552


@dataclass(frozen=True)
class MatrixUnit(GemmKernel):
    """(sm, sn) of C per subgroup, in fragments that a matrix unit multiplies, out of a (bm, bn) tile per workgroup."""

    name = "matrix_unit"
    summary = "float16 fragments on matrix units, tiles staged in workgroup memory"
    a_vector_axis = "any"
    b_vector_axis = "any"
    vector = CHUNK

    bm: int = tunable(128, (32, 64, 128, 256), "rows of C per workgroup")
    bn: int = tunable(128, (32, 64, 128, 256), "columns of C per workgroup")
    bk: int = tunable(32, (16, 32, 64), "inner elements per step")
    sm: int = tunable(64, (16, 32, 64), "rows of C per subgroup")
    sn: int = tunable(64, (16, 32, 64, 128), "columns of C per subgroup")
    fm: int = tunable(16, (8, 16), "rows of a fragment of A and C, as the adapter reports")
    fn: int = tunable(16, (8, 16), "columns of a fragment of B and C, likewise")
    fk: int = tunable(16, (8, 16), "inner elements of a fragment, likewise")
    lanes: int = tunable(32, (8, 16, 32, 64), "invocations of a subgroup, as the adapter reports")
    group: int = tunable(8, (1, 8), "tile rows walked together, so that neighbours share tiles of B in cache")
    staging: str = tunable(
        "auto", ("auto", "always", "needed"), "when C goes through workgroup memory: auto where that leaves room"
    )
    spelling: str = tunable("current", ("current", "deprecated"), "how Tint writes loads and stores of fragments")

    @classmethod
    def on(cls, device: Capabilities) -> MatrixUnit:
        """Return the stage with the largest fragments that the device multiplies, and its subgroups."""
        able = [shape for shape in device.matrix_shapes if (shape.operands, shape.result) == ("f16", "f32")]
        shape = max(able, key=lambda s: s.m * s.n * s.k, default=cls().matrix_shape)
        return cls(fm=shape.m, fn=shape.n, fk=shape.k, lanes=device.subgroup_size or cls().lanes)

    @property
    def matrix_shape(self) -> MatrixShape:
        """What the matrix units must multiply."""
        return MatrixShape("f16", "f32", self.fm, self.fn, self.fk)

    @property
    def subgroup(self) -> int:
        """Lanes of a subgroup."""
        return self.lanes

    @property
    def subgroups(self) -> int:
        """Subgroups of a workgroup."""
        return self.bm // self.sm * (self.bn // self.sn)

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """A line of subgroups."""
        return (self.subgroups * self.lanes, 1, 1)

    def tile_bytes(self, a_along_k: bool, b_along_k: bool) -> int:
        """Bytes of a panel of A per row of subgroups and one of B per column, whose lines are padded by a chunk."""
        operands = ((self.bm, self.sm, a_along_k), (self.bn, self.sn, b_along_k))
        return 2 * sum(
            size // part * (part * (self.bk + CHUNK) if along_k else self.bk * (part + CHUNK))
            for size, part, along_k in operands
        )

    @property
    def c_bytes(self) -> int:
        """Bytes of a fragment of C per subgroup."""
        return 4 * self.subgroups * self.fm * self.fn

    @property
    def workgroup_bytes(self) -> int:
        """Panels of the layout that needs the most, and C."""
        return self.c_bytes + max(self.tile_bytes(a, b) for a in (False, True) for b in (False, True))

    @property
    def grid(self) -> Grid:
        """One workgroup per tile."""
        return Grid(self.bm, self.bn)

    @property
    def inner_step(self) -> int:
        """One tile."""
        return self.bk

    @property
    def a_loads(self) -> int:
        """Chunks of A that each invocation fetches per step."""
        return self.bm * self.bk // CHUNK // self.invocations

    @property
    def b_loads(self) -> int:
        """Chunks of B that each invocation fetches per step."""
        return self.bn * self.bk // CHUNK // self.invocations

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Whole fragments everywhere, and the same number of loads for every invocation."""
        for whole, piece in (("bm", "sm"), ("bn", "sn"), ("sm", "fm"), ("sn", "fn"), ("bk", "fk")):
            a, b = getattr(self, whole), getattr(self, piece)
            yield a % b == 0, f"{whole} = {a} must be a multiple of {piece} = {b}"
        for name in ("fm", "fn", "fk"):
            value = getattr(self, name)
            yield value % CHUNK == 0, f"{name} = {value} must be a multiple of {CHUNK}: lanes move {CHUNK} elements"
        for operand, size in (("A", self.bm), ("B", self.bn)):
            chunks = size * self.bk // CHUNK
            yield (
                chunks % self.invocations == 0,
                f"the tile of {operand} has {chunks} chunks, which {self.invocations} invocations cannot share evenly",
            )

    def unsuited(self, problem: Gemm) -> str | None:
        """Return why no device computes `problem` so: matrix units take float16, the epilogue makes no bfloat16."""
        if problem.dtype != F16:
            return f"multiplies {F16.name}, not {problem.dtype.name}"
        return None if problem.out_dtype in FLOATS else f"writes no {problem.out_dtype.name}"

    def check(self, problem: Gemm, device: Capabilities) -> str | None:
        """Return why this kernel cannot compute `problem` on `device`, or None if it can."""
        if reason := super().check(problem, device):
            return reason
        if self.lanes != device.subgroup_size:
            return f"needs subgroups of exactly {self.lanes} lanes, {device.name} has {device.subgroup_size}"
        return None

    def direct(self, spec: Specialisation) -> bool:
        """Tell whether fragments go straight to C: float32, whole tiles, and nothing to be done to an element."""
        touched = spec.scaled or spec.accumulate or spec.bias or spec.activation
        if self.staging == "always" or touched or spec.edge_m or spec.edge_n or spec.out_dtype != "f32":
            return False
        return self.staging == "needed" or self.tile_bytes(not spec.trans_a, spec.trans_b) + self.c_bytes > ROOM

    def specialise(self, problem: Gemm) -> Specialisation:
        """Return the template choices that fit `problem`; fragments are stored into an array of single elements."""
        spec = super().specialise(problem)
        return dataclasses.replace(spec, vec_c=False) if self.direct(spec) else spec

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield as other stages do; a chunk of A or B is a vec4<u32>."""
        for binding in super().bindings(spec):
            chunks = binding.name in ("a", "b") and binding.wgsl_type == "array<vec4<f16>>"
            yield dataclasses.replace(binding, wgsl_type="array<vec4<u32>>") if chunks else binding
