"""Attention on matrix units, with emulated fragments: right on lavapipe, valid for Tint; and for few queries."""

import re
from dataclasses import replace
from types import SimpleNamespace

import emulation
import numpy as np
import pytest
from test_attention import reference

import webmm
from webmm import choose as choosing
from webmm.cases.attention import plain, relaid
from webmm.choose.attention import on_gpus
from webmm.debug import inspect_each
from webmm.dtypes import BF16, BOOL, F16, F32
from webmm.kernels.attention.decode import Decode
from webmm.kernels.attention.matrix_unit import MatrixUnit
from webmm.kernels.attention.row_sums import RowSums
from webmm.measure.selftest import prove
from webmm.problems.attention import dense_heads
from webmm.wgsl import tint
from webmm.wgsl.render import render, tags_of

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


PROBLEMS = {
    "growing": replace(plain((1, 2, 19, 40, 13), F16), scale=8.0),  # the last key has the largest scores
    "every": replace(
        relaid(replace(plain((2, 4, 9, 40, 16), F16), kv_heads=2, value_width=8), plain((2, 4, 9, 40, 16), F16)),
        **{"left": 20, "right": 1, "softcap": 2.0, "lengths": True, "from_end": True, "shift": -9},
        **{"mask": dense_heads(4, 9, 40), "mask_dtype": BOOL},
    ),
}
UNITS = {"growing": {"bk": 16}, "every": {"bk": 32, "across": 2}}


@pytest.mark.parametrize("name", PROBLEMS)
def test_matrix_units(device, monkeypatch, name):
    if device.capabilities.subgroup_size != SMALL["lanes"]:
        pytest.skip("lanes exchange scores in subgroups of 8")
    kernel = MatrixUnit(**(SMALL | UNITS[name]))
    emulation.stand_in(device, monkeypatch, kernel, emulate=emulated)
    assert kernel.check(PROBLEMS[name], device.capabilities) is None
    assert prove(kernel, PROBLEMS[name], device) == ""


DEBUGGED = {
    "growing": [(head, query, 3) for head in (0, 1) for query in (0, 7, 18)],
    "windowed": [(0, 12, 5), (1, 5, 0)],
}


@pytest.mark.parametrize("name", DEBUGGED)
def test_the_steps_of_matrix_units(device, monkeypatch, name):
    if device.capabilities.subgroup_size != SMALL["lanes"]:
        pytest.skip("lanes exchange scores in subgroups of 8")
    kernel = MatrixUnit(**(SMALL | UNITS["growing" if name == "growing" else "every"]))
    windowed = replace(plain((1, 2, 19, 70, 13), F16), scale=4.0, left=20, right=1, shift=20)
    problem = windowed if name == "windowed" else replace(PROBLEMS[name], scale=30.0)
    emulation.stand_in(device, monkeypatch, kernel, emulate=emulated)
    for module in ("debug", "engine.launches"):
        monkeypatch.setattr(
            f"webmm.{module}.tags_of", lambda kernel, problem, dialect: tags_of(kernel, problem, "tint")
        )
    references = set()
    for found in inspect_each(device, kernel, problem, DEBUGGED[name]):
        assert found.right, found.notes()
        assert {tag for step in found.steps for tag in step.values} == {"SCORE", "TOP", "WEIGHT", "SUM"}
        references.add(len({step.values["TOP"].value for step in found.steps if "TOP" in step.values}))
    assert name == "windowed" or references >= {1, 2}, "no reference stays, or none grows"


def test_tiles_for_gpus_are_valid_for_tint():
    for kernel, problem in (
        (MatrixUnit(), plain((1, 2, 65, 65, 40), F16)),
        (MatrixUnit(bq=128, sm=32, across=2, columns=128, values=128), PROBLEMS["growing"]),
        (MatrixUnit(bk=16, fn=8, fk=8, columns=32, values=96, bq=32, sm=32), PROBLEMS["every"]),
        (Decode(128, 128, 256, 32, 16, 4, 3, 32, 8, "k"), plain((1, 8, 1, 4096, 128), F16)),
        (Decode(16, 16, 64, 8, 2, 2, 1, 2, 8), replace(PROBLEMS["every"], dtype=BF16)),
        (RowSums(), PROBLEMS["growing"]),
        (RowSums(), replace(PROBLEMS["every"], dtype=BF16)),
    ):
        assert kernel.invalid() is None
        for debug in (False, True):
            tint.validate(render(kernel, problem, "tint", debug=debug).wgsl, str(kernel))


