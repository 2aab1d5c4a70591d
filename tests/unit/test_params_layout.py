"""params.py against WGSL's layout rules; tests/gpu/test_params_engine.py checks them on the engine."""

import dataclasses
import struct
from dataclasses import dataclass

import pytest

from webmm.errors import ProblemError
from webmm.kernels.gemm.base import GemmParams
from webmm.wgsl.params import F32, I32, U32, Vec2F, Vec2U, Vec3F, Vec3U, Vec4F, Vec4U, layout, pack, wgsl_struct


@dataclass(frozen=True)
class Scalars:
    a: U32
    b: I32
    c: F32


@dataclass(frozen=True)
class ScalarAfterVec3:
    a: U32
    b: Vec3F  # aligned to 16, 12 bytes long
    c: U32  # so this sits in its tail


@dataclass(frozen=True)
class Vec3AfterVec3:
    a: Vec3U
    b: Vec3U


@dataclass(frozen=True)
class Ascending:
    a: U32
    b: Vec2U
    c: Vec3U
    d: Vec4U
    e: U32


@dataclass(frozen=True)
class Descending:
    a: Vec4F
    b: Vec3F
    c: Vec2F
    d: F32


@dataclass(frozen=True)
class Vec2Between:
    a: Vec2F
    b: U32
    c: Vec2F


# Offsets and size worked out by hand from https://www.w3.org/TR/WGSL/#alignment-and-size.
LAYOUTS = [
    (Scalars, [0, 4, 8], 12),
    (ScalarAfterVec3, [0, 16, 28], 32),
    (Vec3AfterVec3, [0, 16], 32),
    (Ascending, [0, 8, 16, 32, 48], 64),
    (Descending, [0, 16, 32, 40], 48),
    (Vec2Between, [0, 8, 16], 24),
]


@pytest.mark.parametrize(("cls", "offsets", "size"), LAYOUTS, ids=lambda value: getattr(value, "__name__", ""))
def test_offsets_and_size_follow_wgsl(cls, offsets, size):
    where = layout(cls)
    assert [member.offset for member in where.members] == offsets
    assert where.size == size


def test_pack_puts_every_component_at_its_offset():
    data = pack(Ascending(1, (2, 3), (4, 5, 6), (7, 8, 9, 10), 11))
    assert struct.unpack("<16I", data) == (1, 0, 2, 3, 4, 5, 6, 0, 7, 8, 9, 10, 11, 0, 0, 0)


def test_pack_keeps_sign_and_fraction():
    assert pack(Scalars(2**32 - 1, -(2**31), 0.5)) == struct.pack("<Iif", 2**32 - 1, -(2**31), 0.5)


@pytest.mark.parametrize(
    "params",
    [Scalars(2**32, 0, 0.0), Scalars(-1, 0, 0.0), Scalars(0, 2**31, 0.0), Scalars(0, 0, 1e39), Scalars(0.5, 0, 0.0)],
    ids=["u32 too large", "u32 negative", "i32 too large", "f32 too large", "u32 with a fraction"],
)
def test_pack_refuses_values_out_of_range(params):
    with pytest.raises(ProblemError, match="does not fit"):
        pack(params)


def test_pack_names_the_member_that_does_not_fit():
    with pytest.raises(ProblemError, match=r"^c = \(1, 2, 4294967296\) does not fit vec3<u32>"):
        pack(Ascending(0, (0, 0), (1, 2, 2**32), (0, 0, 0, 0), 0))


def test_struct_text_lists_members_in_order_with_their_docs():
    text = wgsl_struct(GemmParams, "Params")
    lines = text.splitlines()
    assert lines[0] == "struct Params {"
    assert lines[-1] == "}"
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [f.name for f in dataclasses.fields(GemmParams)]
    assert "    m: u32, // rows of A and C" in lines
