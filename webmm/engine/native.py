"""Submissions and mappings by the functions of webgpu.h, which the engines' packages, wgpu-py and wgpudawn, call, too.

The packages' own methods create an object and an error scope per call, which takes twice as long as everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webmm.engine.engine import Copy, Dispatch, Mapped

ALIVE = 0.5  # seconds between two checks, during a wait, that the device is not lost
SPIN = 2e-4  # seconds that a wait polls without sleeping; then it sleeps for an eighth of the time waited so far
MAX_SLEEP = 1e-3  # seconds of such a sleep at most
MAPPED = 1  # WebGPU's status of success


class Functions(NamedTuple):
    """The raw functions, the same functions with errors raised as exceptions, and cffi."""

    lib: Any
    checked: Any
    ffi: Any


def submit(functions: Functions, device: Any, dispatches: Sequence[Dispatch], copy: Copy | None) -> None:
    """Implement `Engine.submit()`."""
    lib, _, ffi = functions
    encoder = lib.wgpuDeviceCreateCommandEncoder(device._internal, ffi.NULL)
    if dispatches:
        _encode(functions, encoder, dispatches)
    if copy is not None:
        source, start, target, offset, size = copy
        lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, source._internal, start, target._internal, offset, size)
    _finish(functions, device, encoder)


def _encode(functions: Functions, encoder: Any, dispatches: Sequence[Dispatch]) -> None:
    """Encode dispatches in one compute pass."""
    lib, _, ffi = functions
    compute_pass = lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL)
    last, offsets = None, ffi.new("uint32_t[1]")
    for pipeline, bind_group, grid, offset in dispatches:
        if pipeline is not last:
            lib.wgpuComputePassEncoderSetPipeline(compute_pass, pipeline._internal)
            last = pipeline
        if offset is None:
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, bind_group._internal, 0, ffi.NULL)
        else:
            offsets[0] = offset
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, bind_group._internal, 1, offsets)
        lib.wgpuComputePassEncoderDispatchWorkgroups(compute_pass, *grid)
    lib.wgpuComputePassEncoderEnd(compute_pass)
    lib.wgpuComputePassEncoderRelease(compute_pass)


def _finish(functions: Functions, device: Any, encoder: Any) -> None:
    """Submit the encoder's commands; an engine reports errors of encoding only here."""
    lib, checked, ffi = functions
    try:
        commands = checked.wgpuCommandEncoderFinish(encoder, ffi.NULL)
    finally:
        lib.wgpuCommandEncoderRelease(encoder)
    try:
        checked.wgpuQueueSubmit(device.queue._internal, 1, [commands])
    finally:
        lib.wgpuCommandBufferRelease(commands)


# Mappings are polled instead of waited for: while a thread waits, as wgpu-py does for a mapping, wgpu blocks
# submissions of other threads.


def begin(functions: Functions, mapped: Mapped, callback_info: Any) -> Mapped:
    """Request `mapped`, whose status the callback of the C struct `callback_info` sets, and return it."""
    lib, checked, _ = functions
    flag = lib.WGPUMapMode_Read if mapped.mode == "READ" else lib.WGPUMapMode_Write
    mapped.future = checked.wgpuBufferMapAsync(mapped.buffer._internal, flag, 0, mapped.size, callback_info[0])
    return mapped


def wait(device: Any, ready: Callable[[], bool]) -> None:
    """Wait until `ready()`; raises an error of the engine if the device is lost."""
    start = last_check = time.perf_counter()
    while not ready():
        now = time.perf_counter()
        if now > last_check + ALIVE:  # the callback of a lost device may never come
            device.create_command_encoder().finish()  # raises if the device is lost
            last_check = now
        if now > start + SPIN:
            time.sleep(min((now - start) / 8, MAX_SLEEP))


def data(functions: Functions, mapped: Mapped, error: type[Exception]) -> NDArray[np.uint8]:
    """Return the bytes of a complete mapping; raises `error` if it failed."""
    if mapped.status != MAPPED:
        raise error(f"a buffer could not be mapped (status {mapped.status})")
    lib, _, ffi = functions
    get = lib.wgpuBufferGetConstMappedRange if mapped.mode == "READ" else lib.wgpuBufferGetMappedRange
    pointer = get(mapped.buffer._internal, 0, mapped.size)
    if pointer == ffi.NULL:
        raise error("a mapped buffer has no memory")
    return np.frombuffer(ffi.buffer(pointer, mapped.size), np.uint8)


def unmap(functions: Functions, mapped: Mapped) -> None:
    """Implement `Engine.unmap()`."""
    functions.lib.wgpuBufferUnmap(mapped.buffer._internal)


def subgroup_sizes(adapter_info: Mapping[str, Any]) -> tuple[int, int]:
    """Return the range of subgroup sizes that an adapter reports, under wgpu-py's misspelt names; zeros for none."""
    return int(adapter_info["stackgroup_min_size"] or 0), int(adapter_info["stackgroup_max_size"] or 0)
