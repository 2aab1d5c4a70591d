"""Plans for several devices: complete, proportional to rates, with little data to move, on few devices."""

import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from webmm.cli import main
from webmm.cut.devices import Types, Worker, cost, divided, proportional, rectangles, sizes_of
from webmm.cut.pieces import Piece, elements, lengths_of
from webmm.text import amount

H200 = Worker(50e12, 80 * 10**9, 25e9)
SIZES = st.integers(1, 300)


@given(SIZES, SIZES, st.lists(st.floats(0.1, 10), min_size=1, max_size=9))
def test_rectangles_cover_c_once(m, n, rates):
    rates = sorted(rates, reverse=True)
    covered = np.zeros((m, n), int)
    for _, rows, columns in rectangles(m, n, list(enumerate(rates))):
        covered[slice(*rows), slice(*columns)] += 1
    assert (covered == 1).all()


@given(SIZES, SIZES, SIZES, st.integers(1, 9), st.booleans())
def test_plans_cover_every_term_once(m, n, k, workers, splits):
    found = divided((m, n, k), [Worker(1e6, bandwidth=1e6)] * workers, splits=splits)
    work = np.zeros((m, n), int)
    for piece in found.pieces:
        work[elements(piece, "mn")] += lengths_of(piece)["k"]
    assert (work == k).all()
    assert len({piece.worker for piece in found.pieces}) == len(found.pieces)


def test_pieces_are_proportional_to_rates():
    found = divided((6400, 6400, 6400), [Worker(1e12), Worker(3e12), Worker(2e12)])
    work = {piece.worker: math.prod(sizes_of(piece)) for piece in found.pieces}
    assert work[1] == pytest.approx(3 * work[0], rel=0.05)
    assert work[2] == pytest.approx(2 * work[0], rel=0.05)


def test_rectangles_move_little_data():
    for p, (m, n) in itertools.product((2, 5, 12, 16), ((4096, 4096), (65536, 1024), (1024, 65536))):
        found = sum(r[1] - r[0] + c[1] - c[0] for _, r, c in rectangles(m, n, [(i, 1.0) for i in range(p)]))
        grids = [rows for rows in range(1, p + 1) if p % rows == 0]
        assert found <= min(p * (m / rows + n / (p / rows)) for rows in grids) * 1.03, (p, m, n)
    squares = divided((2**17, 2**17, 2**17), [H200] * 64).pieces
    assert max(max(sizes_of(piece)[:2]) for piece in squares) == 2**14


def test_small_products_use_one_device_and_long_k_is_split():
    assert len(divided((1000, 1000, 1000), [H200] * 8).pieces) == 1
    assert divided((64, 64, 10**8), [H200] * 8, splits=True).splits == 8
    assert divided((20_000, 20_000, 20_000), [H200] * 8, splits=True).splits == 1
    assert len(divided((64, 64, 10**8), [Worker(50e12)] * 8).pieces) > 1


@pytest.mark.parametrize("workers", [1, 2, 8, 64, 1000])
def test_efficiency_grows_with_the_size(workers):
    found = [divided((s, s, s), [H200] * workers, splits=True) for s in (10**3, 10**4, 10**5, 10**6)]
    efficiency = [each.efficiency for each in found]
    assert efficiency == sorted(efficiency)
    assert 0.9 < efficiency[-1] <= 1
    assert found[-1].moved >= 3 * 4 * 10**12


def test_cost_counts_bandwidth_and_memory():
    piece = Piece(dict.fromkeys("mnk", (0, 1000)))
    seconds, moved = cost(piece, Worker(1e9), Types())
    assert (seconds, moved) == (pytest.approx(2.0), 12_000_000)
    slow, _ = cost(piece, Worker(1e15, bandwidth=1e6), Types())
    assert slow == pytest.approx(12.0, rel=0.01)
    _, more = cost(piece, Worker(1e9, memory=2**20), Types())
    assert more > 2 * moved
    assert divided((4096, 4096, 4096), [H200] * 4, host=1e9).seconds > 0.2


def test_ranges_are_at_multiples_of_the_grain():
    assert [stop for _, stop in proportional(1000, [1, 1, 2])] == [256, 512, 1000]
    assert [stop for _, stop in proportional(10, [1, 1])] == [5, 10]


@pytest.mark.parametrize(
    ("text", "value"),
    [("80GB", 8e10), ("2GiB", 2**31), ("25 GB/s", 2.5e10), ("50T", 5e13), ("1.5e9", 1.5e9), ("49.8tflop/s", 4.98e13)]
    + [(text, None) for text in ("", "GB", "-1G", "1..2", "0", "1e999", "nan", "5 apples")],
)
def test_parsing_of_amounts(text, value):
    assert amount(text) == (value if value is None else pytest.approx(value))


def planned(*args):
    done = CliRunner().invoke(main, ["plan", *args])
    return done.exit_code, done.output


def test_the_command_plans_without_devices():
    code, words = planned("1000000", "1000000", "1000000", "--devices", "64", "--memory", "80GB", "--bandwidth", "25GB")
    assert code == 0
    assert "64 of 64" in words
    assert "efficiency  99." in words
    code, words = planned("512", "512", "512", "--devices", "8")
    assert "1 of 8: more would not be faster" in words
    code, data = planned("5000", "5000", "5000", "--devices", "3", "--dtype", "float16", "--json")
    found = json.loads(data)
    assert len(found["pieces"]) == 3
    assert math.isclose(found["pieces"][0]["inner"][1], 5000)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("0", "5", "5"), "a size is three whole numbers"),
        (("5", "5", "x"), "a size is three whole numbers"),
        (("5", "5", "5", "--memory", "much"), "--memory is an amount such as 80GB"),
        (("5", "5", "5", "--dtype", "int8"), "dtype int8 is not supported by float matrix products"),
        (("5", "5", "5", "--devices", "0"), "0 is not in the range"),
    ],
)
def test_bad_input(args, words):
    code, output = planned(*args)
    assert code == 2
    assert words in output
