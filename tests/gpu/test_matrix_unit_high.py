"""float32 split into two float16: within the bound for elements of any magnitude, with emulated fragments."""

import dataclasses

import emulation
import numpy as np
import pytest
from products import check, check_exactly, fractions, multiply, view

from tests.sampled import sampled
from webmm.choose.gemm import LEAST_SPLIT_K
from webmm.errors import ProblemError
from webmm.kernels.gemm.matrix_unit_high import MatrixUnitHigh
from webmm.measure.verify import worst_error
from webmm.problems.gemm import gemm
from webmm.wgsl.epilogues import ACTIVATIONS

SMALL = {"bm": 16, "bn": 16, "bk": 8, "sm": 8, "sn": 16, "fm": 8, "fn": 8, "fk": 8, "phases": 1, "group": 1}
UNIT = 2.0**-24  # relative to |A|·|B|
FEW = 32  # units; at k = 200 the bound is 400, plain float32 has 19, and without the low halves there are 1,500


@pytest.fixture(scope="module")
def compiled():
    """Return a dictionary for pipelines by WGSL."""
    return {}


@pytest.fixture
def small(device, monkeypatch, compiled):
    """Return the stage with small tiles, on a device with emulated matrix units."""
    kernel = MatrixUnitHigh(lanes=device.capabilities.subgroup_size, **SMALL)
    yield emulation.stand_in(device, monkeypatch, kernel, compiled=compiled)
    device.synchronize()


def high(problem):
    return dataclasses.replace(problem, precision="high")


def units(device, kernel, a, b):
    """Return the largest error of a·b by `kernel` in units of 2⁻²⁴·|A|·|B|; infinite if NaN or infinities differ."""
    problem = gemm(a.shape[0], b.shape[1], a.shape[1], precision="high")
    got, _ = multiply(device, kernel, problem, a[None], b[None])
    return worst_error(got[0], a, b) / UNIT


# Several whole tiles; edges in chunks of four and in single elements; k in one phase and in two.
@pytest.mark.parametrize("layout", sampled(["nn", "nt", "tn", "tt"], 4, 3))
def test_layouts_and_shapes(device, small, layout):
    turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
    whole, chunks, single, short = (((32, 32, 32), 1), ((36, 20, 156), 2), ((19, 21, 141), 2), ((8, 16, 5), 2))
    shapes = {"nn": (whole, single), "nt": (chunks,), "tn": (single,), "tt": (chunks, short)}
    for (m, n, k), phases in shapes[layout]:
        check(
            device,
            dataclasses.replace(small, phases=phases),
            high(view(m, n, k, batch=2, pads=(4, 4, 4), offsets=(4, 8, 12), **turned)),
        )


@pytest.mark.parametrize(
    ("layout", "shape", "pads"), [("nn", (33, 21, 35), (0, 0, 0)), ("tt", (24, 17, 176), (3, 2, 1))]
)
def test_rows_not_aligned_to_vec4(device, small, layout, shape, pads):
    turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
    check_exactly(device, small, high(view(*shape, batch=2, pads=pads, offsets=(1, 2, 3), **turned)))


def test_one_column_and_one_row(device, small):
    for shape in ((1, 40, 33), (40, 1, 144)):
        check(device, small, gemm(*shape, precision="high"))


def test_results_in_float16(device, small):
    check(device, small, gemm(33, 39, 35, out_dtype="f16", precision="high"))


@pytest.mark.parametrize(
    ("layout", "slices", "shape", "pads"),
    [
        ("tt", 2, (33, 21, 35), (3, 1, 2)),
        pytest.param("nt", 4, (20, 36, 300), (0, 0, 0), marks=pytest.mark.long),
    ],
)
def test_slices_of_k_are_summed(device, small, layout, slices, shape, pads):
    kernel = dataclasses.replace(small, slices=slices, bk=8 * slices, phases=2)
    turned = {"ta": layout[0] == "t", "tb": layout[1] == "t"}
    check(device, kernel, high(view(*shape, pads=pads, **turned)))


@pytest.mark.parametrize("settings", sampled([{"bm": 32, "sm": 16}, {"bn": 32, "bk": 16, "sm": 16, "group": 8}]))
def test_other_tiles(device, small, settings):
    check_exactly(device, dataclasses.replace(small, **settings), gemm(72, 64, 160, precision="high"))


