"""Base classes of the reduction kernels: the uniform, the grid over the results, and the template choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from webmm.dtypes import I32, DType
from webmm.kernels.base import INDEX_LIMIT, Binding, Params, Stored, ceil_div, fold
from webmm.kernels.reduce.work import PARTIAL_BYTES, PARTIALS, Combination, Counted
from webmm.kernels.sizes import Assumption, Condition, folded, multiples
from webmm.problems.reduce import Reduction, operation_of
from webmm.wgsl.params import F32, U32, member

CHAIN = 16  # consecutive additions at a level of a sum, before its result is added to the next level
WAYS = ("tree", "subgroup", "alone")  # how the invocations of a workgroup combine their partial results
LEAST_SUBGROUP = 4  # lanes of the smallest subgroups
PAIRS = "array<vec2u>"  # doubles as pairs of words


def partials(spec: Specialisation) -> str:
    """Return the WGSL type of the buffer of partial results between two dispatches."""
    doubles = "array<vec2<f64>>" if spec.native else "array<vec4u>"
    wide = operation_of(spec.operation).values > 2
    return doubles if spec.dtype.wide else "array<vec4u>" if wide else "array<vec2u>"


@dataclass(frozen=True)
class ReduceParams:
    """The uniform of every reduction kernel; lengths are in elements."""

    outer: U32 = member("x[i, k, j] is reduced over k: values of i")
    length: U32 = member("values of k")
    inner: U32 = member("values of j")
    outer_stride: U32 = member("distance between consecutive elements along i")
    stride: U32 = member("along k")
    inner_stride: U32 = member("along j")
    x_offset: U32 = member("first element of x in its buffer")
    y_offset: U32 = member("first element of y")
    zero: U32 = member("0, which compilers do not know")
    outside: F32 = member("identity of the operation, used beyond the end")

    @classmethod
    def of(cls, p: Reduction) -> ReduceParams:
        """Return the uniform for the problem `p`."""
        x = p.x
        return cls(
            *(p.outer, p.length, p.inner),
            *(x.outer_stride, x.stride, x.inner_stride),
            *(x.offset, p.y_offset),
            zero=0,
            outside=operation_of(p.operation).outside,
        )


@dataclass(frozen=True)
class TwoParams(ReduceParams):
    """The uniform with the layout of a second array."""

    other_outer_stride: U32 = member("distance between consecutive elements of other[i, k, j] along i")
    other_stride: U32 = member("along k")
    other_inner_stride: U32 = member("along j")
    other_offset: U32 = member("first element of other in its buffer")

    @classmethod
    def of(cls, p: Reduction) -> TwoParams:
        """Return the uniform for the problem `p`."""
        assert p.other, "an operation of two arrays has both"
        y = p.other.span
        of_x = vars(ReduceParams.of(p))
        return cls(
            **of_x,
            other_outer_stride=y.outer_stride,
            other_stride=y.stride,
            other_inner_stride=y.inner_stride,
            other_offset=y.offset,
        )


@dataclass(frozen=True)
class Specialisation(Stored):
    """The template choices besides the tile sizes; problems with the same choices share a shader."""

    operation: str
    native: bool  # float64 is computed in f64, not compared as pairs of words
    vec: bool  # x is bound as vec4: four consecutive elements are either all in range or all out of range
    edge: bool  # the last step extends past the end of a row
    edge_j: bool  # the last workgroup extends past the last j
    dense: bool  # rows are contiguous: inner and stride are 1
    full: bool  # if a step covers a row, only the last block of the step extends past its end
    levels: int  # levels of an invocation's sum, of CHAIN additions each
    outside: int  # identity of the operation for int32; that for floats is in the uniform
    other: DType | None = field(default=None, kw_only=True)  # the element type of a second array

    @property
    def types(self) -> tuple[DType, ...]:
        """The distinct types that are stored."""
        return tuple(dict.fromkeys((self.dtype, self.out_dtype, *((self.other,) if self.other else ()))))


@dataclass(frozen=True)
class ReduceKernel(Counted):
    """A stage of the ladder. Subclasses add tunable fields and divide the work among workgroups."""

    op = "reduce"
    params: ClassVar[type[Params]] = ReduceParams
    reads: ClassVar[str] = "x"
    vectorizes: ClassVar[str] = ""  # the axis along which the kernel can read x as vec4: "k", "j" or none

    def uniform(self, of: Any) -> type[Params]:
        """Return the uniform's class for a problem, or for template choices."""
        return TwoParams if of.other else self.params

    @property
    def chain(self) -> int:
        """Consecutive additions at a level."""
        return CHAIN

    @property
    def block(self) -> int:
        """Elements along k that a workgroup loads at once, with a vec4 per invocation."""
        return self.step

    def iterations(self, problem: Reduction) -> int:
        """Return the number of iterations of the loop over k."""
        return self.steps(problem)

    def dispatch(self, problem: Reduction) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z): x and y folded so that neither exceeds 65,535, z for the splits."""
        return fold(self.workgroups(problem), self.splits)

    def grid_rule(self, spec: Any) -> dict[str, Any]:
        """Return the rule of `dispatch`, for hosts in other languages."""
        del spec
        return folded(self.count_rule, str(self.splits))

    @property
    def count_rule(self) -> str:
        """The rule of `workgroups` in words."""
        return "outer*inner"

    def bindings(self, spec: Specialisation) -> Iterator[Binding]:
        """Yield the buffer that is read, the one that is written, and the second array."""
        compared = not spec.native
        types = {
            "x": PAIRS if compared and spec.dtype.wide else spec.dtype.array(spec.vec),
            "y": PAIRS if compared and spec.out_dtype.wide else spec.out_dtype.array(False, shared=True),
            PARTIALS: partials(spec),
        }
        yield Binding(1, self.reads, "read-only-storage", types[self.reads])
        yield Binding(2, self.writes, "storage", types[self.writes])
        if spec.other and self.reads == "x":
            yield Binding(3, "other", "read-only-storage", spec.other.array(False))

    def choices(self, problem: Reduction) -> Specialisation:
        """Return the template choices for problems like `problem` that assume nothing of sizes."""
        p = problem
        return Specialisation(
            operation=p.operation,
            dtype=p.dtype,
            out_dtype=p.out_dtype,
            native=not operation_of(p.operation).compared,
            vec=False,
            edge=True,
            edge_j=True,
            dense=False,
            full=False,
            levels=self.most_levels(p.operation, p.dtype),
            outside=int(operation_of(p.operation).beyond(I32)) if p.dtype == I32 else 0,
            other=p.other.dtype if p.other else None,
        )

    def assumptions(self, choices: Specialisation) -> Iterator[Assumption]:
        """Yield the sizes at which x can be read as vec4, no step or strip is partial, and sums need few levels."""
        step = self.step * self.splits
        if not choices.dtype.wide and self.vectorizes:
            yield Assumption("vec", True, (*vectorizable(self.vectorizes), *self.vector_needs()))
        yield Assumption("edge", False, multiples(step, "length"))
        yield Assumption("edge_j", False, multiples(self.columns, "inner"))
        if self.columns == 1:
            yield Assumption("dense", True, (Condition("inner", equals=1), Condition("stride", equals=1)))
        whole = self.step - self.block
        yield Assumption("full", True, (Condition("length", at_least=whole),) if whole else ())
        for count in range(self.most_levels(choices.operation, choices.dtype) - 1, 0, -1):
            yield Assumption("levels", count, (Condition("length", at_most=step * CHAIN**count),))

    def most_levels(self, operation: str, dtype: DType) -> int:
        """Return the levels of an invocation's sum of the longest rows; 1 if the order of additions does not matter."""
        rounded = operation_of(operation).sums and dtype != I32
        return levels(ceil_div(INDEX_LIMIT, self.step * self.splits)) if rounded else 1

    def vector_needs(self) -> Iterator[Condition]:
        """Yield what it takes, besides x, for loads of vec4."""
        yield from ()

    def places(self, problem: Reduction) -> dict[str, tuple[str, str]]:
        """Return the places of elements of x, y, and of a normalisation's weight and bias, and their numbers."""
        places = {}
        for name, of in (("x", ""), ("other", "other_")):
            place = f"{name}_offset + i * {of}outer_stride + k * {of}stride + j * {of}inner_stride"
            reach = f"(outer - 1) * {of}outer_stride + (length - 1) * {of}stride + (inner - 1) * {of}inner_stride"
            places[name] = (place, f"{name}_offset + {reach} + 1")
        return {**places, **problem.places}


