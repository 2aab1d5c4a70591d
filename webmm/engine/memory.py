"""Memory statistics of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStats:
    """Memory held by a device: bytes in arrays and in idle pooled buffers, with the pool's limit; the numbers of
    prepared launches (each with its bind groups), pipelines, and scratch buffers and textures.

    The bytes of pipelines are host memory, estimated from the length of their WGSL; `pipeline_limit` is their maximum.
    """

    array_bytes: int
    pool_bytes: int
    pool_limit: int
    launches: int
    pipelines: int
    pipeline_bytes: int
    pipeline_limit: int
    scratch: int
