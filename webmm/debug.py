"""Looking inside a kernel: what it holds for one element of C at each inner step, beside NumPy's values.

A debug shader is a template with its `dbg…()` lines left in (`render(…, debug=True)`); every other shader is rendered
without them. They write what the invocation that owns the element read and summed up, and what its workgroup loaded
for it, to a buffer with a slot per inner step and tag.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from webmm.dtypes import F32
from webmm.engine.device import Device
from webmm.engine.timing import submit
from webmm.errors import ConfigError, ProblemError, UnsupportedError
from webmm.kernels.gemm.base import GemmKernel
from webmm.params import pack
from webmm.problems.gemm import Gemm
from webmm.render import TAGS, Watch
from webmm.verify import bound

# What a group of tags should hold, and the heads of their columns.
GROUPS = {
    "A": {"LOADED_A": "A loaded", "SHARED_A": "A shared"},
    "B": {"LOADED_B": "B loaded", "SHARED_B": "B shared"},
    "sum": {"ACC": "sum"},
}
UNWRITTEN = np.uint32(0x7FC0DEB6)  # a NaN that no arithmetic makes
VEC = 4
SHOWN = 8  # steps shown where nobody says which
MAX_STEPS = 2**20

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Value:
    """What a shader recorded, None where it left that out; `origin` says where a wrong factor is from, if known."""

    value: float | None
    wrong: bool
    origin: str = ""

    def __str__(self) -> str:
        text = "missing" if self.value is None else f"{self.value:.5g}"
        return f"✗ {text}" if self.wrong else text


@dataclass(frozen=True)
class Step:
    """Inner step `k`: NumPy's A[row, k], B[k, col] and sum up to and including k, and what was recorded by tag.

    Where several invocations share an element, `part` says whose sum it is, and NumPy's is of its steps only.
    """

    k: int
    part: int
    numpy: dict[str, float]
    values: dict[str, Value]


@dataclass(frozen=True)
class Inspection:
    """What a kernel held for C[row, col] at each inner step, and the result that it stored.

    Factors must equal those of A and B; a sum of s products must be within s·2⁻²³·Σ|a||b| of NumPy's.
    Steps from K on are those of a tile that hangs over the end: their factors must be zero.
    """

    kernel: GemmKernel
    problem: Gemm
    row: int
    col: int
    steps: tuple[Step, ...]
    stored: Value
    expected: float

    @property
    def wrong(self) -> list[tuple[Step, str, Value]]:
        """The wrong values by step and tag, in the order of steps."""
        return [(step, tag, value) for step in self.steps for tag, value in step.values.items() if value.wrong]

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong and not self.stored.wrong

    def window(self) -> slice:
        """Return the steps that show most: those around the first wrong one, else the first."""
        first = self.wrong[0][0].k - SHOWN // 2 if self.wrong else 0
        first = max(0, min(first, len(self.steps) - SHOWN))
        return slice(first, first + SHOWN)

    def table(self, shown: slice | None = None) -> Table:
        """Return the steps `shown`, by default those of `window()`, as a table; ✗ marks a wrong value."""
        recorded = {tag for step in self.steps for tag in step.values}
        groups = {name: [tag for tag in tags if tag in recorded] for name, tags in GROUPS.items()}
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("k", justify="right", no_wrap=True)
        parts = any(step.part for step in self.steps)
        if parts:
            table.add_column("part", justify="right", no_wrap=True)
        for name, tags in groups.items():
            for head in (*(GROUPS[name][tag] for tag in tags), "NumPy"):
                table.add_column(head, justify="right", no_wrap=True, style="dim" if head == "NumPy" else None)
        for step in self.steps[shown or self.window()]:
            row = [f"{step.k}", *([f"{step.part}"] if parts else [])]
            for name, tags in groups.items():
                row += [_cell(step.values.get(tag)) for tag in tags]
                row.append(f"{step.numpy[name]:.5g}")
            table.add_row(*row)
        return table

    def notes(self) -> list[str]:
        """Return in words what is wrong: for each tag the first step, and where its value is from."""
        first: dict[str, tuple[Step, Value]] = {}
        for step, tag, value in self.wrong:
            first.setdefault(tag, (step, value))
        lines = []
        for name, tags in GROUPS.items():
            for tag, head in tags.items():
                if tag in first:
                    step, value = first[tag]
                    place = {"A": f"A[{self.row}, {step.k}]", "B": f"B[{step.k}, {self.col}]"}.get(name, "NumPy's")
                    count = sum(other == tag for _, other, _ in self.wrong)
                    lines.append(
                        f"{head}: wrong at {count} of {len(self.steps)} steps, first at k = {step.k}: "
                        f"{value.origin or str(value).removeprefix('✗ ')}, not {place}"
                    )
        verdict = "wrong" if self.stored.wrong else "right"
        stored = str(self.stored).removeprefix("✗ ")
        lines.append(f"C[{self.row}, {self.col}] = {stored}, NumPy's {self.expected:.5g}: {verdict}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return all of it in JSON types; what is missing or no finite number is null."""
        return {
            "kernel": self.kernel.name,
            "config": self.kernel.config,
            "size": [self.problem.m, self.problem.n, self.problem.k],
            "dtype": self.problem.dtype.name,
            "at": [self.row, self.col],
            "right": self.right,
            "stored": {**_json(self.stored), "numpy": self.expected},
            "steps": [
                {
                    "k": step.k,
                    "part": step.part,
                    "numpy": step.numpy,
                    **{tag: _json(value) for tag, value in step.values.items()},
                }
                for step in self.steps
            ],
        }


def _cell(value: Value | None) -> str:
    if value is None:
        return ""
    return f"[bold red]{value}[/]" if value.wrong else str(value)


