"""Attention on matrix units, with emulated fragments: right on lavapipe, valid for Tint; and for few queries."""

import dataclasses
import re

import emulation
import pytest

from webmm.cases import OPS
from webmm.dtypes import F16, F32
from webmm.kernels.attention.decode import Decode
from webmm.kernels.attention.matrix_unit import MatrixUnit
from webmm.measure.selftest import prove
from webmm.wgsl import tint
from webmm.wgsl.render import render

OP = OPS["attention"]
EXAMPLES = dict(OP.examples())
SMALL = {"bq": 16, "bk": 16, "sm": 8, "fm": 8, "fn": 8, "fk": 8, "lanes": 8, "columns": 16, "values": 16}

# Fragments are slots of arrays in each lane, which has all elements of Left and Right, and its own ones of Result.
FRAGMENTS = """
const OWN: u32 = FM * FN / LANES;
var<private> halves: array<array<f32, {size}>, {slots}>;
var<private> sums: array<array<f32, OWN>, {slots}>;

fn multiply_add(left: u32, right: u32, acc: u32, lane: u32) {{
    let one = min(params.keys, 1u); // unknown at compile time, so that drivers do not unroll the loops
    for (var own = 0u; own < OWN * one; own++) {{
        let e = lane * OWN + own;
        for (var k = 0u; k < FK * one; k++) {{
            sums[acc][own] += halves[left][e / FN * FK + k] * halves[right][k * FN + e % FN];
        }}
    }}
}}
"""
LOAD = re.compile(r"(?:let )?(\w+) = subgroupMatrixLoad<(\w+), (\w+)_major>\(&(.+?), ([^,]+), (\w+|FN / 4u)\);")
STORE = re.compile(r"subgroupMatrixStore<row_major>\(&(.+?), ([^,]+), (\w+), ([^)]+)\);")
MULTIPLY = re.compile(r"(\w+) = subgroupMatrixMultiplyAccumulate\((\w+), (\w+), \w+\);")
ZERO = re.compile(r"var (\w+) = Result\(\);")
OWN = "for (var own = 0u; own < OWN * min(params.keys, 1u); own++) { let e = subgroup_lane * OWN + own; "


def emulated(wgsl):
    """Return the shader with arrays in place of fragments."""
    slots = {}

    def slot(name):
        return f"{slots.setdefault(name, len(slots))}u"

    def loaded(found):
        name, kind, order, panel, place, line = found.groups()
        if kind == "Result":
            at = f"{place} + e / FN * ({line}) + e % FN / 4u"
            return f"{OWN}sums[{slot(name)}][own] = bitcast<f32>({panel}[{at}][e % 4u]); }}"
        length = "FK" if kind == "Left" else "FN"
        row, column = (f"e / {length}", f"e % {length}")[:: 1 if order == "row" else -1]
        return (
            f"for (var e = 0u; e < {length} * {'FM' if kind == 'Left' else 'FK'} * min(params.keys, 1u); e++) "
            f"{{ let at = ({place} + {row} * {line}) * 8u + {column}; "
            f"halves[{slot(name)}][e] = unpack2x16float({panel}[at / 8u][at / 2u % 4u])[at % 2u]; }}"
        )

    def stored(found):
        panel, place, name, line = found.groups()
        at = f"{place} + e / FN * ({line}) + e % FN / 4u"
        return f"{OWN}{panel}[{at}][e % 4u] = bitcast<u32>(sums[{slot(name)}][own]); }}"

    text = re.sub(r"alias (Left|Right|Result) = .*\n", "", emulation.without_subgroups(wgsl))
    text = re.sub(r"diagnostic.*\n", "", text)
    text = STORE.sub(stored, LOAD.sub(loaded, text))
    text = MULTIPLY.sub(lambda m: f"multiply_add({slot(m[2])}, {slot(m[3])}, {slot(m[1])}, subgroup_lane);", text)
    text = ZERO.sub(lambda m: f"{OWN}sums[{slot(m[1])}][own] = 0.0; }}", text)
    assert not re.search("subgroupMatrix|subgroup_matrix|Result", text)
    return text + FRAGMENTS.format(size=64, slots=len(slots))


def narrow(problem, width, value_width):
    """Return a small problem with rows of other lengths, to be laid out again."""
    return dataclasses.replace(problem, dtype=F16, out_dtype=F16, width=width, value_width=value_width)


CASES = [
    ("float16 64", 16, 16, {}),
    ("float16 61", 13, 15, {"across": 2}),
    ("window and softcap", 16, 8, {"bk": 32, "across": 2}),
    ("lengths", 11, 16, {}),
    ("mask of float32", 16, 16, {"bk": 32}),
]


@pytest.mark.parametrize(("words", "width", "value_width", "changes"), CASES, ids=[each[0] for each in CASES])
def test_matrix_units(device, monkeypatch, words, width, value_width, changes):
    if device.capabilities.subgroup_size != SMALL["lanes"]:
        pytest.skip("lanes exchange scores in subgroups of 8")
    kernel = MatrixUnit(**(SMALL | changes))
    emulation.stand_in(device, monkeypatch, kernel, emulate=emulated)
    small = next(OP.stand_ins(kernel, narrow(EXAMPLES[words], width, value_width)))
    assert kernel.check(small, device.capabilities) is None
    assert prove(kernel, small, device) == ""


def test_tiles_for_gpus_are_valid_for_tint():
    tiles = [
        MatrixUnit(),
        MatrixUnit(bq=128, sm=32, across=2, columns=128, values=128),
        MatrixUnit(bk=16, fn=8, fk=8, columns=32, values=96, bq=32, sm=32),
    ]
    for kernel, words in zip(tiles, ("float16 40", "mask of bool", "lengths"), strict=True):
        assert kernel.invalid() is None
        problem = narrow(EXAMPLES[words], 30, 32)
        tint.validate(render(kernel, problem, "tint").wgsl, str(kernel))


DIVIDED = [
    ("float16 61", {"splits": 4, "tm": 2, "sharers": 4, "size": 64}),
    ("window and softcap", {"splits": 2}),
    ("lengths", {"splits": 4, "unroll": 1}),
]


@pytest.mark.parametrize(("words", "changes"), DIVIDED, ids=[each[0] for each in DIVIDED])
def test_divided_keys(device, words, changes):
    kernel = dataclasses.replace(Decode.on(device.capabilities), **changes)
    if kernel.check(EXAMPLES[words], device.capabilities):
        pytest.skip("no such subgroups")
    assert prove(kernel, list(OP.stand_ins(kernel, EXAMPLES[words]))[1], device) == ""


def test_types_that_units_do_not_multiply():
    assert MatrixUnit().unsuited(EXAMPLES["float32 64"]) == "multiplies float16, not float32"
    assert EXAMPLES["float32 64"].dtype == F32