@pytest.mark.parametrize(("bias", "activation"), sampled([("column", "relu"), ("row", "gelu"), ("matrix", "")], 3, 1))
def test_epilogues(device, small, bias, activation):
    problem = gemm(40, 33, 136, precision="high")
    a, b = (x[0] for x in fractions(problem))
    before = np.full((40, 33), 0.5, np.float32)
    values = np.linspace(-1, 1, {"row": 40, "column": 33, "matrix": 40 * 33}[bias]).astype(np.float32)
    p = dataclasses.replace(problem, alpha=0.75, beta=2.0, bias=bias, activation=activation)
    with device.array(a) as x, device.array(b) as y, device.array(before) as c, device.array(values) as v:
        device.run(small, p, x, y, c, v)
        got = c.numpy()
    shape = {"row": (40, 1), "column": (1, 33), "matrix": (40, 33)}[bias]
    expected = 0.75 * (a.astype(np.float64) @ b) + values.reshape(shape)
    expected = ACTIVATIONS[activation].reference(expected) if activation else expected
    np.testing.assert_allclose(got, expected + 1.0, rtol=1e-5, atol=1e-4)


# Splitting into two float16


def spread(rng, shape, octaves):
    """Return signed numbers whose exponents are uniform in ±octaves."""
    exponents = rng.uniform(-octaves, octaves, shape)
    return (rng.choice([-1.0, 1.0], shape) * 2.0**exponents).astype(np.float32)


DRAWS = {
    "signed": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.uniform(0, 1, shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "2^±20": lambda rng, shape: spread(rng, shape, 20),
    "2^±60": lambda rng, shape: spread(rng, shape, 60),
}


@pytest.mark.parametrize("data", DRAWS)
def test_errors_are_those_of_float32(device, small, data):
    rng = np.random.default_rng(1)
    a, b = (DRAWS[data](rng, shape).astype(np.float32) for shape in ((48, 200), (200, 40)))
    assert units(device, small, a, b) <= FEW


def test_largest_errors_of_the_split(device, small):
    """Elements whose low parts are as large as they can be: their product is off by 14 units, and sums round, too."""
    a, b = np.full((16, LEAST_SPLIT_K), 1 + 2.0**-22), np.full((LEAST_SPLIT_K, 16), 1 + 4097 * 2.0**-23)
    assert 7 < units(device, small, a.astype(np.float32), b.astype(np.float32)) < 16 < 2 * LEAST_SPLIT_K


def test_rows_and_columns_of_any_magnitude(device, small):
    rng = np.random.default_rng(2)
    a, b = rng.uniform(1, 2, (40, 64)), rng.uniform(1, 2, (64, 32))
    a *= 2.0 ** np.linspace(-60, 60, 40)[:, None].round()
    b *= 2.0 ** np.linspace(60, -60, 32).round()
    assert units(device, small, a.astype(np.float32), b.astype(np.float32)) <= FEW
    tiny, huge = np.full((8, 64), 2.0**-120, np.float32), np.full((64, 8), 2.0**119, np.float32)
    assert units(device, small, tiny, huge) == 0
    assert units(device, small, huge.T, tiny.T) == 0


def test_small_elements_next_to_large_ones(device, small):
    """Elements too small for float16 next to the largest of their row, which is multiplied by zero."""
    for layout_k in (16, 160):
        a, b = np.zeros((24, layout_k), np.float32), np.ones((layout_k, 20), np.float32)
        a[:, 0], a[:, 1:] = 1.0, np.float32(1 / 3) * 2.0**-30
        b[0, ::2] = 0.0
        assert units(device, small, a, b) <= FEW
        assert units(device, small, b.T.copy(), a.T.copy()) <= FEW


def test_ordinary_data_need_no_correction(device, small, monkeypatch):
    """Without the correcting dispatch, ordinary data give the same accuracy, and doubtful results are wrong."""
    monkeypatch.setattr(MatrixUnitHigh, "after", ())
    rng = np.random.default_rng(3)
    for draw in ("signed", "positive", "normal"):
        a, b = (DRAWS[draw](rng, shape).astype(np.float32) for shape in ((48, 200), (200, 40)))
        assert units(device, small, a, b) <= FEW
    a[:, :1], b[:1] = 2.0**40, 0.0
    assert units(device, small, a, b) == float("inf") or units(device, small, a, b) > 400


def test_zeros_are_not_in_doubt_without_small_elements(device, small, monkeypatch):
    """Without the correcting dispatch, whole numbers whose sum is zero are exact; with small elements they are not."""
    monkeypatch.setattr(MatrixUnitHigh, "after", ())
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((48, 200), (200, 40)))
    assert (a @ b == 0).any()
    for k, transposed in ((200, False), (199, True)):  # vec4 along k, single elements across
        problem = gemm(48, 40, k, transpose_a=transposed, transpose_b=transposed, precision="high")
        got, _ = multiply(device, small, problem, a[None, :, :k], b[None, :k])
        np.testing.assert_array_equal(got[0], a[:, :k] @ b[:k])
    a[:, 0] = 2.0**-16
    b[0] = 0.0
    assert units(device, small, a, b) > 400