def _json(value: Value) -> dict[str, Any]:
    number = value.value if value.value is not None and np.isfinite(value.value) else None
    return {"value": number, "wrong": value.wrong} | ({"origin": value.origin} if value.origin else {})


def inspect(device: Device, kernel: GemmKernel, problem: Gemm, row: int, col: int) -> Inspection:
    """Run the debug shader of `kernel` on random operands and return what it held for C[row, col].

    `problem` is one of dense operands without an epilogue, as `gemm()` returns it for a single product. Raises
    ProblemError where C has no such element or K is above MAX_STEPS, ConfigError where nothing was recorded, and as
    `Device.launch` does.
    """
    p = problem
    if p.k > MAX_STEPS:
        raise ProblemError(f"this product has {p.k:,} inner steps, of which at most {MAX_STEPS:,} are looked at")
    if reason := kernel.check(p, device.capabilities):
        raise UnsupportedError(f"{kernel.name} {reason}")
    if not (0 <= row < p.m and 0 <= col < p.n):
        raise ProblemError(f"C is {p.m}x{p.n}: it has no element ({row}, {col}); rows and columns count from 0")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(p.dtype.numpy) for shape in ((p.m, p.k), (p.k, p.n)))
    steps = -(-p.k // kernel.inner_step) * kernel.inner_step + VEC  # a vec4 may hang over the end
    empty = np.full(steps * len(TAGS), UNWRITTEN)
    watch = np.frombuffer(pack(Watch(row, col, steps)), np.uint32)
    with (
        device.array(a.T if p.a.transposed else a) as a_array,
        device.array(b.T if p.b.transposed else b) as b_array,
        device.array(np.full((p.m, p.n), np.nan), p.out_dtype) as c_array,
        device.array(np.concatenate([watch, empty])) as recorded,
    ):
        submit(device, device.launch(kernel, p, a_array, b_array, c_array, debug=recorded))
        slots = recorded.numpy()[len(watch) :].reshape(steps, len(TAGS))
        stored = float(c_array.numpy()[row, col])
    if (slots == UNWRITTEN).all():
        raise ConfigError(
            f"{kernel.name} recorded nothing of C[{row}, {col}]: no invocation owns it, or its template has no dbg() "
            "lines where that one passes"
        )
    reference = _Reference(kernel, p, a.astype(np.float64), b.astype(np.float64), row, col, steps)
    wrong = not abs(stored - reference.total) <= reference.slack_stored
    return Inspection(kernel, p, row, col, reference.judge(slots), Value(stored, wrong), reference.total)


class _Reference:
    """What NumPy has for C[row, col] at each of `steps` inner steps, from A (m, k) and B (k, n) in float64."""

    def __init__(self, kernel: GemmKernel, p: Gemm, a: Floats, b: Floats, row: int, col: int, steps: int) -> None:
        self._k, self._a, self._b = p.k, a, b
        beyond = np.zeros(steps - p.k)
        factors = {"A": np.concatenate([a[row], beyond]), "B": np.concatenate([b[:, col], beyond])}
        products = factors["A"] * factors["B"]
        size = np.abs(products)
        self.parts = np.array([kernel.part(p, k) for k in range(steps)])
        sums, slack = np.empty(steps), np.empty(steps)
        for part in np.unique(self.parts):
            own = self.parts == part
            sums[own] = np.cumsum(products[own])
            slack[own] = np.arange(1, own.sum() + 1) * F32.eps * np.cumsum(size[own])
        self.numpy = {**factors, "sum": sums}
        self.slack = {"A": np.zeros(steps), "B": np.zeros(steps), "sum": slack}
        self.total = float(products.sum())
        self.slack_stored = bound(p) * float(size.sum() + p.out_dtype.tiny / p.out_dtype.eps)

    def judge(self, slots: NDArray[np.uint32]) -> tuple[Step, ...]:
        """Return the steps that were recorded in `slots` (step, tag), at least K."""
        written, values = slots != UNWRITTEN, slots.view(np.float32).astype(np.float64)
        used = written.any(axis=0)
        steps = []
        for k in range(max(self._k, 1 + int(np.flatnonzero(written.any(axis=1))[-1]))):
            found = {}
            for group, tag in ((group, tag) for group, tags in GROUPS.items() for tag in tags):
                i = TAGS.index(tag)
                if written[k, i]:
                    found[tag] = self._value(group, k, float(values[k, i]))
                elif used[i] and group != "sum" and k < self._k:  # a sum need not be there at each step
                    found[tag] = Value(None, True)
            steps.append(Step(k, int(self.parts[k]), {group: float(self.numpy[group][k]) for group in GROUPS}, found))
        return tuple(steps)

    def _value(self, group: str, k: int, got: float) -> Value:
        wrong = not abs(got - self.numpy[group][k]) <= self.slack[group][k]
        return Value(got, wrong, self._origin(got) if wrong and group != "sum" else "")

    def _origin(self, value: float) -> str:
        """Return which element of A or B this is, where it can only be one."""
        if value == 0:
            return "zero"
        values, places, counts = self._places
        i = int(np.searchsorted(values, value))
        if i == len(values) or values[i] != value or counts[i] > 1:
            return ""
        in_b = int(places[i]) - self._a.size
        if in_b < 0:
            return "A[{}, {}]".format(*divmod(int(places[i]), self._a.shape[1]))
        return "B[{}, {}]".format(*divmod(in_b, self._b.shape[1]))

    @functools.cached_property
    def _places(self) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        """The values of A and B in order, where each is first, A before B, and how often it is there."""
        values = np.concatenate([self._a.reshape(-1), self._b.reshape(-1)])
        return np.unique(values, return_index=True, return_counts=True)
