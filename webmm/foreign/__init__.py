"""Foreign shaders: plain WGSL files, written elsewhere, that compute C = A·B of dense row-major matrices."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

from webmm.engine.device import Array, Device
from webmm.engine.launch import Launch
from webmm.errors import ConfigError, ProblemError, UnsupportedError
from webmm.foreign.counts import Counts
from webmm.foreign.lanes import in_reverse, workgroup_size_of
from webmm.kernels.base import MAX_WORKGROUPS, Binding

MATRICES = ("a", "b", "c")
LENGTHS = ("m", "n", "k")
Size = tuple[int, int, int]

_STORAGE = r"@binding\(\s*{}\s*\)\s*(?:@group\(\s*0\s*\)\s*)?var<\s*{}\s*(?:,\s*(\w+)\s*)?>"
_CONSTANT = r"\b((?:const|override)\s+{}\s*(?::\s*\w+\s*)?=\s*)\d+([ui]?)\s*;"


@dataclass(frozen=True)
class Foreign:
    """A WGSL text, with what a host must know to run it.

    `bindings` names the matrices in the order of their bindings in group 0. If `uniform` is given, binding 0 is a
    uniform with these u32 members, and the matrices follow from 1 on; otherwise they begin at 0. `constants` names
    constants or overrides of the text that hold sizes, such as M, N and K; they are set for each size. Raises
    ConfigError if the text contradicts this.
    """

    name: str
    text: str
    bindings: tuple[str, ...]
    workgroup: tuple[int, int, int]
    grid: Counts
    uniform: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    entry: str = "main"

    def __post_init__(self) -> None:
        if sorted(self.bindings) != list(MATRICES):
            raise ConfigError(f"--bindings must name a, b and c, each once, not {','.join(self.bindings)!r}")
        for length in self.uniform:
            if length not in LENGTHS:
                raise ConfigError(f"--uniform must name m, n or k, not {length!r}")
        for constant in self.constants:
            if constant.lower() not in LENGTHS:
                raise ConfigError(f"--constants must be called m, n and k, or M, N and K, not {constant!r}")
            if not re.search(_CONSTANT.format(constant), self.text):
                raise ConfigError(f"{self.name} has no constant {constant} with a number as its value")
        declared = workgroup_size_of(self.text, self.entry)
        if declared and declared != self.workgroup:
            sizes = " and ".join(",".join(map(str, size)) for size in (declared, self.workgroup))
            raise ConfigError(f"the text and --workgroup disagree about the workgroup size: {sizes}")
        self.layout()  # raises ConfigError if a binding is missing

    def layout(self) -> tuple[Binding, ...]:
        """Return the bindings as the text declares them."""
        if not self.uniform and re.search(_STORAGE.format(0, "uniform"), self.text):
            raise ConfigError(f"binding 0 of {self.name} is a uniform: name its members with --uniform, e.g. m,n,k")
        found = [self._binding(0, "uniform", "sizes")] if self.uniform else []
        found += [self._binding(i, "storage", name) for i, name in enumerate(self.bindings, len(found))]
        return tuple(found)

    def _binding(self, number: int, space: str, name: str) -> Binding:
        declared = re.search(_STORAGE.format(number, space), self.text)
        if not declared:
            raise ConfigError(f"{self.name} has no @binding({number}) var<{space}…> for {name}")
        if space == "uniform":
            return Binding(number, name, "uniform", "")
        writable = declared[1] in ("read_write", "write")
        if writable != (name == "c"):
            raise ConfigError(f"binding {number} of {self.name}, {name}, is var<storage, {declared[1] or 'read'}>")
        return Binding(number, name, "storage" if writable else "read-only-storage", "")

    @property
    def sized(self) -> bool:
        """Whether the host passes the sizes; otherwise they are fixed in the text."""
        return bool(self.uniform or self.constants)

    def for_size(self, size: Size) -> str:
        """Return the text with its constants set."""
        text, lengths = self.text, dict(zip(LENGTHS, size, strict=True))
        for constant in self.constants:
            text = re.sub(_CONSTANT.format(constant), rf"\g<1>{lengths[constant.lower()]}\g<2>;", text)
        return text

    def reversed(self) -> Foreign:
        """Return the same shader with the invocations of a workgroup in reverse order.

        Raises ConfigError if the text uses subgroups or does not take invocation indices as parameters.
        """
        if "subgroup" in self.text:
            raise ConfigError("the order of invocations cannot be reversed: the text uses subgroups")
        return dataclasses.replace(self, text=in_reverse(self.text, self.workgroup, self.entry))

    def launch(self, device: Device, size: Size, arrays: dict[str, Array]) -> Launch:
        """Prepare to compute C (m, n) from A (m, k) and B (k, n), each at the start of its array in `arrays`.

        Raises UnsupportedError for a workgroup or grid beyond the device's limits, ProblemError for an empty grid,
        ShaderError if the engine rejects the text.
        """
        grid, limits = self.grid.of(size), device.capabilities
        if math.prod(self.workgroup) > (most := limits.limit("max-compute-invocations-per-workgroup")):
            raise UnsupportedError(
                f"a workgroup of {math.prod(self.workgroup)} invocations is too large; {device.info} allows {most}"
            )
        if min(grid) < 1:
            raise ProblemError(f"the grid {self.grid} has no workgroups for {'x'.join(map(str, size))}: {grid}")
        if max(grid) > MAX_WORKGROUPS:
            raise UnsupportedError(
                f"the grid {self.grid} has {max(grid):,} workgroups along an axis; the limit is 65,535"
            )
        pipeline = device.compile(self.for_size(size), self.name, self.layout(), self.entry)
        resources: list[Any] = [self._uniform(device, size)] if self.uniform else []
        resources += [(arrays[name].storage.buffer, 0, arrays[name].nbytes) for name in self.bindings]
        return Launch(pipeline, device.bind(pipeline, resources), grid, label=self.name)

    def _uniform(self, device: Device, size: Size) -> Any:
        lengths = dict(zip(LENGTHS, size, strict=True))
        data = struct.pack(f"<{len(self.uniform)}I", *(lengths[name] for name in self.uniform))
        data += bytes(-len(data) % 16)
        return device.wgpu_device.create_buffer_with_data(data=data, usage=device.engine.api.BufferUsage.UNIFORM)
