"""Attention: every stage within its bound, and the call's shapes, masks, layouts and refusals against NumPy."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import webmm
from webmm import choose as choosing
from webmm.cases.attention import plain
from webmm.dtypes import BF16, BOOL, F16, F32
from webmm.engine.launches import testing as unproven
from webmm.kernels import STAGES
from webmm.measure.selftest import prove
from webmm.problems.attention import dense_heads

BLOCKED = {"columns": 16, "values": 16, "bq": 8, "bk": 16, "tm": 2, "wx": 4}
PIPELINED = {**BLOCKED, "span": 16, "teams": 2}
# Small tiles of each stage, which compile quickly: with two steps of keys at least, whole and partial tiles.
SMALL = {
    "three_calls": {"lanes": 32},
    "online": {"columns": 12, "values": 12, "size": 8},
    "blocked": {**BLOCKED, "columns": 12},
    "blocked by shuffles": {**BLOCKED, "columns": 12, "combine": "subgroup"},
    "blocked in spans": {**BLOCKED, "span": 8},
    "pipelined": {**PIPELINED, "columns": 12, "direct": "none"},
    "pipelined from caches": {**PIPELINED, "span": 8, "direct": "kv", "teams": 1, "unroll": 4},
    "pipelined by shuffles": {**PIPELINED, "bk": 32, "span": 8, "combine": "shuffle", "unroll": 1},
    "cpu_lanes": {"lanes": 4, "tm": 4, "tk": 4, "tn": 4},
    "cpu_lanes from buffers": {"lanes": 4, "tm": 4, "tk": 4, "tn": 4, "load": "buffer"},
}
EVERY = {"mask": dense_heads(4, 9, 40), "mask_dtype": BOOL, "lengths": True, "from_end": True, "shift": -9}
PROBLEMS = {
    "aligned": plain((1, 2, 8, 32, 12), F32),
    "ragged": plain((1, 2, 9, 40, 11), F16),
    "bfloat16": replace(plain((2, 4, 9, 40, 12), BF16), right=1, left=20, softcap=2.0, **EVERY),
    "causal": replace(plain((1, 2, 9, 40, 12), F32), right=0, mask=dense_heads(2, 9, 40), mask_dtype=F32),
}


def reference(q, k, v, *, causal=False, mask=None, scale=None, softcap=0.0, window=(-1, -1), lengths=None):
    """Return attention in float64, written as a definition."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    queries, keys = scores.shape[-2:]
    whole = np.full(q.shape[:-3], keys) if lengths is None else np.asarray(lengths)
    whole = whole[..., None, None, None]
    place = np.arange(queries)[:, None] + (whole - queries if causal == "end" else 0)
    seen = np.arange(keys) < np.broadcast_to(whole, scores.shape)
    seen &= (np.arange(keys) <= place) | (not causal)
    seen &= (window[0] < 0) | (np.arange(keys) >= place - window[0])
    seen &= (window[1] < 0) | (np.arange(keys) <= place + window[1])
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(top == -np.inf, 0.0, top))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1.0, total) @ v