def test_nan_and_infinities_agree_with_numpy(device, small):
    for k in (35, 150):
        rng = np.random.default_rng(k)
        a, b = rng.standard_normal((40, k)).astype(np.float32), rng.standard_normal((k, 36)).astype(np.float32)
        a[0, 5], b[9, 11], a[3, 7], b[20, 30] = np.nan, np.inf, -np.inf, np.nan
        a[4, 20], a[7, 9], a[8, 1:3], b[1:3, 5] = np.inf, 0.0, np.inf, (1.0, -1.0)
        assert units(device, small, a, b) <= FEW


def test_permutations_and_zeros_stay_exact(device, small):
    rng = np.random.default_rng(5)
    b = rng.standard_normal((160, 40)).astype(np.float32)
    permuted = np.eye(160, dtype=np.float32)[rng.permutation(160)][:40]
    problem = gemm(40, 40, 160, precision="high")
    got, _ = multiply(device, small, problem, permuted[None], b[None])
    np.testing.assert_allclose(got[0], permuted @ b, rtol=2.0**-22)
    a = rng.standard_normal((40, 160)).astype(np.float32)
    a[:, 80:], b[:80] = 0.0, 0.0
    got, _ = multiply(device, small, problem, a[None], b[None])
    assert not got.any()


TRUNCATION = """
        var largest = abs((*sums)[own]);
        for (var k = 0u; k < FK; k++) {{
            largest = max(largest, abs({a} * {b}));
        }}
        let unit = bitcast<f32>(bitcast<u32>(largest) & 0x7f800000u) * 0x1p-21f;
        if (unit > 0.0) {{
            var units = trunc((*sums)[own] / unit);
            for (var k = 0u; k < FK; k++) {{
                units += trunc({a} * {b} / unit);
            }}
            (*sums)[own] = bitcast<f32>(bitcast<u32>(units * unit) & 0xfffffff0u);
        }}
"""


@pytest.mark.parametrize("data", sampled(["uniform", "sorted", "half zeros"], 3, 1))
def test_truncation_cancels(device, small, monkeypatch, data):
    """Matrix units drop the last bits of products and of sums, as an H200 does, but of 20 bits in place of 24."""
    exactly = """
        for (var k = 0u; k < FK * count; k++) {{
            (*sums)[own] += {a} * {b};
        }}
"""
    assert exactly in emulation.EMULATION
    monkeypatch.setattr(emulation, "EMULATION", emulation.EMULATION.replace(exactly, TRUNCATION))
    one = dataclasses.replace(small, bm=8, bn=8, sn=8)  # one fragment: drivers take long to compile truncation
    rng = np.random.default_rng(6)
    a, b = (rng.uniform(0, 1, shape).astype(np.float32) for shape in ((16, 1024), (1024, 16)))
    if data == "sorted":
        a, b = np.sort(a, axis=1), np.sort(b, axis=0)
    elif data == "half zeros":
        a[:, 512:] = 0.0
    exact = a.astype(np.float64) @ b
    problem, lost = gemm(16, 16, 1024, precision="high"), []
    for phases in (2, 1):
        got, _ = multiply(device, dataclasses.replace(one, phases=phases), problem, a[None], b[None])
        lost.append(((exact - got[0]) / exact).mean())
    assert lost[1] > 2e-5
    assert abs(lost[0]) < lost[1] / 8


def test_other_problems_are_refused():
    assert MatrixUnitHigh().unsuited(gemm(64, 64, 64)) == "is for precision=high"
    assert MatrixUnitHigh().unsuited(gemm(64, 64, 64, dtype="f16", precision="high")) == "splits float32, not float16"
    with pytest.raises(ProblemError, match="precision must be highest or high, not 'low'"):
        gemm(1, 1, 1, precision="low")
