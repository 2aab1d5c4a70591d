"""What a device keeps, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStats:
    """What a device keeps: bytes of its arrays, and of buffers that wait for new ones; prepared launches, each with its
    bind groups; pipelines, and scratch.

    The bytes of pipelines are host memory, estimated from their texts; `pipeline_limit` is what they may take.
    """

    array_bytes: int
    pool_bytes: int
    pool_limit: int
    launches: int
    pipelines: int
    pipeline_bytes: int
    pipeline_limit: int
    scratch: int
