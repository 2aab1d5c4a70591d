"""Candidates for attention, by rules."""

from __future__ import annotations

from webmm.engine.device import Device
from webmm.kernels.attention.base import FOUR, AttentionKernel, held
from webmm.kernels.attention.cpu import Cpu
from webmm.kernels.attention.online import Online
from webmm.kernels.attention.three_calls import ThreeCalls
from webmm.kernels.base import ceil_div
from webmm.problems.attention import Attention

MOST_HELD = 256  # columns that an invocation holds
MOST_LANES = 16  # of CPU drivers' subgroups
LEAST_LANES = 4
LONG = 512  # keys from which on a lane has more of them
MANY = 64  # queries from which on copies of k and v in textures pay off on CPUs
FEW_ROWS = (1, 4, 8)  # of the only tile of queries; otherwise tiles have 16
WIDE, MOST_COLUMNS = 16, 64  # columns of v of a lane from which on tiles have fewer rows, and at most

ANYWHERE = (ThreeCalls(),)


def candidates(problem: Attention, device: Device) -> list[AttentionKernel]:
    """Return the kernels that rules choose for `problem` on `device`, best first."""
    p = problem
    columns, values = held(p.width), held(p.value_width)
    cpu = device.info.kind == "cpu"
    made = made_for_cpus(p, device.capabilities.subgroup_size) if cpu else []
    anywhere = [Online(columns, values, 8 if cpu else 32)] if max(columns, values) <= MOST_HELD else []
    return [*made, *anywhere]


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
