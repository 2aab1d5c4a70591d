"""Inspection of a foreign shader: its debug lines, which are comments, record what it computes for an element."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from webmm.debug import Inspection, inspections
from webmm.engine.device import Array, Device
from webmm.engine.launch import Launch
from webmm.errors import ConfigError
from webmm.foreign import Foreign
from webmm.foreign.tasks import OfOp, Size
from webmm.wgsl.params import wgsl_struct
from webmm.wgsl.render import FRAGMENT_TAGS, TAG, Watch, environment

LINE = re.compile(r"^([ \t]*)//[ \t]*(dbg\w*\(.*\);)[ \t]*$", re.MULTILINE)


def with_debug_lines(foreign: Foreign) -> tuple[Foreign, tuple[str, ...]]:
    """Return the same text with its debug lines in effect, and their tags; other lines keep their numbers.

    Raises ConfigError if there are none.
    """
    text = LINE.sub(r"\1\2", foreign.text)
    fragments = FRAGMENT_TAGS if "dbg_fragment(" in text else ()
    tags = tuple(dict.fromkeys([*TAG.findall(text), *fragments]))
    if not tags:
        raise ConfigError(
            f"{foreign.name} has no debug lines: add comments such as //dbg(ACC, row, col, k, sum); where the value is "
            "computed, each on a line of its own"
        )
    binding = f"@group(0) @binding({len(foreign.layout())}) var<storage, read_write> debug: Debug;"
    values = {"tags": tags, "watch_struct": wgsl_struct(Watch, "Watch")}
    functions = environment().get_template("common/debug.wgsl").render(values)
    return dataclasses.replace(foreign, text=f"{text}\n{binding}\n{functions}"), tags


def inspect(
    foreign: Foreign, device: Device, work: OfOp, size: Size, elements: Sequence[tuple[int, ...]]
) -> Iterator[Inspection]:
    """Yield the inspection of each element of the result, as `webmm.debug.inspect_each()` does for a kernel.

    Each element's sum is compared with NumPy's over all steps so far, as for a stage whose invocations compute whole
    elements. Raises ProblemError if there is no such element, ConfigError if nothing is recorded, and as
    `Foreign.launch()` does.
    """
    task = work.task(size)
    subject = work.op.steps(work.op.stages[0](), task.problem)
    for at in elements:
        subject.located(*at)
    text, tags = with_debug_lines(foreign)

    def launch(arrays: Mapping[str, Array], recorded: Array) -> Launch:
        return text.launch(device, task.lengths, arrays, recorded)

    yield from inspections(device, foreign, subject, elements, tags, launch)
