"""When 8-bit products use matrix units by default: if the device has them and they were measured to be faster."""

import dataclasses

import pytest

from webmm.cases.quantized import QuantizedOp
from webmm.choose.quantized import made_for_matrix_units
from webmm.dtypes import F32
from webmm.kernels.base import Capabilities, MatrixShape
from webmm.kernels.quantized.matrix_unit import MatrixUnit

SHAPES = [MatrixShape("i8", "i32", 16, n, 32) for n in (8, 16)] + [MatrixShape("u8", "u32", 16, 16, 32)]
ABLE = Capabilities("able", {}, frozenset(), subgroup_size=32, matrix_shapes=frozenset(SHAPES))


def candidates(size, dtype="int8", layout="nn", device=ABLE):
    return made_for_matrix_units(QuantizedOp().problem(size, dtype, layout), device)


@pytest.mark.parametrize(
    ("size", "tile"),
    [((2048, 2048, 64), (128, 128)), ((1024, 1024, 64), (64, 64)), ((512, 512, 64), (32, 64)), ((512, 448, 64), None)],
)
def test_tiles_fill_the_device_or_there_are_none(size, tile):
    kernels = candidates(size)
    assert [(k.bm, k.bn) for k in kernels[:1]] == ([tile] if tile else [])
    assert all((k.fm, k.fn, k.fk, k.lanes, k.operands) == (16, 16, 32, 32, "i8") for k in kernels)


def test_uint8_needs_no_conversion_if_the_device_supports_it():
    size = (2048, 2048, 64)
    assert candidates(size, "uint8")[0].operands == "u8"
    signed = dataclasses.replace(ABLE, matrix_shapes=frozenset(s for s in SHAPES if s.operands == "i8"))
    assert candidates(size, "uint8", device=signed)[0].operands == "i8"


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_layout_has_a_candidate(layout):
    for size in ((2048, 2048, 64), (1024, 1024, 64), (512, 512, 64)):
        assert candidates(size, layout=layout)
    assert candidates((2048, 2048, 64), layout=layout)[0].sn == (32 if layout == "nt" else 64)


def test_more_subgroups_only_for_results_of_bytes():
    problem = QuantizedOp().problem((2048, 2048, 64), "int8", "nt")
    floats = dataclasses.replace(problem, out_dtype=F32)
    assert [made_for_matrix_units(p, ABLE)[0].sn for p in (problem, floats)] == [32, 64]


def test_no_candidates_without_byte_fragments():
    floats = frozenset({MatrixShape("f16", "f32", 16, 16, 16)})
    for shapes in (frozenset(), floats):
        assert not candidates((2048, 2048, 64), device=dataclasses.replace(ABLE, matrix_shapes=shapes))
    assert MatrixUnit.on(dataclasses.replace(ABLE, matrix_shapes=frozenset())) == MatrixUnit()
