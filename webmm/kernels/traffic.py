"""What a kernel does to a machine, counted from tile sizes and the problem's: what a model of time starts from."""

from __future__ import annotations

from typing import NamedTuple


class Traffic(NamedTuple):
    """One dispatch: workgroups that each take `steps` steps of a loop over the inner dimension.

    Counts without another word are instructions per invocation and step; what is written is counted once, at the end.
    """

    workgroups: int
    invocations: int  # per workgroup
    steps: int
    fmas: float
    vector_loads: float  # of vec4 from storage
    scalar_loads: float  # of single elements from storage
    workgroup_loads: float = 0  # of vec4 from workgroup memory
    workgroup_stores: float = 0  # to workgroup memory, in times that its banks are busy
    barriers: float = 0
    registers: int = 32
    workgroup_bytes: int = 0
    loaded: float = 0  # bytes per workgroup and step that come from storage or a cache
    read: int = 0  # bytes in all that come from storage at least
    written: int = 0  # bytes in all that go there
    waste: float = 1  # elements of the result that tiles cover, for each that there is
    scalar_stores: float = 0  # single elements that an invocation writes in the end
    vector_stores: float = 0  # vec4
    meetings: float = 0  # vec4 per invocation that go through workgroup memory in the end

    @property
    def loads_per_fma(self) -> float:
        """Loads from storage and workgroup memory for each FMA of four elements."""
        return 4 * (self.vector_loads + self.scalar_loads + self.workgroup_loads) / self.fmas