def drawn(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(dtype=np.float32, heads=4, shared=2, queries=19, keys=37, width=24, wide=20):
    shapes = (2, heads, queries, width), (2, shared, keys, width), (2, shared, keys, wide)
    return [drawn(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def agrees(got, expected, tolerance=2e-5):
    got = np.asarray(got).astype(np.float64)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_small_tiles_are_of_every_stage():
    elsewhere = {"decode", "matrix_unit"}  # test_attention_units.py
    assert {name.split()[0] for name in SMALL} | elsewhere == set(STAGES["attention"])


@pytest.mark.parametrize("name", SMALL)
def test_every_stage_is_within_its_bound(device, name):
    # Together: each dtype, aligned and not, each kind of mask and range; and large, equal and infinite scores.
    # Of a stage's other ways to load and combine, the plainest problem and the one with everything.
    for words in PROBLEMS if name in STAGES["attention"] else ("aligned", "bfloat16"):
        problem = PROBLEMS[words]
        kernel = STAGES["attention"][name.split()[0]](**SMALL[name])
        if problem.features <= device.capabilities.features:
            assert kernel.check(problem, device.capabilities) is None
            with unproven():
                assert not prove(kernel, problem, device), words


# The chosen kernel, which the fuzzer tries, compiles for seconds.
WIDE = {"cpu_lanes": SMALL["cpu_lanes"] | {"tn": 8}, "online": {"columns": 24, "values": 24, "size": 8}}
CHOSEN = {STAGES["attention"][name](**tiles): "small" for name, tiles in WIDE.items()}


@pytest.fixture
def small(device, monkeypatch):
    """Return the device, which computes in small tiles."""
    monkeypatch.setattr(choosing, "candidates", lambda *_: CHOSEN)
    return device


OPTIONS = [
    {},
    {"causal": True},
    {"causal": "end", "window": (5, -1)},
    {"window": (3, 2), "softcap": 1.5, "scale": 0.5},
    {"lengths": [37, 9], "causal": "end"},
    {"lengths": np.array([0, 20], np.int64), "mask": drawn((4, 1, 37)) > 0},
    {"mask": drawn((2, 1, 19, 37)), "softcap": 2.0},
    {"mask": np.where(drawn((19, 37)) > 1, -np.inf, 0).astype(np.float32)},
    {"mask": np.float32(-0.5), "window": (3, 0)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda x: ",".join(x) or "plain")
def test_options(small, options):
    q, k, v = operands()
    agrees(webmm.attention(q, k, v, device=small, **options), reference(q, k, v, **options))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda x: x.name)
def test_arrays_and_dtypes(small, dtype):
    if not dtype.features <= small.capabilities.features:
        pytest.xfail("no such type")
    q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in operands(dtype.numpy))
    expected = reference(*(x.swapaxes(1, 2) for x in (q, k, v)), causal=True)
    with small.array(q) as a, small.array(k) as b, small.array(v) as c:
        views = [x[:, :, h] for x, h in ((a, 1), (b, 0), (c, 0))]  # a head: (batch, tokens, width)
        one = webmm.attention(*(x[:, None] for x in views), causal=True)
        assert isinstance(one, webmm.Array)
        agrees(one, expected[:, 1:2], 4 * dtype.eps + 2e-5)
        longer = webmm.attention(*(x[:, None] for x in views), causal=True, out_dtype="float32")
        agrees(longer, expected[:, 1:2], 4 * dtype.eps + 2e-5)
    agrees(
        webmm.attention(*(x.swapaxes(1, 2) for x in (q, k, v)), causal=True, device=small),
        expected,
        4 * dtype.eps + 2e-5,
    )


def test_out(small):
    q, k, v = operands()
    out = np.zeros((2, 19, 4, 20), np.float32).swapaxes(1, 2)
    assert webmm.attention(q, k, v, out=out, device=small) is out
    agrees(out, reference(q, k, v))
    with small.array(q) as a, small.array(k) as b, small.array(v) as c, small.zeros((2, 4, 19, 40)) as wide:
        assert np.array_equal(webmm.attention(a, b, c, out=wide[..., 20:]).numpy(), out)
        assert not wide[..., :20].numpy().any()


def test_padding_is_not_read(small):
    q, k, v = operands()
    lengths = np.array([30, 7])
    for x in (k, v):
        for i, length in enumerate(lengths):
            x[i, :, length:] = np.nan
    expected = reference(q, np.nan_to_num(k), np.nan_to_num(v), lengths=lengths)
    agrees(webmm.attention(q, k, v, lengths=lengths, device=small), expected)


def test_pieces_are_placed(small):
    # Queries and heads in pieces see the same keys as in one call.
    q, k, v = operands(queries=150, keys=150)
    options = {"causal": True, "window": (40, -1), "mask": drawn((150, 150)) > -1}
    whole = webmm.attention(q, k, v, device=small, **options)
    memory, small.memory = small.memory, 2**15
    try:
        cut = webmm.attention(q, k, v, device=small, **options)
    finally:
        small.memory = memory
    agrees(cut, whole.astype(np.float64), 1e-6)
    agrees(webmm.attention(q, k, v, devices=[small], **options), whole.astype(np.float64), 1e-6)


q, k, v = operands()
REFUSED = [
    ((q.astype(float), k, v), {}, r"q is float64.*q\.astype\('float32'\)"),
    ((q, k.astype(np.float16), v), {}, "q is float32 and k is float16; cast one of them"),
    ((q[0, 0, 0], k, v), {}, r"takes \(…, heads, tokens, width\)"),
    ((q[0], k, v), {}, "different numbers of axes"),
    ((q, k, v[:, :, 1:]), {}, "all axes but the last must be equal"),
    ((q[..., 1:], k, v), {}, "their last axes must be equal"),
    ((q[:1], k, v), {}, "the axes before the heads must be equal"),
    ((q[:, :3], k, v), {}, "3 heads, which is no multiple of the 2"),
    ((q, k, v), {"causal": "middle"}, 'causal must be False, True, which is "start", or "end"'),
    ((q, k, v), {"window": (1, -2)}, "window must be two whole numbers"),
    ((q[..., :0], k[..., :0], v), {}, "width must be at least 1, not 0"),
    ((q, k, v), {"softcap": -1.0}, "softcap must be 0"),
    ((q, k, v), {"scale": np.inf}, "scale must be a finite number"),
    ((q, k, v), {"scale": "big"}, "scale must be a number"),
    ((q, k, v), {"precision": "low"}, "precision must be"),
    ((q, k, v), {"mask": np.ones((3, 37), bool)}, "does not broadcast"),
    ((q, k, v), {"mask": np.ones((19, 37), np.int32)}, "mask must be bool or"),
    ((q, k, v), {"lengths": [1, 38]}, "from 0 to the 37 keys"),
    ((q, k, v), {"lengths": [1]}, "shape of the batch"),
    ((q, k, v), {"lengths": [1.0, 2.0]}, "must be integers"),
    ((q, k, v), {"out_dtype": "int32"}, "int32 is not supported by attention"),
    ((q, k, v), {"out": np.zeros((2, 4, 19, 24), np.float32)}, "the result is float32 of shape"),
]


@pytest.mark.parametrize(("arrays", "options", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_refusals(device, arrays, options, words):
    with pytest.raises(webmm.ProblemError, match=words):
        webmm.attention(*arrays, device=device, **options)


DAWN = """
import sys
sys.path[:0] = ["tests/gpu"]
import numpy as np
import webmm
from test_attention import BF16, CHOSEN, OPTIONS, agrees, choosing, operands, reference
choosing.candidates = lambda *_: CHOSEN
with webmm.Device(engine="dawn") as gpu:
    for options in OPTIONS[2:6]:
        q, k, v = operands()
        agrees(webmm.attention(q, k, v, device=gpu, **options), reference(q, k, v, **options))
    q, k, v = operands(BF16.numpy)
    agrees(webmm.attention(q, k, v, device=gpu), reference(q, k, v), 0.03)
print("right")
"""


def test_dawn_agrees_with_numpy(swiftshader):
    done = subprocess.run([sys.executable, "-c", DAWN], env=swiftshader, capture_output=True, text=True, timeout=280)
    assert done.stdout.endswith("right\n"), done.stderr
