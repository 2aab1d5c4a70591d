"""Inspection of a kernel: its values for one element of the result at each inner step, compared with NumPy's.

A debug shader is a template rendered with its `dbg…()` lines (`render(…, debug=True)`); all other shaders are rendered
without them. These lines write the values that the invocation of the element reads and accumulates, and those that its
workgroup loads for it, to a buffer with a slot per inner step and tag. The op's row has NumPy's values (`Op.steps()`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from webmm.cases import OPS
from webmm.cases.base import blank
from webmm.cases.steps.reference import Reference
from webmm.cases.steps.subject import Subject
from webmm.engine.device import Array, Device
from webmm.engine.launch import Launch
from webmm.engine.timing import submit
from webmm.errors import ConfigError, UnsupportedError
from webmm.kernels.base import Kernel
from webmm.measure.bench import Named
from webmm.problems.base import Problem
from webmm.wgsl.params import pack
from webmm.wgsl.render import Watch, tags_of

UNWRITTEN = np.uint32(0x7FC0DEB6)  # a NaN that arithmetic never produces
SHOWN = 8  # number of steps shown by default


@dataclass(frozen=True)
class RecordedValue:
    """A recorded value, None if it is missing; `origin` names the element that a wrong factor is, if known."""

    value: float | None
    wrong: bool
    origin: str = ""

    def __str__(self) -> str:
        text = "missing" if self.value is None else f"{self.value:.5g}"
        return f"✗ {text}" if self.wrong else text


@dataclass(frozen=True)
class InnerStep:
    """Inner step `k`: NumPy's values by group, such as A[row, k] and the sum so far, and the recorded values by tag.

    NaN marks an unknown value. If several invocations share an element, `part` is the number of the partial sum, and
    NumPy's sum is over the steps of that part only.
    """

    k: int
    part: int
    numpy: dict[str, float]
    values: dict[str, RecordedValue]


@dataclass(frozen=True)
class Inspection:
    """A kernel's values for an element of the result at each inner step, and the value that it stored.

    Loaded values must equal the operands; a sum of s products must be within s·2⁻²³·Σ|a||b| of NumPy's, and other
    values within similar bounds. Steps from K on belong to a tile that extends beyond the end: factors must be zero.
    """

    kernel: Named
    problem: Problem
    at: tuple[int, ...]
    steps: tuple[InnerStep, ...]
    stored: RecordedValue
    expected: float
    reference: Reference

    @property
    def wrong(self) -> list[tuple[InnerStep, str, RecordedValue]]:
        """The wrong values as (step, tag, value), in the order of steps."""
        return [(step, tag, value) for step in self.steps for tag, value in step.values.items() if value.wrong]

    @property
    def right(self) -> bool:
        """Whether no value is wrong."""
        return not self.wrong and not self.stored.wrong

    def window(self) -> slice:
        """Return the most informative steps: those around the first wrong value, or the first steps."""
        first = self.wrong[0][0].k - SHOWN // 2 if self.wrong else 0
        first = max(0, min(first, len(self.steps) - SHOWN))
        return slice(first, first + SHOWN)

    def table(self, shown: slice | None = None) -> Table:
        """Return the steps `shown`, by default those of `window()`, as a table; ✗ marks a wrong value."""
        recorded = dict.fromkeys(tag for step in self.steps for tag in step.values)
        heads = self.reference.heads
        groups = {name: [tag for tag in tags if tag in recorded] for name, tags in heads.items()}
        known = {tag for tags in heads.values() for tag in tags}
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("k", justify="right", no_wrap=True)
        parts = any(step.part for step in self.steps)
        if parts:
            table.add_column("part", justify="right", no_wrap=True)
        for name, tags in groups.items():
            for head in (*(heads[name][tag] for tag in tags), "NumPy") if tags else ():
                table.add_column(head, justify="right", no_wrap=True, style="dim" if head == "NumPy" else None)
        extra = [tag for tag in recorded if tag not in known]
        for tag in extra:
            table.add_column(tag, justify="right", no_wrap=True)
        for step in self.steps[shown or self.window()]:
            row: list[str | Text] = [f"{step.k}", *([f"{step.part}"] if parts else [])]
            for name, tags in groups.items():
                row += [_cell(step.values.get(tag)) for tag in tags]
                row += [_number(step.numpy[name])] if tags else []
            table.add_row(*row, *(_cell(step.values.get(tag)) for tag in extra))
        return table

    def notes(self) -> list[str]:
        """Return a line for each wrong tag, with its first wrong step and the origin of the value, and the verdict."""
        first: dict[str, tuple[InnerStep, RecordedValue]] = {}
        for step, tag, value in self.wrong:
            first.setdefault(tag, (step, value))
        lines = []
        for name, tags in self.reference.heads.items():
            for tag, head in tags.items():
                if tag in first:
                    step, value = first[tag]
                    place = self.reference.places.get(name, "NumPy's").format(k=step.k)
                    count = sum(other == tag for _, other, _ in self.wrong)
                    lines.append(
                        f"{head}: wrong at {count} of {len(self.steps)} steps, first at k = {step.k}: "
                        f"{value.origin or str(value).removeprefix('✗ ')}, not {place}"
                    )
        verdict = "wrong" if self.stored.wrong else "right"
        stored = str(self.stored).removeprefix("✗ ")
        lines.append(f"{self.reference.element} = {stored}, NumPy's {self.expected:.5g}: {verdict}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the inspection in JSON types; missing and non-finite values are null."""
        return {
            "kernel": self.kernel.name,
            "config": self.kernel.config,
            "op": self.problem.op,
            "size": list(self.problem.sizes[:3]),
            "dtype": self.problem.dtype.name,
            "at": list(self.at),
            "right": self.right,
            "stored": {**_json(self.stored), "numpy": self.expected},
            "steps": [
                {
                    "k": step.k,
                    "part": step.part,
                    "numpy": {name: value if np.isfinite(value) else None for name, value in step.numpy.items()},
                    **{tag: _json(value) for tag, value in step.values.items()},
                }
                for step in self.steps
            ],
        }


