"""The command that plants small defects: what it changes, where it finds the line again, and the tests it runs."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def mutations(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests")
    import mutations

    return mutations


PYTHON = """
def f(x, y):
    if x < y:
        raise ValueError(f"the array {x} has too few elements")
    x += min(x, 3)
    return x - 1 if y and x else g(y)
"""
WGSL = """
fn f() { // a + b
    if (x < params.m) {
        y[i + params.y_offset] = min(a, 4u);
    }
    workgroupBarrier(); // all are written
    {% if s.dense %}
}
"""


@pytest.mark.parametrize(
    ("area", "text", "changed"),
    [
        ("kernels", PYTHON, ["if x <= y:", "if not (x < y):", "x += max(x, 3)", "x += min(x, 4)", "pass"]),
        ("kernels", PYTHON, ["return x + 1 if y and x else g(y)", "return x - 1 if y or x else g(y)"]),
        ("kernels", PYTHON, ["return x - 1 if (not (y and x)) else g(y)"]),
        ("messages", PYTHON, ['raise ValueError(f"the array {x} has oot few elements")']),
        ("templates", WGSL, ["if (x <= params.m) {", "if (!(x < params.m)) {", "y[i] = min(a, 4u);"]),
        ("templates", WGSL, ["y[i + params.y_offset] = max(a, 4u);", "y[i + params.y_offset] = min(a, 5u);"]),
        ("templates", WGSL, ["// all are written", "{% if not (s.dense) %}"]),
    ],
)
def test_every_kind_of_mutation(mutations, area, text, changed):
    lines = {new.strip() for _, new, _ in mutations.edits(area, text)}
    assert lines >= set(changed)
    assert "fn f() { // a - b" not in lines


def test_messages_change_in_their_words_only(mutations):
    assert {what for _, _, what in mutations.edits("messages", PYTHON)} == {"word changed"}


def planted(tree, path, text):
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_line_is_found_in_a_moved_file(mutations, tmp_path):
    it = mutations.Mutation("pool", "webmm/engine/pool.py", "if x < y:", "if x <= y:", "comparison flipped")
    planted(tmp_path, "webmm/rooms/pool.py", PYTHON)
    assert mutations.place(tmp_path, it) == "webmm/rooms/pool.py"
    assert mutations.mutated(PYTHON, it) == PYTHON.replace("x < y", "x <= y")
    planted(tmp_path, "webmm/other.py", PYTHON)
    assert mutations.place(tmp_path, it) == "webmm/rooms/pool.py"  # of the same name
    planted(tmp_path, "webmm/engine/pool.py", "pass")
    planted(tmp_path, "webmm/rooms/pool.py", PYTHON + "if x < y:\n    pass\n")
    assert mutations.place(tmp_path, it) == "webmm/other.py"
    planted(tmp_path, "webmm/third.py", PYTHON)
    assert mutations.place(tmp_path, it) == ""  # it could be either


def test_the_tests_of_a_file(mutations):
    tests = mutations.Tests(ROOT)
    for area, path, test in (
        ("pool", "webmm/engine/pool.py", "tests/gpu/test_pool.py"),
        ("translator", "webmm/page/script/values.py", "tests/unit/test_script.py"),
        ("kernels", "webmm/choose/elementwise.py", "tests/unit/test_core.py"),  # imported by its name
        ("templates", "shaders/gemm/mend.wgsl", "tests/gpu/test_matrix_unit_high.py"),
        ("templates", "shaders/reduce/tree.wgsl", "tests/gpu/test_reduce_stages.py"),
        ("templates", "shaders/common/reduce/declared.wgsl", "tests/gpu/test_own_reductions.py"),
    ):
        assert test in tests.of(mutations.Mutation(area, path, "", "", ""), path)


def test_the_same_seed_draws_the_same_mutations(mutations):
    drawn = mutations.draw(ROOT, 5, 3)
    assert drawn == mutations.draw(ROOT, 5, 3)
    assert [each.area for each in drawn] == [*mutations.AREAS][:3]
    for each in drawn:
        text = (ROOT / each.path).read_text(encoding="utf-8")
        assert mutations.place(ROOT, each) == each.path
        assert mutations.mutated(text, each) != text


POOL = """
def larger(x, y):
    return max(x, y) if x != y else y

def unused(size, most):
    return size < most
"""
TESTS = """
from webmm.engine.pool import larger, unused

def test_fails_anyway():
    assert larger(1, 2) == 3

def test_larger():
    assert larger(1, 2) == 2
