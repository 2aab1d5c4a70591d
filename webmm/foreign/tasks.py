"""What a foreign shader is to compute: problems of an op, or the result in a file from operands in files."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from webmm.cases.base import Case, Op, Trial
from webmm.dtypes import F16, F32, F64, I32, U32, DType, dtype_of
from webmm.engine.device import Array, Device
from webmm.errors import ConfigError, ProblemError
from webmm.files import load_array
from webmm.foreign import Signature
from webmm.foreign.counts import CHECKED
from webmm.kernels.base import LOOP_LIMIT
from webmm.measure.verify import Wrong, wrong_elements
from webmm.problems.base import Extent, Problem

Size = tuple[int, int, int]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
STORED = (F32, F16, F64, I32, U32)  # element types of files
# Of --expect by default: k roundings of a product of a few thousand terms, and of the result's type.
TOLERANCE = {F16: 2e-3, F32: 1e-4, F64: 1e-12}


@dataclass(frozen=True)
class Task:
    """One size of what a text computes: its buffers and lengths, and operands with the result that they must give."""

    label: str
    buffers: tuple[Extent, ...]
    lengths: Mapping[str, int]
    trial: Trial
    problem: Problem

    @property
    def written(self) -> Extent:
        """The buffer of the result."""
        return next(extent for extent in self.buffers if extent.written)


class Work(ABC):
    """What a text computes, at sizes that one can choose or at a fixed one."""

    signature: Signature
    sizes: tuple[Size, ...]  # that are checked by default
    fixed = False  # whether there is only one size
    result = "C"

    @abstractmethod
    def task(self, size: Size) -> Task:
        """Return the task of a size; raises ProblemError if there is none."""

    @abstractmethod
    def name(self, problem: Problem, place: int) -> str:
        """Return the name of an element of the result, such as C[3, 5], from its place."""

    @abstractmethod
    def case(self, device: Device, task: Task) -> Case[Any]:
        """Return the operands for a measurement, on the device, and what is known of the result."""


class OfOp(Work):
    """Problems of an op, with operands and results from its row. The lengths are m, n and k, as in records."""

    def __init__(self, op: Op[Any], dtype: str) -> None:
        self.op, self.dtype = op, dtype_of(dtype).name if dtype else op.dtypes[0].name
        within = (size[:3] for size, layout in op.tried if layout == "nn" and max(size[:3]) <= LOOP_LIMIT)
        tried = tuple(dict.fromkeys(within))  # lavapipe ends longer loops: no fault of a text
        self.sizes = CHECKED if op.name == "gemm" else tried
        self.signature = _signature(op.problem(self.sizes[0], self.dtype).buffers(), ("m", "n", "k"))
        self.result = op.result

    def task(self, size: Size) -> Task:
        """Return the problem of a size with the op's own trial."""
        problem = self.op.problem(size, self.dtype)
        lengths = dict(zip("mnk", problem.sizes, strict=False))
        label = "x".join(map(str, size))
        return Task(label, problem.buffers(), lengths, self.op.trial(problem), problem)

    def name(self, problem: Problem, place: int) -> str:
        """Return the name with the op's indices."""
        return f"{self.op.result}[{', '.join(map(str, self.op.element(problem, place)))}]"

    def case(self, device: Device, task: Task) -> Case[Any]:
        """Return the op's case."""
        return self.op.case(device, task.problem)


class OfFiles(Work):
    """The array in the file `expect`, from those in `inputs`: called a, b … in this order, the result last.

    Lengths are those of the axes: a0, a1, b0 …; also m, n and k if a is (m, k), b (k, n) and the result (m, n). An
    element may be wrong by atol + rtol·|expected|. Raises ProblemError for files that hold something else.
    """

    fixed = True

    def __init__(
        self, inputs: Sequence[Path], expect: Path, rtol: float | None = None, atol: float | None = None
    ) -> None:
        if not 1 <= len(inputs) < len(LETTERS):
            raise ConfigError(f"--inputs names 1 to {len(LETTERS) - 1} .npy files, not {len(inputs)}")
        self.arrays = dict(zip(LETTERS, (_read(path) for path in (*inputs, expect)), strict=False))
        names = tuple(self.arrays)
        self.result = names[-1]
        shapes = {name: x.shape for name, x in self.arrays.items()}
        self.lengths = {f"{name}{i}": n for name, shape in shapes.items() for i, n in enumerate(shape)}
        if [len(shape) for shape in shapes.values()] == [2, 2, 2]:
            (m, k), (inner, n), result = shapes.values()
            if inner == k and result == (m, n):
                self.lengths |= {"m": m, "n": n, "k": k}
        self.buffers = tuple(
            Extent(name, dtype_of(x.dtype), x.size, written=name == self.result) for name, x in self.arrays.items()
        )
        self.signature = _signature(self.buffers, tuple(self.lengths))
        expected = self.arrays[self.result].astype(np.float64)
        standard = TOLERANCE.get(dtype_of(self.arrays[self.result].dtype), 0.0)
        relative = standard if rtol is None else rtol
        size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        absolute = standard * float(size) if atol is None else atol
        operands = {name: x.ravel() for name, x in self.arrays.items() if name != self.result}
        self.trial = Trial(
            operands, expected, absolute + relative * np.abs(np.nan_to_num(expected, posinf=0, neginf=0))
        )
        self.problem = Files(self.buffers, tuple(self.lengths[name] for name in "mnk") if "m" in self.lengths else None)
        self.sizes = (self.problem.sizes[:3],)

    def task(self, size: Size) -> Task:
        """Return the only task."""
        del size
        shapes = " ".join("x".join(map(str, x.shape)) or "1" for x in self.arrays.values())
        return Task(shapes, self.buffers, self.lengths, self.trial, self.problem)

    def name(self, problem: Problem, place: int) -> str:
        """Return the name with the indices in the array."""
        del problem
        at = np.unravel_index(place, self.trial.expected.shape)
        return f"{self.result}[{', '.join(str(int(i)) for i in at)}]"

    def case(self, device: Device, task: Task) -> Case[Any]:
        """Return the operands on the device."""
        return FilesCase(device, task)