def _cell(value: RecordedValue | None) -> str | Text:
    if value is None:
        return ""
    return Text(str(value), "bold red") if value.wrong else str(value)


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.5g}"


def _json(value: RecordedValue) -> dict[str, Any]:
    number = value.value if value.value is not None and np.isfinite(value.value) else None
    return {"value": number, "wrong": value.wrong} | ({"origin": value.origin} if value.origin else {})


def inspect(device: Device, kernel: Kernel[Any], problem: Problem, *at: int) -> Inspection:
    """Run the debug shader of `kernel` on random operands and return its values for an element of the result.

    For a matrix product `at` is the row and column of C; the problem has dense operands and no epilogue, as from
    `gemm()`. For a one-dimensional result it is the index, for a normalisation the row and the element in it, for
    attention head, query and column.
    Raises ProblemError if there is no such element or there are too many inner steps, ConfigError if nothing was
    recorded, and the errors of `Device.launch()`.
    """
    (found,) = inspect_each(device, kernel, problem, [at])
    return found


def inspect_each(
    device: Device, kernel: Kernel[Any], problem: Problem, elements: Sequence[tuple[int, ...]]
) -> Iterator[Inspection]:
    """Yield the inspection of each element, as `inspect()` does, all with the same operands."""
    subject = OPS[problem.op].steps(kernel, problem)
    if reason := kernel.check(problem, device.capabilities):
        raise UnsupportedError(f"{kernel.name} {reason}")
    for at in elements:
        subject.located(*at)
    tags = tags_of(kernel, problem, device.engine.dialect)

    def launch(arrays: Mapping[str, Array], recorded: Array) -> Launch:
        return device.launch(kernel, problem, *(arrays[e.name] for e in problem.buffers()), debug=recorded)

    yield from inspections(device, kernel, subject, elements, tags, launch)


def inspections(
    device: Device,
    kernel: Named,
    subject: Subject,
    elements: Sequence[tuple[int, ...]],
    tags: tuple[str, ...],
    launch: Callable[[Mapping[str, Array], Array], Launch],
) -> Iterator[Inspection]:
    """Yield the inspection of each element; `launch` prepares the debug shader, whose lines record `tags`.

    It takes the problem's arrays by name, and the one that values are recorded in.
    """
    problem = subject.problem
    subject.draw(device)
    for at in elements:
        row, col = subject.located(*at)
        reference = subject.reference(row, col)
        slots, result = _recorded(device, subject, tags, (row, col), launch)
        if not tags or (slots == UNWRITTEN).all():
            raise ConfigError(
                f"{kernel.name} recorded nothing for {reference.element}: no invocation computes it, or the text "
                "has no dbg() lines on that invocation's path"
            )
        stored = reference.stored(result)
        wrong = not abs(stored - reference.total) <= reference.allowed
        steps = _judged(reference, slots, tags)
        yield Inspection(kernel, problem, at, steps, RecordedValue(stored, wrong), reference.total, reference)


def _recorded(
    device: Device,
    subject: Subject,
    tags: tuple[str, ...],
    at: tuple[int, int],
    launch: Callable[[Mapping[str, Array], Array], Launch],
) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """Run the debug shader; return its slots, of shape (steps, tags), and the result."""
    row, col = subject.watched(*at)
    width = max(1, len(tags))
    watch = np.frombuffer(pack(Watch(row, col, subject.steps)), np.uint32)
    with ExitStack() as freed:
        extent = next(each for each in subject.problem.buffers() if each.written)
        written = freed.enter_context(device.array(blank(extent), extent.dtype))
        empty = np.full(subject.steps * width, UNWRITTEN)
        recorded = freed.enter_context(device.array(np.concatenate([watch, empty])))
        submit(device, launch({**subject.inputs, extent.name: written}, recorded))
        return recorded.numpy()[len(watch) :].reshape(subject.steps, width), written.numpy()


def _judged(reference: Reference, slots: NDArray[np.uint32], tags: tuple[str, ...]) -> tuple[InnerStep, ...]:
    """Return all steps of the reference, and further recorded ones, with the values of `slots` compared to NumPy's."""
    written, values = slots != UNWRITTEN, slots.view(np.float32).astype(np.float64)
    used = written.any(axis=0)
    of = {tag: group for group, heads in reference.heads.items() for tag in heads}
    order = [*(tag for tag in of if tag in tags), *(tag for tag in tags if tag not in of)]
    steps = []
    for k in range(max(reference.length, 1 + int(np.flatnonzero(written.any(axis=1))[-1]))):
        found = {}
        for tag in order:
            i, group = tags.index(tag), of.get(tag, "")
            if written[k, i]:
                found[tag] = _value(reference, group, k, float(values[k, i]))
            elif used[i] and group in reference.every and k < reference.length:
                found[tag] = RecordedValue(None, True)
        numpy = {group: float(reference.numpy[group][k]) for group in reference.heads}
        steps.append(InnerStep(k, int(reference.parts[k]), numpy, found))
    return tuple(steps)


def _value(reference: Reference, group: str, k: int, got: float) -> RecordedValue:
    expected = reference.numpy[group][k] if group else np.nan  # the expected value of a user's tag is unknown
    known = group and not np.isnan(expected)
    wrong = bool(known and got != expected and not abs(got - expected) <= reference.slack[group][k])
    return RecordedValue(got, wrong, reference.origin(got) if wrong and group in reference.every else "")
