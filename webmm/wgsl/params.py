"""Uniforms: a dataclass as the bytes of a uniform buffer, and as the WGSL struct that reads them.

Sizes and alignments follow WGSL (https://www.w3.org/TR/WGSL/#alignment-and-size), for 32-bit scalars and vectors of
them, and for f64 in place of f32 in shaders of float64. All offsets are computed.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from webmm.errors import ProblemError

U32 = Annotated[int, "u32"]
I32 = Annotated[int, "i32"]
F32 = Annotated[float, "f32"]
Vec2U = Annotated[tuple[int, int], "vec2<u32>"]
Vec3U = Annotated[tuple[int, int, int], "vec3<u32>"]
Vec4U = Annotated[tuple[int, int, int, int], "vec4<u32>"]
Vec2I = Annotated[tuple[int, int], "vec2<i32>"]
Vec2F = Annotated[tuple[float, float], "vec2<f32>"]
Vec3F = Annotated[tuple[float, float, float], "vec3<f32>"]
Vec4F = Annotated[tuple[float, float, float, float], "vec4<f32>"]

_FORMAT = {"u32": "I", "i32": "i", "f32": "f", "f64": "d"}
_BYTES = {scalar: struct.calcsize(code) for scalar, code in _FORMAT.items()}


def member(doc: str) -> Any:
    """Declare a field of a uniform, with its comment in WGSL."""
    return dataclasses.field(metadata={"doc": doc})


@dataclass(frozen=True)
class Member:
    """A member of the WGSL struct: its byte offset, type and number of components."""

    name: str
    type: str
    scalar: str
    count: int
    offset: int
    doc: str


@dataclass(frozen=True)
class Layout:
    """The struct's members in order, and its size in bytes."""

    members: tuple[Member, ...]
    size: int


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def layout(cls: type[Any], real: str = "f32") -> Layout:
    """Return WGSL's layout of the dataclass `cls`; its size is that of a uniform binding.

    Numbers declared as f32 have the type `real`.
    """
    return _layout(cls, real)  # type: ignore[arg-type]  # mypy: a class is no Hashable


@functools.cache  # reading annotations takes longer than the rest of a launch
def _layout(cls: Hashable, real: str) -> Layout:
    assert isinstance(cls, type)
    members, offset, align = [], 0, 4
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        wgsl = get_args(hints[field.name])[1].replace("f32", real)
        scalar = wgsl[-4:-1] if wgsl.startswith("vec") else wgsl
        count = int(wgsl[3]) if wgsl.startswith("vec") else 1
        alignment = _BYTES[scalar] * {1: 1, 2: 2, 3: 4, 4: 4}[count]
        offset = _round_up(offset, alignment)
        members.append(Member(field.name, wgsl, scalar, count, offset, field.metadata.get("doc", "")))
        offset, align = offset + _BYTES[scalar] * count, max(align, alignment)
    return Layout(tuple(members), _round_up(offset, align))


def pack(params: Any, real: str = "f32") -> bytes:
    """Return the bytes of the dataclass instance `params` in its WGSL layout; `real` is as for `layout()`.

    Raises ProblemError if a value does not fit its member.
    """
    where = layout(type(params), real)
    data = bytearray(where.size)
    for member in where.members:
        value = getattr(params, member.name)
        values = value if member.count > 1 else (value,)
        try:
            struct.pack_into(f"<{member.count}{_FORMAT[member.scalar]}", data, member.offset, *values)
        except (struct.error, OverflowError) as error:
            advice = "pass a number within its range" if member.scalar == "f32" else "use a smaller problem"
            raise ProblemError(f"{member.name} = {value} does not fit {member.type}; {advice}") from error
    return bytes(data)


def wgsl_struct(cls: type[Any], name: str, real: str = "f32") -> str:
    """Return the WGSL declaration of the dataclass `cls` as a struct called `name`; `real` is as for `layout()`."""
    lines = [f"    {m.name}: {m.type}," + (f" // {m.doc}" if m.doc else "") for m in layout(cls, real).members]
    return "\n".join([f"struct {name} {{", *lines, "}"])