DIVIDED = (
    ("growing", {"values": 64, "splits": 32, "tm": 2, "unroll": 1}),
    ("every", {"sharers": 2, "tm": 4, "unroll": 2}),  # two scores of each lane
    ("every", {"sharers": 8, "tm": 4, "unroll": 1, "columns": 32, "values": 32}),  # two lanes with each score
    ("every", {"sharers": 2, "tm": 4, "chunk": 8, "prefetch": "k", "unroll": 3, "splits": 2}),
    ("every", {"sharers": 2, "tm": 1, "chunk": 8, "columns": 32, "values": 32}),  # two chunks of each lane
    ("growing", {"sharers": 2, "tm": 1, "chunk": 8, "prefetch": "k", "unroll": 3}),  # rows that are not in chunks
    ("bfloat16", {"sharers": 2, "tm": 2, "chunk": 8, "unroll": 1}),
    ("float32", {"sharers": 2, "tm": 4, "chunk": 8, "prefetch": "k"}),
    ("several steps", {"sharers": 2, "tm": 2, "chunk": 8, "prefetch": "k", "unroll": 3}),
    ("several steps", {"tm": 1, "prefetch": "k", "unroll": 1, "splits": 2}),
)
WORDS = {
    **PROBLEMS,
    **{x.name: replace(PROBLEMS["every"], dtype=x, out_dtype=x) for x in (BF16, F32)},
    "several steps": plain((1, 2, 2, 300, 16), F16),
}


@pytest.mark.parametrize(("name", "tunables"), DIVIDED)
def test_keys_divided_among_lanes_and_workgroups(device, name, tunables):
    lanes = device.capabilities.subgroup_size
    kernel = Decode(**{"columns": 16, "values": 16, "size": 64, "lanes": lanes, "sharers": 4} | tunables)
    if kernel.check(WORDS[name], device.capabilities):
        pytest.skip("no such subgroups")
    assert prove(kernel, WORDS[name], device) == ""


@pytest.fixture
def by_words(device, monkeypatch):
    """Return the device, which computes attention with float16 loaded as words, of rows of up to 16 columns."""
    lanes = device.capabilities.subgroup_size
    if not F16.features <= device.capabilities.features or lanes < 4:
        pytest.skip("no float16, or no lanes")
    kernel = Decode(columns=16, values=16, size=64, lanes=lanes, sharers=2, tm=1, chunk=8)
    monkeypatch.setattr(choosing, "candidates", lambda *_: {kernel: "small"})
    return device


