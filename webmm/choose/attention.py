"""Candidates for attention, by rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from webmm.dtypes import F16
from webmm.engine.device import Device
from webmm.kernels.attention.base import FOUR, AttentionKernel, held
from webmm.kernels.attention.blocked import Blocked
from webmm.kernels.attention.cpu_lanes import CpuLanes
from webmm.kernels.attention.decode import CHUNK, SPLITS, Decode
from webmm.kernels.attention.matrix_unit import MatrixUnit
from webmm.kernels.attention.online import Online
from webmm.kernels.attention.pipelined import Pipelined
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

# bq, bk, tm, wx and span of `blocked`, from 48 KiB of workgroup memory down to 16 KiB. On an H100, 12 heads × 1,024
# tokens in float32, the first takes 185 µs for 64 columns and 335 for 128; with whole rows of q, 32 × 32 takes 567.
TILES = (
    *((128, 32, 4, 8, 16), (64, 32, 4, 8, 64), (64, 32, 4, 8, 16), (32, 32, 2, 8, 32)),
    *((32, 16, 2, 4, 16), (16, 16, 2, 4, 16), (8, 16, 1, 4, 16)),
)

# `pipelined` in two teams, from so many workgroups for each that runs at once and up to so many columns: bq, bk, tm,
# wx, span, direct and unroll. Device times on an H200 in float32, 71 problems under wgpu and 52 of them under Dawn, all
# but eleven random, each with seven settings: 32 × 32 tiles are the fastest where there is more than one workgroup for
# each multiprocessor, tiles of 64 keys where there is at most one, and of 16 queries where even these leave
# multiprocessors idle. On 57 other random problems this took 0.87 of the time of settings fitted on an H100 before,
# 1.20 at most; for the slowest of these, the row for 96 columns was added, with which none of ten takes more than 1.06.
TEAMS = (
    (1.05, 64, 32, 32, 4, 8, 16, "v", 4),
    (1.05, 128, 32, 32, 4, 8, 32, "v", 4),
    (0.52, 64, 32, 64, 4, 16, 32, "v", 4),
    (0.52, 96, 32, 32, 4, 8, 32, "none", 4),  # the former pads rows of v to 128 columns
    (0.52, 256, 32, 64, 4, 16, 32, "v", 4),
    (0.52, 128, 32, 32, 4, 8, 32, "v", 4),  # with less than 48 KiB of workgroup memory
    (1.0, 256, 32, 32, 4, 8, 32, "v", 4),
    (0.0, 256, 16, 64, 2, 16, 32, "v", 4),
    (0.0, 256, 16, 32, 2, 8, 32, "v", 2),
)
SHORTEST = 16  # queries or keys up to which `blocked` is faster
LEAST_BK = 32  # keys of a team: with more, there must be some for the second team

# Queries up to which keys are divided among lanes and workgroups, if these are at least LEAST_KEYS.
FEW, LEAST_KEYS = 8, 256
AT_ONCE = 128  # workgroups that run at once if no probe counted them
MOST_ROWS = 4  # queries of a workgroup: more take too many registers
WIDE_ROW = 96  # columns beyond which 16 lanes share a row
LARGE = 256  # invocations of a workgroup where each has 8 columns, of rows of 128 or for one or two queries
# Invocations of all workgroups for each that runs at once: all run together. On an H200, 32 heads over 8 with 8 × 8,192
# keys in float16 take 84 µs with 4 splits, 92 with 16 and 100 with 32 under Dawn.
INVOCATIONS = {1: 1024, 2: 1024, MOST_ROWS: 512}
LIGHT = 48  # bytes of a row that a lane has, up to which it loads four keys at once
CPU_SHARERS, CPU_SIZE = 4, 64  # lanes of a row at most, and invocations of a workgroup, on CPUs
SPARE = 1.25  # padding of rows that is worth more lanes for each

IDLE = 32  # queries of the tiles that are best where none of at least as many keeps the GPU busy

# Settings of `matrix_unit` for up to so many columns, the likeliest first; rows are padded to whole PADDED columns.
# Measured on an H100, as those of `decode`: the second one for 128 columns takes 9 % longer, but if the mask is causal
# 13 % less time, so that the order is reversed.
UNITS: tuple[tuple[int, tuple[dict[str, Any], ...]], ...] = (
    (64, ({"bq": 64, "bk": 16, "sm": 32}, {"bq": 64, "bk": 32, "sm": 16})),
    (96, ({"bq": 64, "bk": 32, "sm": 16}, {"bq": 64, "bk": 16, "sm": 32})),
    (128, ({"bq": 128, "bk": 16, "sm": 32}, {"bq": 128, "bk": 32, "sm": 32, "across": 2})),
    (256, ({"bq": 64, "bk": 32, "sm": 16},)),
)
PADDED, CAUSAL = 32, 128
LEAST_UNIT = 16  # queries from which on matrix units pay off

ANYWHERE = (ThreeCalls(),)


def candidates(problem: Attention, device: Device) -> list[AttentionKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first."""
    p = problem
    columns, values = held(p.width), held(p.value_width)
    cpu = device.info.kind == "cpu"
    made = made_for_cpus(p, device.capabilities.subgroup_size) if cpu else []
    anywhere = [Online(columns, values, 8 if cpu else 32)] if max(columns, values) <= MOST_HELD else []
    return [*made, *(() if cpu else on_gpus(p, device)), *anywhere]


