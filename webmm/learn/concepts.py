"""Directives of the concepts: memories of a device, a stage with given settings, recorded errors, what fits at once."""

from __future__ import annotations

from typing import Any

from webmm.errors import ConfigError
from webmm.learn.directives import directive
from webmm.learn.drawings.access import LANES, cycles, lines_of, read_addresses, read_by_lanes, store_addresses
from webmm.learn.drawings.charts import errors
from webmm.learn.drawings.hardware import amount, memories_of, resident, speed_of, traffic_of
from webmm.learn.drawings.order import RUNNING, needed, tiles_of
from webmm.learn.kernels import stage_of
from webmm.learn.numbers import speed

SEEN = (  # each kind of memory in WGSL, and who shares it
    ("`var`, `let` in a function", "one invocation"),
    ("`var<workgroup>`", "a workgroup"),
    ("–", "a multiprocessor"),
    ("–", "the device"),
    ("`var<storage>`", "the device, from one dispatch to the next"),
)


@directive
def memory_table(table: str) -> str:
    """Return the memories of a device, with their sizes and rates."""
    lines = ["| memory | in WGSL | who shares it | in all | bytes per second |", "|---|---|---|--:|--:|"]
    for memory, (wgsl, shared) in zip(memories_of(table), SEEN, strict=True):
        lines.append(f"| {memory.name} | {wgsl} | {shared} | {amount(memory.nbytes)} | {speed_of(memory.gbytes)} |")
    return "\n".join(lines)


@directive
def setting(stage: str, name: str, size: str, **tunables: Any) -> str:
    """Return the recorded GFLOP/s of a stage with these tunables, and defaults of the others."""
    return speed(stage, name, size, **stage_of(stage, **tunables).config)


@directive
def largest_error(data: str, k: str, precision: str = "highest") -> str:
    """Return the largest recorded error of products of float32 in units of 2⁻²⁴·(|A|·|B|)."""
    found = dict(errors(data, precision)).get(int(k))
    if found is None:
        raise ConfigError(f"there is no record of the errors of {data} operands at K = {k}")
    return f"{found:.2g}"


@directive
def fit(stage: str, what: str = "invocations") -> str:
    """Return the `invocations` of a stage that a multiprocessor of the H200 holds at once, or their `subgroups`."""
    count, _ = resident(traffic_of(stage_of(stage)))
    return f"{count if what == 'invocations' else count // LANES:,}"


@directive
def touched(stage: str, matrix: str, turned: str = "") -> str:
    """Return the cache lines of A, B or C that a subgroup touches; `turned`: as if the text exchanged row and col."""
    return str(len(lines_of(read_by_lanes(stage_of(stage), bool(turned))[matrix])))


@directive
def bank_cycles(stage: str, access: str, dtype: str = "float32") -> str:
    """Return the cycles of an access to workgroup memory: `spread`, `adjacent` reads, `plain`, `swizzled` stores."""
    kernel = stage_of(stage)
    if access in ("spread", "adjacent"):
        return str(cycles(read_addresses(kernel, access == "adjacent"), 16))
    return str(cycles(*store_addresses(kernel, dtype, access == "swizzled")))


@directive
def per_k(stage: str, side: str, group: int) -> str:
    """Return the elements of A and B that tiles which run at the same time need for each k, in a square C."""
    kernel = stage_of(stage, group=group)
    return f"{needed(kernel, tiles_of(kernel, int(side), RUNNING)):,}"
