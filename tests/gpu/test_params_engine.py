"""The struct declared by params.py, read back on the engine: it must see the values that the host packed."""

import struct
from dataclasses import astuple, dataclass

import numpy as np
import pytest
import wgpu

from webmm.dtypes import F32 as FLOAT
from webmm.engine.launch import Launch
from webmm.engine.timing import submit
from webmm.kernels.base import Binding
from webmm.kernels.gemm.base import GemmParams
from webmm.problems.gemm import Gemm
from webmm.problems.product import Operand
from webmm.wgsl.params import F32, I32, U32, Vec2F, Vec2U, Vec3F, Vec3U, Vec4F, Vec4U, layout, pack, wgsl_struct


@dataclass(frozen=True)
class Scalars:
    a: U32
    b: I32
    c: F32


@dataclass(frozen=True)
class ScalarAfterVec3:
    a: U32
    b: Vec3F
    c: U32  # in the tail of b


@dataclass(frozen=True)
class Vec3AfterVec3:
    a: Vec3U
    b: Vec3U
    c: Vec2F


@dataclass(frozen=True)
class Ascending:
    a: U32
    b: Vec2U
    c: Vec3U
    d: Vec4U
    e: F32


@dataclass(frozen=True)
class Descending:
    a: Vec4F
    b: Vec3F
    c: Vec2F
    d: I32


VALUES = [
    Scalars(2**32 - 1, -(2**31), 0.1),
    ScalarAfterVec3(1, (2.5, 3.5, -4.5), 5),
    Vec3AfterVec3((1, 2, 3), (4, 5, 6), (7.5, 8.5)),
    Ascending(1, (2, 3), (4, 5, 6), (7, 8, 9, 10), 11.5),
    Descending((1.5, 2.5, 3.5, 4.5), (5.5, 6.5, 7.5), (8.5, 9.5), -10),
    GemmParams.of(Gemm(2, 3, 4, 5, FLOAT, FLOAT, Operand(6, 7, 8), Operand(9, 10, 11), Operand(12, 13, 14))),
]


def read_back(device, params):
    """Return every component of `params`, in order, as the 32-bit word that a shader reads from its uniform."""
    components = [
        f"params.{member.name}" + (f".{'xyzw'[i]}" if member.count > 1 else "")
        for member in layout(type(params)).members
        for i in range(member.count)
    ]
    copies = "\n".join(f"    result[{i}] = bitcast<u32>({component});" for i, component in enumerate(components))
    text = f"""
{wgsl_struct(type(params), "Params")}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(1)
fn main() {{
{copies}
}}"""
    bindings = (Binding(0, "params", "uniform", "Params"), Binding(1, "result", "storage", "array<u32>"))
    pipeline = device.compile(text, "params", bindings)
    uniform = device.wgpu_device.create_buffer_with_data(data=pack(params), usage=wgpu.BufferUsage.UNIFORM)
    with device.empty((len(components),)) as result:
        launch = Launch(pipeline, device.bind(pipeline, [uniform, result.storage.buffer]), (1, 1, 1), 0)
        submit(device, launch)
        return result.numpy().view(np.uint32).tolist()


def words(params):
    """Return the components of `params` as 32-bit words, in order, without padding."""
    found = []
    for member, value in zip(layout(type(params)).members, astuple(params), strict=True):
        code = {"u32": "I", "i32": "i", "f32": "f"}[member.scalar]
        for component in value if member.count > 1 else (value,):
            found += struct.unpack("<I", struct.pack(f"<{code}", component))
    return found


@pytest.mark.parametrize("params", VALUES, ids=lambda params: type(params).__name__)
def test_the_engine_reads_what_the_host_packed(device, params):
    assert read_back(device, params) == words(params)
