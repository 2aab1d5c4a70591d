"""The leaderboard: published records are valid, forged ones are refused, names are escaped; stages and engines."""

import dataclasses
import json

import pytest

from webmm.errors import ProblemError
from webmm.measure.records import from_json, to_json
from webmm.page import leaderboard

FILES = sorted(leaderboard.folder().glob("*.json"))
(HONEST,) = (file for file in FILES if file.stem == "nvidia-h200")
FIRST, *OTHERS = from_json(HONEST.read_text())


def test_published_records_are_valid_and_sorted():
    records = leaderboard.read(FILES)
    assert {r.adapter for r in records} >= {"NVIDIA H200"}
    boards = leaderboard.boards(records)
    measured = {(r.adapter, r.engine, r.op, r.size, r.layout, r.dtype) for r in records}
    assert sum(len(board.places) for board in boards) == len(measured)
    assert sum(len(place.steps) for board in boards for place in board.places) == len(records)
    for board in boards:
        assert [p.speed for p in board.places] == sorted((p.speed for p in board.places), reverse=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"median_us": FIRST.median_us / 2}, "and not"),
        ({"gflops": FIRST.gflops * 1.1}, "and not"),
        ({"median_us": FIRST.median_us / 1e6, "gflops": FIRST.gflops * 1e6, "best_us": None}, "more than any device"),
        ({"best_us": FIRST.median_us * 1.2}, "longer than the median"),
        ({"max_error": None}, "not compared"),
        ({"max_error": FIRST.error_bound * 2}, "not compared"),
        ({"peak_fraction": 1.2}, "of the measured peak of its device"),
        ({"peak_fraction": FIRST.peak_fraction / 2}, "different peaks"),
        ({"peak_fraction": None}, "lacks the measured peak"),
        ({"config": {"no_such": 1}}, "tunables"),
        ({"config": {"bm": 12345}}, "bm must be one of"),
        ({"kernel": "cpu_lanes", "config": {"tm": 1024}}, "tm must be one of"),
        ({"adapter": "NVIDIA H300"}, "several machines"),
        ({"dtype": "float31"}, "dtype"),
        ({"layout": ""}, "layout"),
    ],
)
def test_inconsistent_records_are_refused(changes, words):
    forged = dataclasses.replace(FIRST, **changes)
    with pytest.raises(ProblemError, match=words):
        leaderboard.checked(to_json([*OTHERS, forged]), "forged.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        to_json([]),
        to_json([FIRST, FIRST]),
        to_json([dataclasses.replace(FIRST, kernel="cublas")]),
        to_json([dataclasses.replace(FIRST, status="runtime", reason="it fell over")]),
        json.dumps({"schema": "webmm.records/1", "records": [json.loads(to_json([FIRST]))["records"][0], {"m": "x"}]}),
    ],
)
def test_invalid_documents_are_refused(text):
    with pytest.raises(ProblemError, match=r"^broken.json: "):
        leaderboard.checked(text, "broken.json")


def test_a_machine_is_listed_once(tmp_path):
    again = tmp_path / "again.json"
    again.write_text(HONEST.read_text())
    with pytest.raises(ProblemError, match=r"is already in .*nvidia-h200.json"):
        leaderboard.read([HONEST, again])


def test_names_are_escaped():
    records = [dataclasses.replace(FIRST, adapter="<script>alert(1)</script>")]
    assert "&lt;script&gt;alert(1)" in leaderboard.render(records)
    assert "<script" not in leaderboard.render(records)


def test_gains_of_stages_and_engines_side_by_side():
    slow = dataclasses.replace(FIRST, kernel="naive", config={}, **times(FIRST, 4))
    dawn = dataclasses.replace(FIRST, engine="dawn (wgpudawn)", clock="wall", **times(FIRST, 2))
    (board,) = leaderboard.boards([dawn, FIRST, slow])
    assert [place.record.engine for place in board.places] == [FIRST.engine, dawn.engine]
    steps = board.places[0].steps
    assert [(step.label.split()[0], step.gain) for step in steps] == [("naive", None), (FIRST.kernel, pytest.approx(4))]
    assert [place.clock for place in board.places] == [
        "timestamps" if FIRST.clock == "timestamp" else "not said",
        "wall clock",
    ]
    page = leaderboard.render(leaderboard.checked(to_json([dawn, FIRST, slow]), "both.json"))
    assert "× 4.00" in page
    assert page.count(dawn.engine) == 2  # in the problem's table and in the device's


def times(record, factor):
    """Return the figures of a kernel that is slower by `factor`, as consistent as those of the record."""
    scaled = {name: getattr(record, name) for name in ("median_us", "best_us")}
    slower = {name: value and value * factor for name, value in scaled.items()}
    return slower | {"gflops": record.gflops / factor, "peak_fraction": record.peak_fraction / factor}


def test_peaks_of_engines_may_differ():
    other = dataclasses.replace(FIRST, engine="dawn (wgpudawn)", peak_fraction=FIRST.peak_fraction / 2)
    assert len(leaderboard.checked(to_json([FIRST, other]), "both.json")) == 2


def test_large_documents_are_refused():
    text = to_json([FIRST], note="x" * leaderboard.MAX_BYTES)
    with pytest.raises(ProblemError, match="of at most 200,000"):
        leaderboard.checked(text, "large.json")
