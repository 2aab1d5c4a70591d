"""Tuned records: stored, merged, exported, set aside if broken; and the choice of kernels by records."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from webmm.choose import tuned
from webmm.choose.tuned import _nearest, bucket, distance
from webmm.errors import ProblemError
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.measure.records import SCHEMA, Record, from_json, to_json
from webmm.problems.gemm import gemm

RECORD = Record(
    *("gemm", "tile_2d", 64, 64, 64, 1, "float32", "wgpu", "some adapter", "Vulkan", "1.0", "0.1.0"),
    config=Tile2D(tm=2).config,
    median_us=10.0,
    best_us=9.0,
    gflops=52.4,
    clock="timestamp",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_fastest_of_a_size_is_kept() -> None:
    slow = dataclasses.replace(RECORD, kernel="naive", config={}, median_us=99.0)
    wrong = dataclasses.replace(RECORD, kernel="shared", status="incorrect", median_us=1.0)
    peer = dataclasses.replace(RECORD, kernel="cublas", median_us=1.0)
    assert tuned.add([slow, RECORD, wrong, peer]) == 1
    assert tuned.load() == [RECORD]
    newer = dataclasses.replace(RECORD, median_us=12.0)
    other = dataclasses.replace(RECORD, m=128)
    tuned.add([newer, other])
    assert tuned.load() == [newer, other]


def test_a_broken_file_is_set_aside(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in (
        "{",
        '{"schema": "other/2", "records": []}',
        '{"schema": "webmm.records/1", "records": [{"x": 1}]}',
        "[]",
    ):
        folder.mkdir(exist_ok=True)
        (folder / "tuned.json").write_text(text)
        assert tuned.load() == []
        assert "is renamed to tuned.bad" in caplog.text
        assert (folder / "tuned.bad").read_text() == text
        assert not (folder / "tuned.json").exists()


def test_concurrent_processes_lose_no_records(folder: Path) -> None:
    code = (
        "import dataclasses, sys; from tests.cli.test_cache import RECORD; from webmm.choose import tuned\n"
        "for i in range(8): tuned.add([dataclasses.replace(RECORD, m=int(sys.argv[1]) + i)])"
    )
    root = Path(__file__).parents[2]
    running = [subprocess.Popen([sys.executable, "-c", code, str(start)], cwd=root) for start in (1000, 2000, 3000)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert len(tuned.load()) == 24


def test_the_nearest_record_is_chosen() -> None:
    far = dataclasses.replace(RECORD, m=4096, n=4096, k=4096, kernel="naive", config={})
    foreign = dataclasses.replace(RECORD, kernel="from_a_later_version")
    renamed = dataclasses.replace(RECORD, config={"no_such_tunable": 1})
    half = dataclasses.replace(RECORD, dtype="float16", kernel="naive", config={})
    records = [far, foreign, renamed, half, RECORD]
    assert _nearest(gemm(100, 64, 64), records) == RECORD
    assert _nearest(gemm(4000, 5000, 4096), [RECORD]) is None
    assert distance(gemm(64, 64, 64), RECORD) == 0
    assert distance(gemm(32, 64, 64, batch=2), RECORD) == 0
    assert distance(gemm(64, 64, 64, transpose_b=True), RECORD) == 1
    odd = dataclasses.replace(RECORD, m=100, n=63)  # rows of B are not whole vec4
    assert distance(gemm(100, 63, 64), RECORD) > distance(gemm(100, 63, 64), odd) == 0
    assert distance(gemm(63, 64, 64), RECORD) < 0.1 < 1 < distance(gemm(63, 64, 64, transpose_a=True), RECORD)
    assert _nearest(gemm(100, 62, 64), [RECORD, odd]) == odd
    assert _nearest(gemm(100, 60, 64), [RECORD, odd]) == RECORD
    transposed = dataclasses.replace(RECORD, m=100, layout="nt")
    assert _nearest(gemm(64, 64, 64, transpose_b=True), [*records, transposed]) == transposed
    assert _nearest(gemm(64, 64, 64), [transposed, *records]) == RECORD


def test_records_of_old_documents_get_a_layout() -> None:
    document = json.loads(to_json([RECORD]))
    del document["records"][0]["layout"]
    assert from_json(json.dumps(document)) == [RECORD]


def test_records_of_other_versions_and_layouts_are_kept() -> None:
    others = [dataclasses.replace(RECORD, **change) for change in ({"layout": "tn"}, {"version": "0.0.9"}, {"k": 65})]
    assert tuned.add([RECORD, *others]) == 4
    assert tuned.load() == [RECORD, *others]


def test_the_file_is_read_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned.add([RECORD])
    assert tuned.load() == [RECORD]
    monkeypatch.setattr(tuned, "from_json", lambda text: pytest.fail("the file was read again"))
    assert tuned.load() == [RECORD]
    monkeypatch.undo()
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tuned.folder() / "other"))
    assert tuned.load() == []


def test_a_bucket_is_tuned_once() -> None:
    assert bucket(gemm(1000, 100, 4100)) == bucket(dataclasses.replace(RECORD, m=1024, n=128, k=4096))
    assert bucket(gemm(1000, 100, 4100)) != bucket(gemm(500, 100, 4100))
    assert bucket(gemm(1000, 101, 4100)) != bucket(gemm(1000, 100, 4100)) == bucket(gemm(1001, 100, 4100))
    assert bucket(gemm(16, 64, 64, batch=4)) == bucket(RECORD)


def test_commands(webmm: Cli, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "r.json").write_text(to_json([RECORD]))
    assert "1 tuned records added" in webmm("cache", "import", "r.json").stdout
    assert "some adapter: 64×64×64 nn float32: tile_2d tm=2" in webmm("cache", "show").stdout
    assert webmm("cache", "export", "out.json").returncode == 0
    assert from_json((tmp_path / "out.json").read_text()) == [RECORD]
    assert "1 tuned records deleted" in webmm("cache", "clear").stdout
    assert tuned.load() == []
    for bad in ("missing.json", "."):
        done = webmm("cache", "import", bad)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1


def test_an_invalid_record_is_reported_and_the_others_imported(
    webmm: Cli, process: Cli, tmp_path: Path, folder: Path
) -> None:
    rows = json.loads(to_json([RECORD] * 3))["records"]
    rows[0]["m"], rows[1]["adapter"] = 0, "\x1b[31mred"
    text = json.dumps({"schema": SCHEMA, "records": rows})
    (tmp_path / "r.json").write_text(text)
    done = webmm("cache", "import", "r.json")
    assert "1 tuned records added" in done.stdout
    assert done.stderr.splitlines() == [
        "r.json: record 1 has no valid m; it is left out",
        "r.json: record 2 has no valid adapter; it is left out",
    ]
    assert tuned.load() == [RECORD]
    (folder / "tuned.json").write_text(text)  # as written by an earlier version or an editor
    assert tuned.load() == [RECORD]
    done = process("explain", "64", "64", "64")  # this one has read the file
    assert done.returncode == 0
    assert "record 2 has no valid adapter" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_an_absurd_record_is_refused(
    webmm: Cli, tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absurd = dataclasses.replace(RECORD, kernel="cpu_lanes", config={"tm": 1024, "tn": 16}, median_us=0.001)
    words = "is of cpu_lanes with a value that is never tried: tm must be one of 1, 4, 16, 32, or at most 32, not 1024"
    (tmp_path / "r.json").write_text(to_json([absurd]))
    done = webmm("cache", "import", "r.json")
    assert done.returncode == 2
    assert words in done.stderr
    assert not (folder / "tuned.json").exists()
    (tmp_path / "r.json").write_text(to_json([absurd, RECORD]))
    done = webmm("cache", "import", "r.json")
    assert (done.returncode, done.stderr) == (0, f"r.json: record 1 {words}; it is left out\n")
    (folder / "tuned.json").write_text(to_json([absurd, RECORD]))
    assert tuned.load() == [RECORD]
    assert caplog.messages[-1].endswith(f"tuned.json: record 1 {words}; it is left out")
    assert tuned.add([absurd]) == 0
    assert caplog.messages[-1] == f"a record is left out: it {words}"
    assert tuned.load() == [RECORD]


def test_a_tuned_record_is_chosen(webmm: Cli, tmp_path: Path) -> None:
    chosen = webmm("bench", "--sizes", "96", "--kernels", "tile_1d:wx=8", "--json", "r.json")
    assert chosen.returncode == 0
    assert webmm("cache", "import", "r.json").returncode == 0
    assert "→  tile_1d(wy=16,wx=8)" in webmm("explain", "96", "96", "96").stdout


def test_records_of_another_schema_are_refused() -> None:
    with pytest.raises(ProblemError, match="schema"):
        from_json(json.dumps({"schema": "webmm.records/2", "records": []}))
    with pytest.raises(ProblemError, match="status"):
        from_json(to_json([dataclasses.replace(RECORD, status="fine")]))  # type: ignore[arg-type]


def test_shipped_records_can_be_read() -> None:
    assert any(record.adapter == "NVIDIA H200" for record in tuned.shipped())
