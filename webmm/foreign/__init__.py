"""Foreign shaders: plain WGSL files, written elsewhere, that compute problems of an op, or an array in a file."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webmm.engine.device import Array, Device
from webmm.engine.launch import Launch
from webmm.errors import ConfigError, ProblemError, UnsupportedError
from webmm.foreign.counts import Counts, check_names, listed
from webmm.foreign.lanes import in_reverse, workgroup_size_of
from webmm.foreign.tunables import check_constant, check_tunables, with_constants
from webmm.kernels.base import MAX_WORKGROUPS, Binding

_STORAGE = r"@binding\(\s*{}\s*\)\s*(?:@group\(\s*0\s*\)\s*)?var<\s*{}\s*(?:,\s*(\w+)\s*)?>"


@dataclass(frozen=True)
class Signature:
    """The names of what a text may bind: its buffers, the one of these that it writes, and lengths, all u32."""

    buffers: tuple[str, ...] = ("a", "b", "c")
    written: str = "c"
    lengths: tuple[str, ...] = ("m", "n", "k")


PRODUCT = Signature()


@dataclass(frozen=True)
class Foreign:
    """A WGSL text, with what a host must know to run it.

    `bindings` names the buffers of the signature in the order of their bindings in group 0. If `uniform` is given,
    binding 0 is a uniform with these u32 members, and the buffers follow from 1 on; otherwise they begin at 0.
    `constants` names constants or overrides of the text that hold lengths, such as M, N and K; they are set for each
    size. `tunables` has the values to try of other constants or overrides; the first ones are set. `workgroup` is a
    formula of the tunables, `grid` one of lengths and tunables. Raises ConfigError if the text contradicts this.
    """

    name: str
    text: str
    bindings: tuple[str, ...]
    workgroup: Counts
    grid: Counts
    uniform: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    entry: str = "main"
    signature: Signature = PRODUCT
    tunables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.signature
        if sorted(self.bindings) != sorted(known.buffers):
            given = ",".join(self.bindings)
            raise ConfigError(f"--bindings must name {listed(known.buffers, 'and')}, each once, not {given!r}")
        check_names(self.uniform, known.lengths, "--uniform")
        for constant in self.constants:
            if constant.lower() not in known.lengths:
                names, capitals = (listed(each, "and") for each in (known.lengths, [x.upper() for x in known.lengths]))
                raise ConfigError(f"--constants must be called {names}, or {capitals}, not {constant!r}")
            check_constant(self.text, self.name, constant)
        check_tunables(self.text, self.name, self.tunables, known.lengths)
        declared, size = workgroup_size_of(self.for_size({}), self.entry), self.invocations
        if min(size) < 1:
            raise ConfigError(f"a workgroup size is one to three numbers of at least 1, not {self.workgroup}")
        if declared and declared != size:
            sizes = " and ".join(",".join(map(str, each)) for each in (declared, size))
            raise ConfigError(f"the text and --workgroup disagree about the workgroup size: {sizes}")
        self.layout()  # raises ConfigError if a binding is missing

    def __str__(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.name}({settings})" if settings else self.name

    @property
    def config(self) -> dict[str, int]:
        """The value of each tunable, as in records."""
        return {name: values[0] for name, values in self.tunables.items()}

    @property
    def matrix_shape(self) -> None:
        """Nothing is known of the matrix units that a text uses."""
        return

    @property
    def invocations(self) -> tuple[int, int, int]:
        """The workgroup size."""
        return self.workgroup.of(self.config)

    def configured(self, config: Mapping[str, int]) -> Foreign:
        """Return the same text with these values of the tunables."""
        return dataclasses.replace(self, tunables={name: (value,) for name, value in config.items()})

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
        if writable != (name == self.signature.written):
            raise ConfigError(f"binding {number} of {self.name}, {name}, is var<storage, {declared[1] or 'read'}>")
        return Binding(number, name, "storage" if writable else "read-only-storage", "")

    @property
    def sized(self) -> bool:
        """Whether the host passes the sizes; otherwise they are fixed in the text."""
        return bool(self.uniform or self.constants)

    def for_size(self, lengths: Mapping[str, int]) -> str:
        """Return the text with its tunables set, and those of its constants whose lengths are given."""
        fixed = {name: lengths[name.lower()] for name in self.constants if name.lower() in lengths}
        return with_constants(self.text, self.config | fixed)

    def reversed(self) -> Foreign:
        """Return the same shader with the invocations of a workgroup in reverse order.

        Raises ConfigError if the text uses subgroups or does not take invocation indices as parameters.
        """
        if "subgroup" in self.text:
            raise ConfigError("the order of invocations cannot be reversed: the text uses subgroups")
        return dataclasses.replace(self, text=in_reverse(self.text, self.invocations, self.entry))

    def launch(
        self, device: Device, lengths: Mapping[str, int], arrays: Mapping[str, Array], recorded: Array | None = None
    ) -> Launch:
        """Prepare to compute the result for `lengths`, with each buffer at the start of its array in `arrays`.

        `recorded` is bound after them, for debug lines (webmm.foreign.trace). Raises UnsupportedError for a workgroup
        or grid beyond the device's limits, ProblemError for an empty grid, ShaderError if the engine rejects the text.
        """
        grid, limits = self.grid.of({**lengths, **self.config}), device.capabilities
        if math.prod(self.invocations) > (most := limits.limit("max-compute-invocations-per-workgroup")):
            raise UnsupportedError(
                f"a workgroup of {math.prod(self.invocations)} invocations is too large; {device.info} allows {most}"
            )
        if min(grid) < 1:
            raise ProblemError(f"the grid {self.grid} has no workgroups for {_words(lengths)}: {grid}")
        if max(grid) > MAX_WORKGROUPS:
            raise UnsupportedError(
                f"the grid {self.grid} has {max(grid):,} workgroups along an axis; the limit is 65,535"
            )
        layout = self.layout()
        if recorded is not None:
            layout = (*layout, Binding(len(layout), "debug", "storage", ""))
        pipeline = device.compile(self.for_size(lengths), self.name, layout, self.entry)
        resources: list[Any] = [self._uniform(device, lengths)] if self.uniform else []
        bound = [arrays[name] for name in self.bindings] + ([] if recorded is None else [recorded])
        resources += [(array.storage.buffer, 0, array.nbytes) for array in bound]
        return Launch(pipeline, device.bind(pipeline, resources), grid, 0 if self.uniform else None, label=self.name)

    def _uniform(self, device: Device, lengths: Mapping[str, int]) -> Any:
        data = struct.pack(f"<{len(self.uniform)}I", *(lengths[name] for name in self.uniform))
        data += bytes(-len(data) % 16)
        return device.wgpu_device.create_buffer_with_data(data=data, usage=device.engine.api.BufferUsage.UNIFORM)


def _words(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in lengths.items())
