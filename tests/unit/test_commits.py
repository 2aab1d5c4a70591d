"""Ratios to NumPy by commit: lines in a file, samples in turns, what is drawn, and the branch that CI keeps them on."""

import dataclasses
import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[2]
NAMES = ("commits", "commits_drawn", "calls", "call_cases", "cpu_time", "onnx_peer", "peers", "whole_numbers")


@pytest.fixture(scope="module")
def commits():
    """Return the module bench/commits.py."""
    sys.path.insert(0, str(ROOT / "bench"))
    yield importlib.import_module("commits")
    sys.path.remove(str(ROOT / "bench"))
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def drawn(commits):
    return sys.modules["commits_drawn"]


def line_of(drawn, commit="a", day=1, **changes):
    """Return a line on commit aaaa…, of a day in May."""
    ratios = {"A @ B": drawn.Ratio(0.5, 0.4, 0.75), "softmax": drawn.Ratio(2.0, 1.5, 2.5)}
    line = drawn.Line(40 * commit, f"2026-05-0{day}T12:00:00+00:00", "a CPU", "Mesa 1", "x86", {"numpy": "2"}, ratios)
    return dataclasses.replace(line, **changes)


def test_a_commit_has_one_line_and_lines_of_others_are_kept_as_they_are(commits, drawn, tmp_path):
    file = tmp_path / "commits.jsonl"
    for commit in "ab":
        assert commits.put(file, line_of(drawn, commit)) == []
    foreign = '{"schema": "webmm.records/1", "records": []}'
    file.write_text(f"{file.read_text()}\n{{broken\n{foreign}", encoding="utf-8")
    again = line_of(drawn, "a", ratios={"A @ B": drawn.Ratio(1 / 3, 0.1, 0.5)})
    wrong = ["commits.jsonl: line 2 is not JSON", "commits.jsonl: line 3 is not of schema webmm.commits/1"]
    assert commits.put(file, again) == wrong
    kept = file.read_text(encoding="utf-8")
    assert kept.split("\n")[1:3] == ["{broken", foreign]
    lines, complaints = drawn.read(kept)
    assert [line.commit[0] for line in lines] == ["b", "a"]
    assert lines[0] == line_of(drawn, "b")
    assert lines[1].ratios == {"A @ B": drawn.Ratio(0.3333, 0.1, 0.5)}
    assert len(complaints) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit", "A" * 40),
        ("commit", None),
        ("date", "yesterday"),
        ("date", "2026-05-01"),
        ("device", "<b>"),
        ("driver", "a | b"),
        ("processor", 3),
        ("versions", {"numpy": 2}),
        ("ratios", {}),
        ("ratios", {"[a](b)": {"median": 1, "low": 1, "high": 1}}),
        ("ratios", {"a": {"median": 3, "low": 1, "high": 2}}),
        ("ratios", {"a": {"median": 1, "low": 0, "high": 2}}),
        ("ratios", {"a": {"median": 1, "low": 1, "high": math.inf}}),
        ("ratios", {"a": 1}),
    ],
)
def test_a_line_with_an_odd_field_is_reported(drawn, name, value):
    row = json.loads(line_of(drawn).to_json()) | {name: value}
    assert drawn.read(json.dumps(row)) == ([], [f"line 1 has no valid {name}"])


def test_samples_alternate_and_processes_are_the_pairs(commits, drawn):
    order = []
    took = {"ours": iter((2.0, 4.0, 90.0, 1.0, 3.0)), "theirs": iter((1.0, 1.0, 1.0, 50.0, 1.0))}

    def run(name):
        order.append(name)
        return next(took[name])

    assert commits.in_turns(lambda: run("ours"), lambda: run("theirs")) == (3.0, 1.0)
    assert order[:6] == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    processes = [{"a": (1.0, i), "b": (1.0, 1.0)} for i in range(1, commits.PAIRS + 1)]
    del processes[2]["b"]  # failed in one of them
    assert commits.ratios(processes) == {"a": drawn.Ratio(3.5, 1, 6)}


def test_a_wrong_result_is_not_timed(commits, monkeypatch):
    monkeypatch.setattr(commits, "LEAST", 0)
    host = SimpleNamespace(array=np.array, synchronize=lambda: None)
    (case,) = (case for case in commits.cases() if case.name.startswith("softmax"))
    in_numpy = dataclasses.replace(case, call=case.numpy)
    ours, theirs = commits.pair(host, in_numpy)
    assert min(ours, theirs) > 0
    with pytest.raises(ValueError, match="a result is off by"):
        commits.pair(host, dataclasses.replace(case, call=lambda x: 1.01 * case.numpy(x)))


def test_only_a_commit_without_changes_is_measured(commits, tmp_path):
    with pytest.raises(commits.click.ClickException, match="has no commit to measure"):
        commits.commit_of(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / "webmm").mkdir()
    (tmp_path / "webmm" / "x.py").write_text("1\n")
    git(tmp_path, "add", "webmm")
    git(tmp_path, "commit", "-qm", "x", GIT_COMMITTER_DATE="2026-05-01T14:00:00+02:00")
    (tmp_path / "notes").write_text("of no concern")
    assert commits.commit_of(tmp_path) == (git(tmp_path, "rev-parse", "HEAD"), "2026-05-01T12:00:00+00:00")
    (tmp_path / "webmm" / "x.py").write_text("2\n")
    with pytest.raises(commits.click.ClickException, match=r"differs from its commit.*\n.*x.py"):
        commits.commit_of(tmp_path)