def test_float16_of_words_below_the_normal_range(by_words):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 1, n, 16)).astype(np.float16) for n in (1, 300, 300))
    k, v = k * np.float16(2.0**-18), v * np.float16(2.0**-18)
    found = webmm.attention(q, k, v, scale=2.0**17, out_dtype="float32", device=by_words)
    wanted = reference(q, k, v, scale=2.0**17)
    assert np.abs(np.asarray(found) - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_a_score_of_minus_infinity_hides_a_key_of_a_padded_row_of_words(by_words):
    q, k, v = (np.ones((1, 1, n, 8), np.float16) for n in (1, 300, 300))
    k[0, 0, 7, 3], v[0, 0, 7] = -np.inf, 100
    assert (webmm.attention(q, k, v, device=by_words) == 1).all()


def by(able):
    """Return a device with these capabilities."""
    return SimpleNamespace(capabilities=able)


def test_the_choice_by_shape_and_dtype(device):
    offered = dict.fromkeys(device.capabilities.limits, 2**31)
    units = frozenset({MatrixUnit().matrix_shape})
    able = replace(
        device.capabilities,
        limits=offered,
        features=F16.features,
        subgroup_size=32,
        matrix_shapes=units,
        workgroups=132,
    )
    asked = ((4096, F16, 128), (4096, F16, 80), (4096, F32, 64), (1, F16, 80), (8, F32, 256))
    found = [next(on_gpus(plain((1, 8, n, 4096, width), dtype), by(able))).name for n, dtype, width in asked]
    assert found == ["matrix_unit", "matrix_unit", "pipelined", "decode", "decode"]

    def divided(heads, shared, **other):
        asked = replace(plain((1, heads * shared, 1, 4096, 128), F16), kv_heads=heads, **other)
        kernel = next(on_gpus(asked, by(able)))
        return kernel.size, kernel.unroll, kernel.splits

    def loads(shared, **other):
        asked = replace(plain((1, 8, 1, 4096, 128), F16), kv_heads=8 // shared, **other)
        kernel = next(on_gpus(asked, by(able)))
        return kernel.chunk, kernel.prefetch

    odd = dense_heads(2, 4096, 128)
    assert [loads(shared) for shared in (1, 4)] == [(8, "none"), (8, "k")]
    assert [loads(4, dtype=x) for x in (BF16, F32)] == [(8, "k"), (4, "none")]
    assert [loads(4, v=replace(odd, offset=4)), loads(4, k=replace(odd, token=132))] == [(4, "none")] * 2
    assert [divided(heads, 1) for heads in (8, 256)] == [(256, 4, 64), (256, 4, 2)]
    assert [divided(heads, 4) for heads in (8, 64, 512)] == [(256, 3, 32), (256, 3, 4), (256, 3, 1)]
    assert [divided(8, n, width=64, value_width=64) for n in (1, 4)] == [(256, 4, 32), (128, 3, 64)]
    assert [divided(8, 1, width=n, value_width=n)[1] for n in (80, 96, 256)] == [2, 4, 4], "80 columns are padded"
    assert [divided(8, 1, dtype=F32, width=n, value_width=n)[1] for n in (64, 80, 256)] == [4, 4, 2]
    assert divided(8, 1, keys=300) == (256, 4, 4), "each workgroup has a step of keys"

    def teams(heads, tokens, width, keys=None, causal=False, device=able):
        asked = plain((1, heads, tokens, keys or tokens, width), F32, causal)
        kernel = next(on_gpus(asked, by(device)))
        return kernel.bq, kernel.bk, kernel.span, kernel.direct, kernel.unroll

    assert [teams(12, 1024, width) for width in (64, 128)] == [(32, 32, span, "v", 4) for span in (16, 32)]
    assert [teams(2, 1111, width)[:4] for width in (64, 80, 128)] == [
        (32, bk, 32, way) for bk, way in ((64, "v"), (32, "none"), (64, "v"))
    ]
    assert [teams(4, 128, 64), teams(2, 300, 256)] == [(16, 64, 32, "v", 4)] * 2, "most multiprocessors are idle"
    assert [teams(8, 64, 64), teams(1, 62, 64, 960, True)] == [(16, 32, 32, "v", 2)] * 2, (
        "no more than 64 keys are seen"
    )
    limited = replace(able, subgroup_size=16, limits=offered | {"max-compute-workgroup-storage-size": 32768})
    shared = replace(plain((1, 32, 1, 4096, 128), F16), kv_heads=8)
    fitting = next(kernel for kernel in on_gpus(shared, by(limited)) if kernel.check(shared, limited) is None)
    assert (fitting.name, fitting.size, fitting.splits) == ("decode", 128, 64), "256 take 33,280 bytes"
    assert teams(2, 1111, 64, device=limited)[:2] == (32, 32), "tiles of 64 keys take 39,936 bytes"
    without = replace(able, matrix_shapes=frozenset(), subgroup_size=0)
    assert {kernel.name for kernel in on_gpus(plain((1, 8, 1, 4096, 64), F16), by(without))} == {"blocked"}
    assert MatrixUnit().unsuited(plain((1, 8, 64, 64, 64), F32)) == "multiplies float16, not float32"


def test_no_part_of_the_keys_is_left_out_of_the_combination():
    assert Decode(splits=48).invalid() is None
    assert "splits = 33 must be a multiple of 16" in (Decode(splits=33).invalid() or "")
