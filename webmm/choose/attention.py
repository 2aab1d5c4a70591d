"""Candidates for attention, by rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from webmm.dtypes import F16
from webmm.engine.device import Device
from webmm.kernels.attention.base import FOUR, AttentionKernel, held
from webmm.kernels.attention.blocked import Blocked
from webmm.kernels.attention.cpu import Cpu
from webmm.kernels.attention.decode import SPLITS, Decode
from webmm.kernels.attention.matrix_unit import MatrixUnit
from webmm.kernels.attention.online import Online
from webmm.kernels.attention.three_calls import ThreeCalls
from webmm.kernels.base import Capabilities, ceil_div
from webmm.problems.attention import Attention

MOST_HELD = 256  # columns of the rows that invocations or tiles hold
MOST_LANES = 16  # of CPU drivers' subgroups
LEAST_LANES = 4
LONG = 512  # keys from which on a lane has more of them
MANY = 64  # queries from which on copies of k and v in textures pay off on CPUs
FEW_ROWS = (1, 4, 8)  # of the only tile of queries; otherwise tiles have 16
WIDE, MOST_COLUMNS = 16, 64  # columns of v of a lane from which on tiles have fewer rows, and at most

# bq, bk, tm and wx of `blocked`: the largest ones that fit into workgroup memory, from 48 KiB down to 16 KiB.
TILES = ((64, 32, 4, 8), (32, 32, 4, 8), (32, 16, 4, 4), (16, 16, 2, 4), (8, 16, 1, 4))

# Queries up to which keys are divided among lanes and workgroups, if these are at least LEAST_KEYS.
FEW, LEAST_KEYS = 8, 256
AT_ONCE, PER_UNIT = 128, 4  # workgroups that run at once if no probe counted them, and how many there are for each
MOST_ROWS = 4  # queries of a workgroup: more take too many registers
SPARE = 1.25  # padding of rows that is worth more lanes for each

# Settings of `matrix_unit` for up to so many columns, the likeliest first; rows are padded to whole PADDED columns.
# Neither these nor those of `decode` were measured on a GPU: registers and workgroup memory decided.
UNITS: tuple[tuple[int, tuple[dict[str, Any], ...]], ...] = (
    (64, ({"bq": 64, "bk": 32, "sm": 16}, {"bq": 128, "bk": 32, "sm": 32})),
    (128, ({"bq": 128, "bk": 32, "sm": 32, "across": 2}, {"bq": 64, "bk": 32, "sm": 16})),
    (256, ({"bq": 64, "bk": 32, "sm": 16},)),
)
PADDED = 32
LEAST_UNIT = 16  # queries from which on matrix units pay off

ANYWHERE = (ThreeCalls(),)


def candidates(problem: Attention, device: Device) -> list[AttentionKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first."""
    p = problem
    columns, values = held(p.width), held(p.value_width)
    cpu = device.info.kind == "cpu"
    made = made_for_cpus(p, device.capabilities.subgroup_size) if cpu else []
    anywhere = [Online(columns, values, 8 if cpu else 32)] if max(columns, values) <= MOST_HELD else []
    return [*made, *(() if cpu else on_gpus(p, device.capabilities)), *anywhere]


def on_gpus(problem: Attention, device: Capabilities) -> Iterator[AttentionKernel]:
    """Yield the kernels made for GPUs, best first."""
    if problem.queries <= FEW and problem.keys >= LEAST_KEYS:
        yield from divided(problem, device)
    yield from on_matrix_units(problem, device)
    yield from tiles(problem, device)


def divided(problem: Attention, device: Capabilities) -> Iterator[Decode]:
    """Yield the kernel that divides the keys; none without subgroups of 8 lanes.

    There are PER_UNIT workgroups for each that runs at once, if every one has a step of keys.
    """
    p, lanes = problem, device.subgroup_size
    if lanes < 8 or max(p.width, p.value_width) > MOST_HELD:
        return
    sharers = next(n for n in (16 if max(p.width, p.value_width) > 128 else 8, 4, 2) if n == 2 or _suits(p, n))
    sharers = min(sharers, lanes)
    columns, values = (_padded(n, FOUR * sharers) for n in (p.width, p.value_width))
    tm = next((rows for rows in (1, 2) if p.group * p.queries <= rows), MOST_ROWS)
    whole = Decode(columns, values, lanes=lanes, sharers=sharers, tm=tm)
    x, y, _ = whole.dispatch(p)
    wanted = PER_UNIT * (device.workgroups or AT_ONCE)
    most = max(1, p.keys // whole.tile_k)
    yield replace(whole, splits=next((n for n in SPLITS if x * y * n >= wanted or 2 * n > most), SPLITS[-1]))


def _suits(problem: Attention, sharers: int) -> bool:
    """Tell whether so many lanes can share rows without much padding."""
    lengths = (problem.width, problem.value_width)
    return all(_padded(n, FOUR * sharers) <= SPARE * held(n) for n in lengths)


def _padded(width: int, step: int) -> int:
    """Return `width` rounded up to whole steps."""
    return step * ceil_div(width, step)


def on_matrix_units(problem: Attention, device: Capabilities) -> list[MatrixUnit]:
    """Return the kernels with fragments of float16 that `device` can run, the likeliest first."""
    p = problem
    stage = MatrixUnit.on(device)
    if p.dtype != F16 or p.queries < LEAST_UNIT or stage.matrix_shape not in device.matrix_shapes:
        return []
    columns, values = _padded(p.width, PADDED), _padded(p.value_width, PADDED)
    settings = next((each for most, each in UNITS if max(columns, values) <= most), ())
    made = [replace(stage, columns=columns, values=values, **each) for each in settings]
    return [kernel for kernel in made if kernel.check(p, device) is None]


def tiles(problem: Attention, device: Capabilities) -> Iterator[Blocked]:
    """Yield the kernels with tiles in workgroup memory, the largest tiles first, without those that do not fit."""
    p = problem
    if max(p.width, p.value_width) > MOST_HELD:
        return
    for bq, bk, tm, wx in TILES:
        each = FOUR * wx
        way = "subgroup" if device.subgroup_size >= wx else "tree"
        tile = Blocked(held(p.width), each * ceil_div(p.value_width, each), bq, bk, tm, wx, way)
        useful = bq < 2 * p.queries or (bq, bk, tm, wx) == TILES[-1]
        if useful and tile.workgroup_bytes <= device.limit("max-compute-workgroup-storage-size"):
            yield tile


def made_for_cpus(problem: Attention, lanes: int) -> list[AttentionKernel]:
    """Return the kernels made for CPUs with subgroups of `lanes` lanes; none if there are no subgroups (0).

    CPU time in ms on lavapipe, 8 heads × 512 tokens × 64 (two cores, busy): k and v from textures 30, with 8 keys of a
    lane 36, from buffers some 70; three calls 55. Handing scores, not weights, over to a loop over rows takes 44.
    Subgroups of four lanes are SwiftShader's, where textures are slower.
    """
    p = problem
    if lanes < LEAST_LANES:
        return []
    lanes = min(lanes, MOST_LANES)
    tn = FOUR * ceil_div(p.value_width, FOUR * lanes)
    if tn > MOST_COLUMNS:
        return []
    most = 8 if tn > WIDE else 16
    tm = next((rows for rows in FEW_ROWS if p.queries <= rows), most)
    tk = 16 if p.keys >= LONG and p.right < 0 and tm == 16 else 8
    buffers = Cpu(lanes, tm, 8, tn, "buffer")
    return [Cpu(lanes, tm, tk, tn), buffers] if lanes >= 8 and p.queries >= MANY else [buffers]