def test_a_machine_has_its_commits_in_order(commits, drawn, tmp_path):
    ratios = {"A @ B": drawn.Ratio(0.6, 0.5, 0.7)}
    lines = [line_of(drawn, "c", 3, ratios=ratios), line_of(drawn, "a", 1), line_of(drawn, "b", 2, driver="Mesa 2")]
    text, charts = drawn.drawn(lines)
    first, second = text.split("\n## ")
    assert first.startswith("## a CPU, Mesa 1, x86\n")
    assert second.startswith("a CPU, Mesa 2, x86\n")
    assert "| call | `aaaaaaaa`<br>2026-05-01 | `cccccccc`<br>2026-05-03 |" in first
    assert "| A @ B | 0.5 <small>0.4 to 0.75</small> | 0.6 <small>0.5 to 0.7</small> |" in first
    assert "| softmax | 2 <small>1.5 to 2.5</small> | – |" in first
    assert list(charts) == ["commits-a-cpu-mesa-1-x86.svg", "commits-a-cpu-mesa-2-x86.svg"]
    assert all(f"]({name})" in text for name in charts)
    drawing = charts["commits-a-cpu-mesa-1-x86.svg"]
    assert drawing.index("aaaaaaaa, 2026-05-01: 0.5 (0.4 to 0.75)") < drawing.index("cccccccc, 2026-05-03: 0.6")
    assert drawn.ends([drawn.Ratio(1.0, 1.0, 1.0)]) == pytest.approx((2**-0.5, 2**0.5))
    assert drawn.ends(list(lines[1].ratios.values())) == pytest.approx((0.4, 2.5))
    (tmp_path / "x.jsonl").write_text("".join(f"{line.to_json()}\n" for line in lines))
    commits.main(["draw", str(tmp_path / "x.jsonl"), str(tmp_path / "made")], standalone_mode=False)
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "made").iterdir()} == {
        drawn.PAGE: text,
        **charts,
    }


def test_the_kept_lines_are_valid(drawn):
    lines, wrong = drawn.read((ROOT / "bench" / "results" / "lavapipe-commits.jsonl").read_text(encoding="utf-8"))
    assert lines
    assert not wrong


# The branch

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def run(folder, *command, **more):
    environment = ENVIRONMENT | more
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def git(folder, *words, **more):
    done = run(folder, "git", *words, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def steps(workflow, job):
    """Return the commands of a job of CI."""
    document = yaml.safe_load((ROOT / ".github" / "workflows" / workflow).read_text(encoding="utf-8"))
    return [step["run"] for step in document["jobs"][job]["steps"] if "run" in step]


@pytest.fixture
def clone(tmp_path):
    """Return a clone, with one commit on main, of a bare repository."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin")
    git(tmp_path, "clone", "-q", "origin", "clone")
    git(tmp_path / "clone", "checkout", "-q", "-b", "main")
    git(tmp_path / "clone", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "clone", "push", "-q", "origin", "main")
    return tmp_path / "clone"


def on_branch(clone, command):
    """Run the command of CI's job with another in place of the measurement."""
    script = steps("ci.yml", "ratios")[-1].replace("python bench/commits.py measure", f"sh -c '{command}' sh")
    return run(clone, "sh", "-c", script.replace("tools/on-branch", str(ROOT / "tools" / "on-branch")))


def test_ci_keeps_lines_on_a_branch_of_their_own_and_the_site_fetches_them(clone):
    (fetch,) = (step for step in steps("pages.yml", "publish") if "git fetch" in step)
    assert run(clone, "bash", "-e", "-c", fetch).returncode == 0  # there is no such branch yet
    assert not (clone / "build" / "commits.jsonl").exists()

    main = git(clone, "ls-remote", "origin", "main")
    for word in ("one", "two", "two"):  # the last changes nothing
        done = on_branch(clone, f'[ "$(tail -n 1 "$1")" = {word} ] || echo {word} >> "$1"')
        assert done.returncode == 0, done.stderr
    assert run(clone, "bash", "-e", "-c", fetch).returncode == 0
    assert (clone / "build" / "commits.jsonl").read_text() == "one\ntwo\n"
    assert git(clone, "rev-list", "--count", "FETCH_HEAD") == "2"
    assert git(clone, "ls-remote", "origin", "main") == main
    assert git(clone, "status", "--porcelain") == "?? build/"


def test_a_failure_or_another_writer_leaves_the_branch_as_it_is(clone):
    on_branch(clone, 'echo one > "$1"')
    before = git(clone, "ls-remote", "origin")
    assert on_branch(clone, 'echo two > "$1"; exit 3').returncode == 3
    assert git(clone, "ls-remote", "origin") == before
    # While the command runs, another commit is pushed to the branch.
    other = "git push -q origin $(git commit-tree -m other -p FETCH_HEAD FETCH_HEAD^{tree}):refs/heads/ratios"
    done = on_branch(clone, f'{other}; echo two >> "$1"')
    assert done.returncode != 0
    assert "rejected" in done.stderr
    git(clone, "fetch", "-q", "origin", "ratios")
    assert git(clone, "log", "-1", "--format=%s", "FETCH_HEAD") == "other"


def test_ci_writes_once_at_a_time_and_only_for_pushes():
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = document["jobs"]["ratios"]
    assert document["permissions"] == {"contents": "read"}
    assert job["permissions"] == {"contents": "write"}
    assert job["concurrency"]["group"] == "ratios"
    assert job["if"] == "github.event_name == 'push'"
    assert document[True]["push"] == {"branches": ["main"]}  # `on`, in YAML 1.1
