"""The long run: seeds of its pieces are disjoint, one that fails stops no other, and a stopped one is continued."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MARKED = re.compile(r"mark\.long|sampled\(|crossed\(")


@pytest.fixture
def long(monkeypatch):
    monkeypatch.syspath_prepend(TESTS)
    import long

    return long


def pieces(long, seed=3):
    return [piece for part in ("soak", "problems", "steps") for piece in long.PARTS[part](seed, 1)]


def test_the_counts_are_complete_and_the_seeds_disjoint(long):
    counts, seeds = {"problems": 0, "steps": 0}, []
    for piece in (*pieces(long), *pieces(long, 4)):
        if piece.part in counts:
            given = piece.command[piece.command.index("--steps") + 1 if "--steps" in piece.command else 1]
            counts[piece.part] += int(given)
            first = int(piece.command[piece.command.index("--seed") + 1])
            seeds.append(range(first, first + int(given)))
    assert counts == {"problems": 2 * 30_000, "steps": 2 * 100_000}
    seeds.sort(key=lambda each: each.start)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(seeds))


def test_every_test_left_out_is_a_case(long):
    """Each folder with a parameter or test marked as long is a piece."""
    marked = {path.parent.name for path in TESTS.glob("*/test_*.py") if MARKED.search(path.read_text())}
    assert {Path(piece.command[-1]).name for piece in long.cases(0, 1)} == marked


def test_every_call_and_every_stage_is_a_piece(long):
    from webmm.kernels import STAGES

    stages = [tuple(piece.command[1:3]) for piece in long.tiles(0, 1)]
    assert stages == [(op, stage) for op in STAGES for stage in STAGES[op]]
    faults = list(long.faults(0, 1))
    assert {piece.engine for piece in faults} == {"wgpu", "dawn"}
    assert len({piece.name for piece in faults}) == len(faults) > 30
    assert all("--everywhere" in piece.command for piece in faults)


@pytest.mark.parametrize(
    ("command", "log", "rest"),
    [
        (
            ("fuzz.py", "15000", "--seed", "7"),
            "1,200 problems in 9 s (1 per second), 0 seeds failed; next: --seed 1207",
            ("fuzz.py", "13800", "--seed", "1207"),
        ),
        (
            ("fuzz.py", "--steps", "900", "--seed", "7"),
            "30 steps in 9 s (1), 0 seeds failed; next: --seed 8",
            ("fuzz.py", "--steps", "870", "--seed", "8"),
        ),
        (
            ("tests/gpu/tiles.py", "gemm", "naive"),
            "1 of 2 tiles: 1 right, 0 passed over, 0 failed; next: tests/gpu/tiles.py gemm naive --first 1",
            ("tests/gpu/tiles.py", "gemm", "naive", "--first", "1"),
        ),
        (
            ("tests/gpu/tiles.py", "gemm", "naive", "--most", "40"),
            "3 of 90 tiles: 3 right; next: tests/gpu/tiles.py gemm naive --first 3 --most 37",
            ("tests/gpu/tiles.py", "gemm", "naive", "--first", "3", "--most", "37"),
        ),
        (("tests/gpu/soak.py", "600"), "", ("tests/gpu/soak.py", "600")),
    ],
)
def test_a_stopped_piece_is_continued(long, command, log, rest):
    assert long.left(long.Piece("part", "name", command), log).command == rest


def test_a_tile_computes_a_problem_that_takes_seconds(monkeypatch):
    monkeypatch.syspath_prepend(TESTS / "gpu")
    import tiles

    from webmm.kernels import kernel_class

    candidates, _ = tiles.problems("normalise")
    rows = kernel_class("rows", "normalise")
    most = rows(lanes=1024, splits=2048)
    assert max(tiles.work(most, problem) for problem in candidates) > 2**45, "each split reads the parts of all"
    assert tiles.quick(rows(), candidates) is candidates[0]
    for kernel in (most, rows(lanes=1024, splits=64), rows(lanes=1, splits=512)):
        counts = [tiles.work(kernel, problem) for problem in candidates]
        chosen = counts[candidates.index(tiles.quick(kernel, candidates))]
        assert chosen == min(counts) or chosen <= tiles.QUICK
        assert chosen <= 2**38
    assert tiles.quick(rows(), []) is None


def test_the_lanes_of_each_width_are_others(long):
    commands = [piece.command for piece in long.lanes(3, 1)]
    seeds = [int(command[command.index("--seed") + 1]) for command in commands]
    assert sorted(set(seeds)) == [9, 10, 11]
    assert len(commands) % 3 == 0
    assert all(command[command.index("--most") + 1] == str(long.MOST_LANES) for command in commands)


def test_a_failed_piece_stops_no_other(long, tmp_path, capsys):
    done = tmp_path / "done"
    scripts = ["raise SystemExit(1)", "import time; time.sleep(60)", f"open({str(done)!r}, 'w')"]
    some = [long.Piece("part", f"piece-{i}", ("-c", script)) for i, script in enumerate(scripts)]
    results = long.run_all(some, 5, tmp_path, 2, 3)
    assert sorted((row.name, row.outcome) for row in results) == [
        *(("piece-0", "failed"), ("piece-1", "stopped"), ("piece-2", "passed")),
    ]
    assert done.exists()
    assert long.summary(some, results, 5, 1)
    shown = capsys.readouterr().out
    assert re.search(r"part +3 +1 ", shown)
    assert "failed: piece-0" in shown
    assert "stopped: piece-1" in shown
    assert long.earlier(tmp_path, 5).keys() == {"piece-0", "piece-1", "piece-2"}
    assert not long.earlier(tmp_path, 6)
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {row["seed"] for row in rows} == {5}


def test_what_a_stopped_piece_found_is_not_forgotten(long, tmp_path):
    piece = long.Piece("part", "piece", ("-c", "print('30 problems in 1 s, 0 seeds failed; next: --seed 30')"))
    assert long.run(piece, 0, tmp_path, 60).outcome == "passed"
    (tmp_path / "piece.log").write_text("10 problems in 1 s, 1 seeds failed; next: --seed 10\n")
    assert long.run(piece, 0, tmp_path, 60).outcome == "failed"


def test_its_help_names_the_parts():
    done = subprocess.run([sys.executable, TESTS / "long.py", "--help"], capture_output=True, text=True, check=True)
    assert "soak,problems,steps,faults,cases,tiles,lanes" in done.stdout.replace("\n", "").replace(" ", "")
