"""Documents of records: required and optional fields, and the treatment of invalid records."""

import dataclasses
import json
import logging
import math
import runpy
import sys
from pathlib import Path

import pytest

from webmm.choose.tuned import _odd, fastest, kernel_of, refusal
from webmm.errors import ProblemError
from webmm.kernels.gemm.blocked import Blocked
from webmm.measure.records import SCHEMA, Record, from_json, lines, provenance, to_csv, to_json

BENCH = Path(__file__).parents[2] / "bench"
SOUND = Record(
    *("gemm", "blocked", 64, 64, 64, 1, "float32", "wgpu", "some adapter", "Vulkan", "1.0", "0.1.0"),
    config=Blocked().config,
    median_us=1.0,
    best_us=0.5,
    gflops=524.0,
    clock="wall",
)
TERMINAL = "\x1b[31mred"
BAD = [
    *[({name: value}, name) for name in ("m", "n", "k", "batch") for value in ("x", 0, -3, None, 1.5, True, 2**53)],
    *[
        ({name: value}, name)
        for name in ("op", "kernel", "dtype", "adapter", "engine", "backend", "driver", "version", "variant")
        for value in (7, None, ["x"], {}, TERMINAL, "two\nlines", "\ud800", "\u202eright to left")
    ],
    *[({"layout": value}, "layout") for value in (5, None, "n", "xy", "nnn", TERMINAL)],
    *[({"status": value}, "status") for value in ("fine", None, 1, ["ok"])],
    *[({"clock": value}, "clock") for value in (1, TERMINAL)],
    *[({"reason": value}, "reason") for value in (1, ["x"])],
    *[
        ({"config": value}, "config")
        for value in ([1], "x", None, {"bm": [1]}, {"bm": None}, {TERMINAL: 1}, {"bm": TERMINAL})
    ],
    *[
        ({name: value}, name)
        for name in ("median_us", "best_us", "gflops", "max_error")
        for value in ("fast", -1, [], True)
    ],
    *[({name: value}, name) for name in ("median_us", "gflops") for value in (None, 0, "inf", "nan", 10**400)],
]


def document(*rows: object) -> str:
    return json.dumps({"schema": SCHEMA, "records": rows})


@pytest.mark.parametrize(("change", "name"), BAD, ids=[str(change)[:40] for change, _ in BAD])
def test_an_invalid_record_is_reported_and_left_out(change, name):
    sound = dataclasses.asdict(SOUND)
    complaints = []
    assert from_json(document(sound, sound | change, sound), complaints.append) == [SOUND, SOUND]
    (complaint,) = complaints
    assert complaint.startswith("record 2 ")
    assert name in complaint
    assert complaint.isprintable()
    with pytest.raises(ProblemError, match=f"no valid record: record 1 .*{name}"):
        from_json(document(sound | change))


@pytest.mark.parametrize("row", [None, 1, "x", [], {}])
def test_entries_that_are_no_objects_are_left_out(row, caplog):
    assert from_json(document(row, dataclasses.asdict(SOUND))) == [SOUND]
    ((logger, level, words),) = caplog.record_tuples
    assert (logger, level) == ("webmm", logging.WARNING)
    assert words.startswith("record 1 ")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", '{"schema": 1}', '{"schema": "\\u001b[31m"}', "[" * 100_000, '{"a":' * 100_000,
     json.dumps({"schema": SCHEMA}), json.dumps({"schema": SCHEMA, "records": {}}), "9" * 10_000],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_another_schema_is_refused(text):
    with pytest.raises(ProblemError, match=SCHEMA) as caught:
        from_json(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_optional_and_unknown_fields_are_accepted():
    row = dataclasses.asdict(SOUND)
    for name in ("batch", "backend", "driver", "layout", "variant", "config", "clock", "max_error"):
        del row[name]
    expected = dataclasses.replace(SOUND, backend="", driver="", config={}, clock=None)
    row |= {"unit": "later"}
    assert from_json(document(row)) == [expected]
    with pytest.raises(ProblemError, match="has no valid op"):
        from_json(document({**row, "op": None}))
    del row["status"]
    with pytest.raises(ProblemError, match="has no status"):
        from_json(document(row))


def test_infinite_errors_survive_a_round_trip():
    unbounded = dataclasses.replace(SOUND, status="incorrect", median_us=None, max_error=math.inf, reason="a")
    assert from_json(to_json([unbounded])) == [unbounded]


def test_a_document_is_a_header_and_one_record_per_line():
    other = dataclasses.replace(SOUND, engine="dawn")
    text = to_json([SOUND, other, SOUND], command="webmm bench")
    head, records = text.split('"records": [\n')
    *rows, end, closing = records.splitlines()
    assert [Record.from_json(json.loads(row.rstrip(","))) for row in rows] == [SOUND, other, SOUND]
    assert (end, closing) == ("]", "}")
    document = json.loads(text)
    assert list(document) == ["schema", "command", "devices", "records"]
    assert [each["engine"] for each in document["devices"]] == [SOUND.engine, "dawn"]
    assert len(head.splitlines()) == 1 + 2 + 4


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("/home/me/venv/bin/webmm bench --json /home/me/r.json", "webmm bench --json r.json"),
        ("/venv/lib/webmm/__main__.py bench --csv=/tmp/r.csv", "webmm bench --csv=r.csv"),
        ("bench/ladder.py --sizes 64,1x2x3 results/r.json", "python bench/ladder.py --sizes 64,1x2x3 results/r.json"),
        (r"C:\Users\me\webmm.exe tune --json D:\r\x.json", "webmm tune --json x.json"),
    ],
)
def test_the_command_in_a_header_names_no_folders_of_this_machine(monkeypatch, given, command):
    monkeypatch.setattr(sys, "argv", given.split(" "))
    assert provenance()["command"] == command


