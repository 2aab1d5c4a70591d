"""The work of a dispatch, counted from the tunables and the problem's sizes: the input of the cost model."""

from __future__ import annotations

from typing import Any, NamedTuple


class Traffic(NamedTuple):
    """One dispatch, whose workgroups each run `steps` steps of a loop over the inner dimension.

    Counts without a comment on their unit are instructions per invocation and step; stores are per invocation, at the
    end.
    """

    workgroups: int
    invocations: int  # per workgroup
    steps: int
    fmas: float  # multiply-adds of what the kernel multiplies with: floats, words of four bytes, or matrix units
    vector_loads: float  # of four elements from storage: 16 bytes of float32
    scalar_loads: float  # of single elements, or words, from storage
    workgroup_loads: float = 0  # of vec4 from workgroup memory
    workgroup_stores: float = 0  # to workgroup memory, weighted by bank conflicts
    barriers: float = 0
    registers: int = 32
    workgroup_bytes: int = 0
    loaded: float = 0  # bytes per workgroup and step from storage or a cache
    read: int = 0  # bytes read from storage in total, each element once
    written: int = 0  # bytes written to storage in total
    waste: float = 1  # elements covered by tiles, divided by elements of the result
    scalar_stores: float = 0  # stores of single elements
    vector_stores: float = 0  # stores of vec4
    exchanged: float = 0  # vec4 of sums per invocation that are added through workgroup memory at the end
    texels: float = 0  # loads of vec4 from a texture
    shuffles: float = 0  # vec4 that the lanes of a subgroup exchange


class Loads(NamedTuple):
    """How the invocations of a workgroup load their shares of a tile in one step."""

    vectors: float  # of four elements, per invocation
    scalars: float  # single elements or words, per invocation
    stores: float  # to workgroup memory, per invocation, as in `Traffic`
    nbytes: float  # of the whole tile


def loads_per_fma(traffic: Traffic) -> float:
    """Return the loads from storage, textures and workgroup memory per vec4 FMA of a kernel that multiplies floats."""
    t = traffic
    return 4 * (t.vector_loads + t.scalar_loads + t.texels + t.workgroup_loads) / t.fmas


class Moved(NamedTuple):
    """The operations of a problem, and the bytes that a kernel moves for them."""

    flops: float
    storage: float  # read and written in storage buffers
    least: int  # the minimum: each operand and result once
    workgroup: float | None  # read and written in workgroup memory; None if it is not known


def moved(kernel: Any, problem: Any) -> Moved:
    """Return what a kernel moves: counted for the cost model, or by itself, or from its tiles, or each buffer once."""
    t: Traffic | None = kernel.traffic(problem)
    if t:
        workgroup = 16 * t.workgroups * t.invocations * t.steps * (t.workgroup_loads + t.workgroup_stores)
        return Moved(problem.flops, t.workgroups * t.steps * t.loaded + t.written, problem.bytes, workgroup)
    within = None if kernel.workgroup_bytes else 0
    if hasattr(kernel, "moves"):
        return Moved(problem.flops, kernel.moves(problem), problem.bytes, within)
    tile_m, tile_n = (kernel.grid.tile_m, kernel.grid.tile_n) if hasattr(kernel, "grid") else (0, 0)
    down, across = 1, 1
    if tile_m and tile_n and hasattr(problem, "k"):
        down, across = -(-problem.m // tile_m), -(-problem.n // tile_n)
    times = {each.name: 1 if each.written else across if each.name == "a" else down for each in problem.buffers()}
    storage = sum(each.nbytes * times[each.name] for each in problem.buffers())
    return Moved(problem.flops, storage, problem.bytes, within)