@dataclass(frozen=True)
class Files(Problem):
    """The problem of arrays in files, for records: of op `files`, with the lengths of a product if it is one.

    Its operations are those of the product, or one per element of all arrays.
    """

    op: ClassVar[str] = "files"
    extents: tuple[Extent, ...]
    product: Size | None

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The type of the first operand."""
        return self.extents[0].dtype

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The lengths of the product, or the number of elements of the result."""
        m, n, k = self.product or (self.extents[-1].end, 1, 1)
        return m, n, k, 1

    def buffers(self) -> tuple[Extent, ...]:
        """Return the operands and the result."""
        return self.extents

    @property
    def flops(self) -> int:
        """Two per term of a product."""
        return 2 * math.prod(self.product) if self.product else sum(extent.end for extent in self.extents)

    @property
    def bytes(self) -> int:
        """All arrays, once."""
        return sum(extent.end * extent.dtype.itemsize for extent in self.extents)


class FilesCase(Case[Files]):
    """Arrays of files on a device. Errors are multiples of the largest that is allowed."""

    scale = "·(atol + rtol·|expected|)"

    def __init__(self, device: Device, task: Task) -> None:
        assert isinstance(task.problem, Files), "of OfFiles"
        self.problem, self.trial = task.problem, task.trial
        dtypes = {extent.name: extent.dtype for extent in task.buffers}
        self.inputs: dict[str, Array] = {name: device.array(x, dtypes[name]) for name, x in self.trial.buffers.items()}

    @property
    def bound(self) -> float:
        """The largest error that is allowed."""
        return 1.0

    def error(self, got: NDArray[Any]) -> float:
        """Return the largest error; inf if NaN or infinities differ, or no error is allowed."""
        found, expected = got.reshape(-1).astype(np.float64), self.trial.expected.reshape(-1)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        with np.errstate(all="ignore"):
            off = np.where(same, 0.0, np.abs(found - expected) / np.ravel(self.trial.allowed))
        return float(np.nan_to_num(off, nan=np.inf).max())

    def wrong(self, got: NDArray[Any]) -> Wrong | None:
        """Return the elements that are wrong."""
        return wrong_in(got.reshape(self.trial.expected.shape), self.trial)

    def numpy(self) -> NDArray[Any]:
        """Return the result in the file: what computed it is not known."""
        return self.trial.expected

    def numpy_error(self, got: NDArray[Any]) -> float:
        """Return the error of a result."""
        return self.error(got)


def wrong_in(got: NDArray[Any], trial: Trial) -> Wrong | None:
    """Return the elements of a result that differ from a trial's by more than it allows."""
    found, expected = got.astype(np.float64), trial.expected.astype(np.float64)
    allowed = np.broadcast_to(trial.allowed, expected.shape)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected)) | np.isposinf(allowed)
    with np.errstate(invalid="ignore"):
        return wrong_elements(found, expected, ~(same | (np.abs(found - expected) <= allowed)))


def _read(path: Path) -> NDArray[Any]:
    data = np.ascontiguousarray(load_array(path, STORED))
    if data.size == 0:
        raise ProblemError(f"{path} holds an empty array of shape {data.shape}")
    return data


def _signature(buffers: Sequence[Extent], lengths: tuple[str, ...]) -> Signature:
    written = next(extent.name for extent in buffers if extent.written)
    return Signature(tuple(extent.name for extent in buffers), written, lengths)
