"""The page with plugins: their classes and templates are translated; what cannot be is one line with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from webmm.cases import OPS
from webmm.cases.streaming import StreamingOp
from webmm.cli import main
from webmm.dtypes import F32
from webmm.errors import ConfigError
from webmm.page import core, index, rows

STAGE = "    def iterations(self, problem: Cumsum) -> int:\n        return problem.length\n"


@pytest.fixture
def loaded(load_plugin, examples: Path) -> None:
    """Load the example of an op, without translating it."""
    load_plugin(examples / "cumsum.py")


@pytest.fixture
def plugin(examples, load_plugin):
    """Return the function that loads the example of an op with an edit, and returns its translated modules."""

    def loaded(edits: dict[str, str] | None = None, template: str = "") -> dict[str, str]:
        file = examples / "cumsum.py"
        for old, new in (edits or {}).items():
            assert old in file.read_text()
            file.write_text(file.read_text().replace(old, new))
        if template:
            (examples / "one_by_one.wgsl").write_text(template)
        load_plugin(examples / "cumsum.py")
        core.write_templates(examples / "templates")
        return core.modules(core.program())

    return loaded


def test_a_plugins_classes_and_template_are_translated(plugin, examples: Path) -> None:
    texts = plugin()
    assert "class OneByOne " in texts["core.js"]
    for what in ("class Cumsum ", "class CumsumOp ", '["cumsum", CumsumOp]', "Cumulative sums of each row"):
        assert what in texts["ops.js"]
    assert (examples / "templates/cumsum/one_by_one.js").read_text().count("add(") == 1
    written = [*texts.values(), *(file.read_text() for file in (examples / "templates").rglob("*.js"))]
    assert not any(str(examples) in text for text in written)
    document = index.index()
    assert "cumsum" in document["ops"]
    assert rows.__getattr__("DATA")["cumsum"] == ["GB/s", 2, 2, 0]
    assert "Cumulative sums of each row" in [title for title, *_ in document["subjects"]["ladder"]]
    assert "cumsum" in rows.__getattr__("FORMS")
    assert rows.__getattr__("FIELDS")["cumsum"] == ("rows", "columns", "dtype")


def test_a_page_without_plugins_does_not_know_them() -> None:
    texts = core.modules(core.program())
    assert "OneByOne" not in texts["core.js"]
    assert "umsum" not in texts["ops.js"]


def test_a_template_may_include_others_of_its_folder(plugin, examples: Path) -> None:
    (examples / "shared.wgsl").write_text('{% include "more.wgsl" %}\n')
    (examples / "more.wgsl").write_text("// more\n")
    text = (examples / "one_by_one.wgsl").read_text()
    plugin(template='{% include "shared.wgsl" %}\n' + text)
    made = (examples / "templates/cumsum/one_by_one.js").read_text()
    assert 'import "../cumsum/one_by_one/shared.js"' in made
    assert '"cumsum/one_by_one/shared.wgsl"' in made
    assert (
        'import "../../cumsum/one_by_one/more.js"' in (examples / "templates/cumsum/one_by_one/shared.js").read_text()
    )
    assert "// more" in (examples / "templates/cumsum/one_by_one/more.js").read_text()


BEYOND = {
    "a library": {STAGE: STAGE.replace("problem.length", "np.lcm(problem.length, 1)")},
    "a statement": {STAGE: STAGE.replace("return", "with self: return")},
    "a lambda": {
        "def rounding(p": "OTHER = [lambda p: 1.0]\n\n\ndef rounding(p",
        "+ (p.dtype.eps if": "+ (OTHER[0](p) if",
    },
    "an attribute": {"total + x": "total.hex() + x"},
    "a decorator": {"    def bound(": "    @functools.cache\n    def bound("},
}
MESSAGES = {
    "a library": r"iterations\(\) uses np.lcm, which the page does not have",
    "a statement": "With is not translated",
    "a lambda": r"rounding\(\) uses OTHER, which the page does not have",
    "an attribute": "no translated class has an attribute hex",
    "a decorator": "the decorator cache is not translated",
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_leaves_the_subset_is_named_with_file_and_line(plugin, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\S*examples/cumsum\.py:\d+: {MESSAGES[what]}$"):
        plugin(BEYOND[what])


def test_a_template_beyond_the_subset_is_named_with_file_and_line(plugin, examples: Path) -> None:
    for text, message in (
        ("{{ 1 | round }}", "the filter round is not translated"),
        ("{% if %}", "Expected an expression"),
    ):
        with pytest.raises(ConfigError, match=rf"^\S*examples/one_by_one\.wgsl:2: {message}"):
            plugin(template=f"// x\n{text}\n")


def test_the_command_says_it_in_one_line_and_writes_nothing(examples: Path, load_plugin, tmp_path: Path) -> None:
    file = examples / "cumsum.py"
    file.write_text(file.read_text().replace(STAGE, STAGE.replace("problem.length", "int(np.lcm(problem.length, 1))")))
    done = CliRunner().invoke(main, ["bundle", str(tmp_path / "page"), "--plugin", str(file)])
    assert done.exit_code == 2
    assert re.fullmatch(
        r"webmm: .*cumsum\.py:\d+: iterations\(\) uses np\.lcm, which the page does not have\n", done.output
    )
    assert not (tmp_path / "page").exists()


@pytest.mark.usefixtures("loaded")
def test_classes_of_programs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OPS["cumsum"]), "__module__", "__main__")
    with pytest.raises(
        ConfigError, match="CumsumOp is defined in a program or notebook; the page takes plugins from files"
    ):
        core.program()


# Rows


@pytest.mark.usefixtures("loaded")
def test_the_page_computes_the_rates_of_rows() -> None:
    """A rate is a + b / n per byte, of any dtype whose results have the same type."""
    for name, (unit, _, *factors) in rows.__getattr__("DATA").items():
        op = OPS[name]
        assert unit == op.unit
        for n in (1, 7, 1000) if isinstance(op, StreamingOp) else ():
            problem = op.problem((3, n, 1), "float16")
            a, b = factors
            assert 2 * (a + b / n) == pytest.approx(problem.bytes / problem.flops)


@pytest.mark.usefixtures("loaded")
def test_a_rate_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OPS["cumsum"]), "rate", lambda self, record: record.gflops * record.n)
    with pytest.raises(ConfigError, match="the page cannot compute the rate of op cumsum"):
        rows.__getattr__("DATA")


@pytest.mark.usefixtures("loaded")
def test_an_op_without_a_reference_is_shown_without_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(OPS["cumsum"]), "reference")
    assert ["Cumulative sums of each row", False] in rows.titles()
    assert "cumsum" not in rows.__getattr__("FORMS")


@pytest.mark.usefixtures("loaded")
def test_references_of_rows_agree_with_numpy() -> None:
    """The trial of each op is within its bound of what `reference()` returns, which the page checks with."""
    for form in rows.__getattr__("FORMS"):
        name, _, variant = form.partition(":")
        op = type(OPS[name])(variant)
        for (m, n, k), _ in op.tried:
            problem = op.problem((m, n, k) if m * n * k < 2**17 else (2, 1000, k), F32.name)
            trial, (m, n, k, _) = op.trial(problem), problem.sizes
            x = trial.buffers["x"].reshape(m, n, k)
            made = [[op.reference(problem, x[i, :, j].tolist()) for j in range(k)] for i in range(m)]
            expected = trial.expected.reshape(m, -1, k)
            for i, j in ((0, 0), (m - 1, k - 1)):
                for (value, unit), known in zip(made[i][j], expected[i, :, j], strict=True):
                    assert abs(value - known) <= op.bound(problem) * unit + 1e-12 * abs(known), (form, i, j)