def on_gpus(problem: Attention, device: Device) -> Iterator[AttentionKernel]:
    """Yield the kernels made for GPUs, best first."""
    if problem.queries <= FEW and problem.keys >= LEAST_KEYS:
        yield from divided(problem, device)
    yield from on_matrix_units(problem, device.capabilities)
    yield from tiles(problem, device.capabilities)


def divided(problem: Attention, device: Device) -> Iterator[Decode]:
    """Yield the kernel that divides the keys, of a large workgroup first where that is faster; none without 8 lanes.

    There are as many workgroups as run together, if every one has a step of keys.
    """
    p, lanes = problem, device.capabilities.subgroup_size
    if lanes < 8 or max(p.width, p.value_width) > MOST_HELD:
        return
    whole = in_chunks(p, undivided(p, lanes, 16 if max(p.width, p.value_width) > WIDE_ROW else 8))
    x, y, _ = whole.dispatch(p)
    together = INVOCATIONS[whole.tm] * (device.capabilities.workgroups or AT_ONCE) // (x * y)
    for sized in (whole, *([replace(whole, size=Decode.size)] if whole.size == LARGE else [])):
        most = min(together // sized.size, p.keys // sized.tile_k)
        yield replace(sized, splits=max(n for n in SPLITS if n == 1 or n <= most))  # a smaller one takes less memory


def undivided(problem: Attention, lanes: int, most: int) -> Decode:
    """Return the kernel for few queries, of which at most so many lanes share a row, with all keys in a workgroup."""
    p = problem
    sharers = min(lanes, next(n for n in (most, 4, 2) if n == 2 or _suits(p, n)))
    columns, values = (_padded(n, FOUR * sharers) for n in (p.width, p.value_width))
    each = max(columns, values) // sharers  # columns of a lane
    padded = p.dtype.itemsize == 2 and (columns, values) != (p.width, p.value_width)
    unroll = 2 if padded or each * p.dtype.itemsize > LIGHT else 4  # 80 columns, Dawn: 39 instead of 45 µs
    tm = next((rows for rows in (1, 2) if p.group * p.queries <= rows), MOST_ROWS)
    large = each == 8 and (sharers == 16 or tm < MOST_ROWS)
    return Decode(columns, values, LARGE if large else Decode.size, lanes, sharers, tm, unroll)


def in_chunks(problem: Attention, kernel: Decode) -> Decode:
    """Return the kernel with loads of 16 bytes if rows allow them and, for several queries, those of k a step ahead.

    On an H200, µs of a query of 32 heads over 8, 131,072 keys and 128 columns in float16 under Dawn and wgpu: 150 and
    145; with loads of 16 bytes 147 and 142; of k ahead, too, with three keys at once 140 and 136. In float32, which has
    loads of 16 bytes anyway, k ahead with two keys at once takes between 4 % less time and 4 % more: it is left out.
    """
    p = problem
    aligned = min(p.k.adjacent(p.width), p.v.adjacent(p.value_width)) == CHUNK
    chunked = p.dtype.itemsize == 2 and aligned and replace(kernel, chunk=CHUNK).invalid() is None
    if not chunked:
        return kernel
    found = replace(kernel, chunk=CHUNK)
    return replace(found, prefetch="k", unroll=3) if found.tm == MOST_ROWS else found


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
    most, settings = next(((most, each) for most, each in UNITS if max(columns, values) <= most), (0, ()))
    if most == CAUSAL and p.right >= 0:
        settings = (settings[1], settings[0])
    made = [replace(stage, columns=columns, values=values, **each) for each in settings]
    return [kernel for kernel in made if kernel.check(p, device) is None]


def tiles(problem: Attention, device: Capabilities) -> Iterator[Blocked]:
    """Yield the kernels with tiles in workgroup memory that fit, best first."""
    if max(problem.width, problem.value_width) > MOST_HELD:
        return
    yield from dict.fromkeys((*in_teams(problem, device), *blocked(problem, device)))


def in_teams(problem: Attention, device: Capabilities) -> Iterator[Pipelined]:
    """Yield the kernels whose teams divide the keys."""
    p = problem
    if min(p.queries, p.keys) <= SHORTEST:
        return
    seen = p.tile_pairs(p.queries)  # keys that any query sees
    for least, most, bq, bk, tm, wx, span, direct, unroll in TEAMS:
        columns = held(p.width) if p.width <= span else _padded(p.width, span)
        values, way = _padded(p.value_width, FOUR * wx), _way(device, wx)
        tile = Pipelined(columns, values, bq, bk, tm, wx, span, way, direct, 2, unroll)
        enough = _workgroups(tile, p) >= least * (device.workgroups or AT_ONCE)
        shared = seen > bk or bk == LEAST_BK
        if enough and shared and max(p.width, p.value_width) <= most and _fits(tile, device):
            yield tile


def blocked(problem: Attention, device: Capabilities) -> list[Blocked]:
    """Return the kernels of one team, the largest tiles that keep all of the GPU busy first."""
    p = problem
    fitting = []
    for bq, bk, tm, wx, span in TILES:
        columns = held(p.width) if p.width <= span else _padded(p.width, span)
        tile = Blocked(columns, _padded(p.value_width, FOUR * wx), bq, bk, tm, wx, span, _way(device, wx))
        padding = columns / held(p.width)
        if padding <= SPARE and _fits(tile, device):
            fitting.append(tile)
    wanted = device.workgroups or AT_ONCE
    busy = [tile for tile in fitting if _workgroups(tile, p) >= wanted]
    small = [tile for tile in fitting if tile.bq <= IDLE]
    first = busy if busy and busy[0].bq >= IDLE else small
    return [*first, *fitting]


def _way(device: Capabilities, sharers: int) -> str:
    """Return how so many invocations find their largest score."""
    return "subgroup" if device.subgroup_size >= sharers else "tree"


def _fits(tile: Blocked, device: Capabilities) -> bool:
    """Tell whether its tiles fit into workgroup memory."""
    return tile.workgroup_bytes <= device.limit("max-compute-workgroup-storage-size")


def _workgroups(tile: Blocked, problem: Attention) -> int:
    """Return the workgroups of a kernel."""
    return ceil_div(problem.queries, tile.bq) * problem.heads * problem.batch


def _few(problem: Attention) -> bool:
    """Tell whether the kernel for few queries is the fastest one on CPUs."""
    p = problem
    return p.queries <= MOST_ROWS and p.keys >= LEAST_KEYS and max(p.width, p.value_width) <= MOST_HELD


def made_for_cpus(problem: Attention, lanes: int) -> list[AttentionKernel]:
    """Return the kernels made for CPUs with subgroups of `lanes` lanes; none if there are no subgroups (0).

    CPU time in ms on lavapipe, 8 heads × 512 tokens × 64 (two cores, busy): k and v from textures 30, with 8 keys of a
    lane 36, from buffers some 70; three calls 55. Handing scores, not weights, over to a loop over rows takes 44.
    For few queries, `decode` takes 0.76 to 0.95 of the time of `cpu_lanes`, of heads in groups of four 0.26 to 0.44.
    Subgroups of four lanes are SwiftShader's, where textures are slower, and `decode` is no faster.
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
    buffers = CpuLanes(lanes, tm, 8, tn, "buffer")
    if lanes >= 8 and _few(p):
        return [replace(undivided(p, lanes, CPU_SHARERS), size=CPU_SIZE, unroll=1), buffers]
    return [CpuLanes(lanes, tm, tk, tn), buffers] if lanes >= 8 and p.queries >= MANY else [buffers]