def test_the_table_of_results_is_current():
    written = runpy.run_path(str(BENCH / "results.py"))["table"]()
    assert (BENCH / "results" / "README.md").read_text(encoding="utf-8") == written


def test_the_table_of_evidence_matches_the_records_and_tests():
    evidence = runpy.run_path(str(BENCH / "evidence.py"))
    text = (BENCH.parent / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert evidence["table"]() in text, "run python bench/evidence.py"
    for row in evidence["TESTS"]:
        for op, file in row.proofs.items():
            said = (BENCH.parent / file).read_text(encoding="utf-8")
            assert any(word in said for word in (*CALLS[op], "OPS", "table")), (row, op)
    assert "| NVIDIA H200 | wgpu from Python | measured: float32; timed: float16 |" in text


# What names an op in a test of it.
CALLS = {
    "gemm": (" @ ", "gemm("),
    "quantized": ("qmatmul", "Quantized"),
    "weights": ("WeightOnly", "weights"),
    "reduce": ("reduce(",),
    "normalise": ("softmax(",),
    "elementwise": ("elementwise(",),
    "attention": ("attention(", "kernels.attention"),
}


@pytest.mark.parametrize("file", sorted((BENCH / "results").glob("*.json")), ids=lambda file: file.stem)
def test_results_are_laid_out_as_they_are_written(file):
    text = file.read_text(encoding="utf-8")
    assert text == lines(json.loads(text))


def test_the_first_line_of_a_reason_is_saved():
    refused = dataclasses.replace(SOUND, status="compile", median_us=None, reason="a.wgsl:3: why\n    3 | nonsense")
    (saved,) = from_json(to_json([refused]))
    assert saved.reason == "a.wgsl:3: why"
    assert "nonsense" not in to_csv([refused])


@pytest.mark.parametrize(
    "config", [{"bm": "x"}, {"bm": 0}, {"bm": -8}, {"bm": 1.5}, {"bm": True}, {"bm": 1e400}, {"no such": 1}]
)
def test_an_invalid_config_has_no_kernel(config):
    record = dataclasses.replace(SOUND, config=config)
    assert from_json(to_json([record])) == [record]
    assert fastest([record]) == [record]
    assert kernel_of(record) is None


@pytest.mark.parametrize(
    ("kernel", "name", "value"),
    [("cpu_lanes", "tm", 1024), ("cpu_lanes", "tm", 7 * 10**40), ("tile_2d", "tm", 12), ("blocked", "bm", 512)],
)
def test_a_tunable_that_no_search_tries_is_refused(kernel, name, value):
    absurd = dataclasses.replace(SOUND, kernel=kernel, config={name: value})
    complaints = []
    document = to_json([SOUND, absurd])
    assert from_json(document, complaints.append, refusal) == [SOUND]
    (complaint,) = complaints
    assert complaint.startswith(f"record 2 is of {kernel} with a value that is never tried: {name} must be one of ")
    assert from_json(document) == [SOUND, absurd]  # only shown, as by bench --against


def test_every_layout_is_valid():
    assert not any(_odd(dataclasses.replace(SOUND, layout=layout)) for layout in ("", "nn", "nt", "tn", "tt"))