@dataclass(frozen=True)
class CombiningKernel(ReduceKernel):
    """A kernel whose workgroups of `lanes` invocations combine their partial results, in one of WAYS."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """Invocations of a workgroup."""

    @property
    @abstractmethod
    def combine(self) -> str:
        """How they combine their partial results."""

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """`lanes` along x."""
        return (self.lanes, 1, 1)

    @property
    def combination(self) -> Combination:
        """How all invocations of a workgroup combine their partial results."""
        return Combination.of(self.combine, self.lanes)

    @property
    def shared_parts(self) -> int:
        """Partial results in workgroup memory: one per invocation, one per subgroup, or none."""
        of_subgroups = ceil_div(self.lanes, LEAST_SUBGROUP)
        return {"tree": self.lanes if self.lanes > 1 else 0, "subgroup": of_subgroups, "alone": 0}[self.combine]

    @property
    def workgroup_bytes(self) -> int:
        """Workgroup memory of these partial results, in bytes."""
        return PARTIAL_BYTES * self.shared_parts

    @property
    def subgroup(self) -> int:
        """Lanes that a subgroup must have: all lanes of the workgroup if it is a single subgroup."""
        return {"tree": 0, "subgroup": LEAST_SUBGROUP, "alone": self.lanes}[self.combine]

    def constraints(self) -> Iterator[tuple[bool, str]]:
        """Yield that the tree needs a power of two."""
        yield self.lanes & (self.lanes - 1) == 0, f"lanes = {self.lanes} must be a power of two: a tree halves them"


def vectorizable(axis: str) -> Iterator[Condition]:
    """Yield the conditions that four consecutive elements along `axis`, k or j, can be read as one vec4."""
    axes = {"i": ("outer", "outer_stride"), "k": ("length", "stride"), "j": ("inner", "inner_stride")}
    count, stride = axes[axis]
    yield Condition(stride, equals=1)
    yield from multiples(4, "x_offset", count)
    for length, far in (found for other, found in axes.items() if other != axis):
        yield Condition(far, multiple_of=4, where=length)


def levels(steps: int) -> int:
    """Return the number of levels of CHAIN additions in a sum of `steps` terms."""
    return next(n for n in range(1, 65) if CHAIN**n >= steps)
