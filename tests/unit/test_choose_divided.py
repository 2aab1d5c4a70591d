"""The choice of tiles and parts of k for integer products and block weights, judged by recorded times of an H200."""

import gzip
from pathlib import Path
from statistics import geometric_mean

import pytest

from webmm.cases import op_of
from webmm.choose import quantized, weights
from webmm.choose.divided import LIKELY, MOST_PARTIAL
from webmm.kernels import configure
from webmm.kernels.splits import partial_bytes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure.records import from_json

RECORDS = Path(__file__).parents[2] / "bench" / "results" / "h200-divided-collected.json.gz"
COLUMNS = {"quantized": (quantized, "int8"), "weights": (weights, "float32")}


def made(op, m, n, k, variant="", layout="nn"):
    column, dtype = COLUMNS[op]
    return column.made_for_gpus(op_of(op, variant).dense((m, n, k, 1), dtype, layout))


def ratios(op):
    """Return (rows, best time ÷ time of the choice) of the problems for which the chosen kernel was measured."""
    found = {}
    for r in from_json(gzip.decompress(RECORDS.read_bytes()).decode()):
        if r.op == op:
            kernel = configure(r.kernel, {name: str(value) for name, value in r.config.items()}, op)
            times = found.setdefault((r.m, r.n, r.k, r.variant, r.layout or "nn"), {})
            times[kernel] = min(r.median_us, times.get(kernel, r.median_us))
    chosen = {problem: made(op, *problem)[0] for problem in found}
    return [(p[0], min(times.values()) / times[chosen[p]]) for p, times in found.items() if chosen[p] in times]


# The constants were fitted to these records, too, so the test guards against a worse choice; see docs/results.md for
# problems that nothing was fitted to.
@pytest.mark.parametrize(
    ("op", "rows", "least", "mean", "tenth"),
    [
        ("quantized", range(1, 10**6), 75, 0.955, 0.9),
        ("weights", range(1, 2), 18, 0.965, 0.87),
        ("weights", range(2, weights.FEW_ROWS + 1), 12, 0.96, 0.91),
        ("weights", range(weights.FEW_ROWS + 1, 10**6), 19, 0.965, 0.9),
    ],
)
def test_the_choice_is_as_good_as_recorded(op, rows, least, mean, tenth):
    shares = sorted(ratio for m, ratio in ratios(op) if m in rows)
    assert len(shares) >= least
    assert geometric_mean(shares) >= mean
    assert shares[len(shares) // 10] >= tenth


def test_a_long_k_is_divided():
    deep, *_ = made("quantized", 72, 58, 189_109)
    assert deep.splits >= 64
    assert made("weights", 48, 1024, 14_336, "4bit-32")[0].splits >= 8
    assert deep.splits > 1 == made("quantized", 72, 58, 189_109)[-1].splits  # without memory for partial sums
    assert all(kernel.splits == 1 for kernel in made("quantized", 4096, 4096, 64))


def test_partial_sums_have_little_memory():
    for size in ((4096, 4096, 4096), (600, 600, 300_000), (20_000, 20_000, 20_000)):
        problem = op_of("quantized").dense((*size, 1), "int8", "nn")
        assert all(partial_bytes(problem, x.splits) <= MOST_PARTIAL or x.splits == 1 for x in made("quantized", *size))


def test_tiles_fit_narrow_results():
    assert made("quantized", 213_657, 22, 241)[0].bn == 32
    assert made("quantized", 24, 14_336, 11_008)[0].bm == 32


def test_vector_is_used_for_few_rows_only():
    few, many = made("weights", 12, 4096, 2048, "4bit-32"), made("weights", 13, 4096, 2048, "4bit-32")
    assert [type(kernel) for kernel in few[:-1]] == [Vector] + [Tiles] * LIKELY
    assert [type(kernel) for kernel in many[1:]] == [Tiles] * LIKELY + [Vector]
    assert type(made("weights", 9, 14_336, 8192, "4bit-32")[0]) is Tiles  # `vector` would read the weights three times


@pytest.mark.parametrize(
    ("m", "n", "k", "expected"),
    [
        (1, 1024, 8192, Vector(lanes=128, tm=1)),
        (1, 4096, 4096, Vector(lanes=64, tm=1)),
        (1, 4096, 1024, Vector(lanes=32, tm=1, unroll=2)),
        (1, 14_336, 4096, Vector(lanes=32, tm=1, unroll=2)),
        (3, 8192, 2560, Vector(lanes=32, tm=4, unroll=2)),
        (6, 2048, 2048, Vector(lanes=32, tm=4, unroll=2)),
        (6, 2048, 14_336, Vector(lanes=64, tm=8, unroll=2)),
        (6, 8192, 3072, Vector(lanes=32, tm=8, unroll=2)),
    ],
)
def test_lanes_of_vector(m, n, k, expected):
    assert made("weights", m, n, k, "4bit-32")[0] == expected
