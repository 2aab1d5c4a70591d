"""The documentation site: what its hooks make of links and anchors, its generated pages, and what a release needs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import webmm
from webmm.cli import main
from webmm.config import Settings
from webmm.kernels import STAGES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Iterator[ModuleType]:
    """Return the module hooks.py, with its neighbours and those of bench/."""
    folders = [str(ROOT / "tools" / "site"), str(ROOT / "bench")]
    sys.path[:0] = folders
    yield importlib.import_module("hooks")
    for folder in folders:
        sys.path.remove(folder)
    for name in ("hooks", "measured", "ratios", "reference", "evidence", "commits_drawn"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("matmul.md", "[a](tuning.md#settings)", "[a](tuning.md#settings)"),
        ("learn/gemm/naive.md", "[a](../../tuning.md)", "[a](../../tuning.md)"),
        ("matmul.md", "[a](../README.md)", "[a](index.md)"),
        ("index.md", "[a](docs/matmul.md) and ![p](docs/page.png)", "[a](matmul.md) and ![p](page.png)"),
        ("index.md", "[![p](docs/page.png)](docs/page.png)", "[![p](page.png)](page.png)"),
        ("matmul.md", "[a](../bench/README.md#other-libraries-for-the-web)", None),
        ("bench/README.md", "[a](../docs/results.md)", "[a](../results.md)"),
        ("matmul.md", "[a](../web/half.js), [b](../shaders)", "a, b"),
        ("matmul.md", "[a](https://example.org/x.md) [b](#here)", "[a](https://example.org/x.md) [b](#here)"),
        ("matmul.md", "[a](nowhere.md) [b](../web/nowhere.js)", "[a](nowhere.md) [b](../web/nowhere.js)"),
        ("matmul.md", "It is <!-- gain x y -->1.9<!-- end --> times", "It is 1.9 times"),
    ],
)
def test_links_are_those_of_the_site(site: ModuleType, page: str, text: str, expected: str | None) -> None:
    def known(path: str) -> bool:
        return path in site.MOVED.values() or path in site.ELSEWHERE or (ROOT / "docs" / path).is_file()

    wanted = text.replace("../bench", "bench") if expected is None else expected
    assert site.prose(text, site.linker(page, known)) == wanted


def test_files_outside_the_site_are_in_the_repository(site: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ADDRESS", "https://example.org/webmm")
    link = site.linker("matmul.md", lambda path: False)
    assert site.prose("[a](../web/half.js)", link) == "[a](https://example.org/webmm/blob/main/web/half.js)"
    assert site.prose("[a](../shaders)", link) == "[a](https://example.org/webmm/tree/main/shaders)"


def test_anchors_are_githubs(site: ModuleType) -> None:
    site.seen.clear()
    assert [site.anchor(text, "-") for text in ("It's `a` – b", "Same", "Same")] == ["its-a--b", "same", "same-1"]


def test_the_order_of_reading_has_every_page(site: ModuleType) -> None:
    listed = str(list(site.order()))
    for page in (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "start").glob("*.md")):
        if page.name != "README.md":
            assert f"'{page.relative_to(ROOT / 'docs')}'" in listed
    for page in site.ELSEWHERE:
        assert f"'{page}'" in listed


def test_the_reference_has_everything(site: ModuleType) -> None:
    pages = site.reference.pages(ROOT / "nowhere")
    for name in webmm.__all__:
        assert f".{name}\n" in pages["reference/api.md"] + pages["reference/errors.md"] or name == "__version__", name
    for name in main.commands:
        assert f"\n## webmm {name}\n" in pages["reference/commands.md"]
    for name in Settings.__dataclass_fields__:
        assert f"| `{name}` | `WEBMM_{name.upper()}` |" in pages["reference/settings.md"]
    for ladder in STAGES.values():
        for stage in ladder.values():
            assert f"(../../shaders/{stage().template})" in pages["reference/stages.md"]
    assert "Ba, Kiros and Hinton, 2016" in pages["reference/stages.md"]


def test_tables_show_the_fastest_record_of_each_cell(site: ModuleType) -> None:
    pages = site.measured.pages()
    lines = pages["results/tables.md"].splitlines()
    row = next(line for line in lines if line.startswith("| quantized | int8 "))
    found = site.measured.measured()
    cells = [rows for key, rows in found.items() if key[:4] == ("NVIDIA H200", "timestamp", "quantized", "int8")]
    for rows in cells:
        assert f"{max(site.measured.rate(record) for record in rows):,.0f} <small>" in row
    for path in pages:
        assert path == "results/tables.md" or f"]({Path(path).name})" in pages["results/tables.md"]


def test_ratios_by_commit_are_a_page_with_or_without_lines(site: ModuleType, tmp_path: Path) -> None:
    assert "{'By commit': 'results/by-commit.md'}" in str(list(site.order()))
    page, *charts = site.ratios.pages()
    text = site.ratios.pages()[page]
    assert page == "results/by-commit.md"
    assert charts
    assert all(f"]({Path(chart).name})" in text for chart in charts)
    assert "There is no measurement yet" not in text
    broken = tmp_path / "commits.jsonl"
    alone = site.ratios.pages((tmp_path / "missing",))
    assert list(alone) == [page]
    assert "There is no measurement yet" in alone[page]
    broken.write_text("x\n")
    assert "\n* commits.jsonl: line 1 is not JSON\n" in site.ratios.pages((broken,))[page]


def test_a_release_needs_the_addresses_and_the_links(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "webmm").mkdir()
    (tmp_path / "tools" / "check-release").write_text((ROOT / "tools" / "check-release").read_text())
    (tmp_path / "README.md").write_text("# webmm\n\n[Documentation](https://w.org/)\n")

    def missing(*tag: str, **values: str) -> list[str]:
        names = {
            "ADDRESS": "https://g.org/webmm",
            "SITE": "https://w.org/",
            "CONTACT": "a@w.org",
            "__version__": "1.2.0",
            **values,
        }
        (tmp_path / "webmm" / "version.py").write_text("".join(f"{k} = {v!r}\n" for k, v in names.items()))
        command = [sys.executable, tmp_path / "tools" / "check-release", *tag]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (not done.stderr)
        return done.stderr.splitlines()

    assert missing(SITE="", CONTACT="") == ["webmm/version.py: SITE is empty", "webmm/version.py: CONTACT is empty"]
    assert missing() == ["README.md: its first lines do not link https://w.org/live/"]
    (tmp_path / "README.md").write_text("# webmm\n\n[Documentation](https://w.org/), [try it](https://w.org/live/)\n")
    assert missing() == []
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 1.2.0 – 2027-01-02\n")
    assert missing("v1.2.1") == [
        "the tag is v1.2.1, but webmm/version.py has 1.2.0",
        "CITATION.cff has no line 'version: 1.2.0'",
    ]
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\n")
    assert missing("v1.2.0") == []


def test_the_citation_names_the_version() -> None:
    assert f"version: {webmm.__version__}" in (ROOT / "CITATION.cff").read_text().splitlines()