"""


@pytest.fixture
def tree(mutations, tmp_path, monkeypatch):
    """Return a small repository, instead of this one."""
    tree = tmp_path / "repository"
    for path, text in {
        "webmm/__init__.py": "",
        "webmm/engine/__init__.py": "",
        "webmm/engine/pool.py": POOL,
        "tests/unit/test_pool.py": TESTS,
        "tests/unit/test_broken.py": "from webmm.engine.pool import absent",
        ".gitignore": "build/",
    }.items():
        planted(tree, path, text)
    git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(mutations, "ROOT", tree)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load
    return tree


def test_a_defect_is_caught_survives_or_is_absent(mutations, tree, monkeypatch, capsys):
    lines = {
        "return max(x, y) if x != y else y": "return min(x, y) if x != y else y",
        "return size < most": "return size <= most",
        "return nothing": "return 1",
    }
    it = [mutations.Mutation("pool", "webmm/engine/pool.py", old, new, "") for old, new in lines.items()]
    monkeypatch.setattr(mutations, "draw", lambda *_: it)
    output = tree / "build/output.jsonl"
    monkeypatch.setattr("sys.argv", ["mutations.py", "--output", str(output)])
    assert mutations.main() == 0
    _, drawn, results = mutations.read(output)
    assert drawn == it
    assert [row.outcome for row in results] == ["caught", "survived", "absent"]
    assert results[0].by == "tests/unit/test_pool.py::test_larger"
    assert (tree / "webmm/engine/pool.py").read_text() == POOL
    first, second, _ = output.read_text().splitlines(keepends=True)[:3]
    output.write_text(first + second)  # interrupted
    assert "survived" in capsys.readouterr().out
    assert mutations.main() == 0
    assert "caught" not in capsys.readouterr().out
    assert [row.outcome for row in mutations.read(output)[2]] == ["caught", "survived", "absent"]
    planted(tree, "webmm/new.py", "")
    with pytest.raises(SystemExit, match="commit or stash"):
        mutations.main()


def test_what_was_caught_elsewhere_is_tried_with_the_file_that_caught_it(mutations, tree, monkeypatch):
    def output(name, *rows):
        drawn = [row["mutation"] for row in rows]
        lines = [{"commit": "1", "mutations": drawn}, *rows]
        planted(tree, f"build/{name}", "".join(f"{mutations.json.dumps(line)}\n" for line in lines))
        return str(tree / f"build/{name}")

    def row(old, new, outcome, by=""):
        words = ("pool", "webmm/engine/pool.py", old, new, "")
        return {"mutation": mutations.asdict(mutations.Mutation(*words)), "outcome": outcome, "by": by}

    planted(
        tree,
        "tests/unit/test_far.py",
        "def test_far():\n    from webmm.engine import pool\n    assert pool.larger(2, 1) == 2",
    )
    git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["add", "-A"], ["commit", "-qm", "second"]):
        subprocess.run([*git, *command], check=True)
    before = output(
        "before.jsonl",
        row(
            "return max(x, y) if x != y else y",
            "return min(x, y) if x != y else y",
            "caught",
            "tests/unit/test_far.py::t",
        ),
        row("return size < most", "return size <= most", "timed out"),
    )
    after = tree / "build/after.jsonl"
    words = ["--like", before, "--caught", "--jobs", "2", "--output", str(after)]
    monkeypatch.setattr("sys.argv", ["mutations.py", *words])
    assert mutations.main() == 0
    (result,) = mutations.read(after)[2]
    assert (result.outcome, result.by) == ("caught", "tests/unit/test_far.py::test_far")


def test_fewer_caught_than_before_is_told(mutations, tmp_path, capsys):
    def output(name, outcome):
        mutation = {"area": "pool", "path": "a.py", "line": "x", "replacement": "y", "what": "+ 1"}
        rows = [{"commit": "1", "mutations": [mutation]}, {"mutation": mutation, "outcome": outcome}]
        file = tmp_path / name
        file.write_text("".join(f"{mutations.json.dumps(row)}\n" for row in rows))
        return file

    before, after = output("before", "caught"), output("after", "survived")
    assert mutations.compare(before, after)
    assert "caught → survived: a.py: + 1" in capsys.readouterr().out
    assert not mutations.compare(after, before)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_an_attempt_ends_all(mutations, tmp_path, monkeypatch, jobs):
    """Others do not wait for its copy."""

    def failing(copy, mutation, hint):
        raise OSError("no space left")

    monkeypatch.setattr(mutations.Copy, "__init__", lambda copy, *args: None)
    monkeypatch.setattr(mutations.Copy, "attempt", failing)
    drawn = [mutations.Mutation("pool", "webmm/engine/pool.py", f"line {i}", "", "") for i in range(9)]
    with pytest.raises(OSError, match="no space left"):
        mutations.attempt_all(tmp_path / "out.jsonl", {"commit": "HEAD", "limit": 1}, drawn, {}, jobs)
