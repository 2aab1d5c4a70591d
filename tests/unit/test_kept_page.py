"""The page of `webmm serve`: built once, and again when anything changes that it is built from."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from webmm.page import bundle, kept


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The folders that pages are built in, each with a page of one file; sources and cache are folders of the test."""
    found: list[Path] = []

    def build(out: Path) -> None:
        found.append(out)
        (out / "bundle").mkdir(parents=True)
        (out / bundle.MARKER).write_text("{}")

    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "index.html").write_text("one")
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(bundle, "build", build)
    monkeypatch.setattr(bundle, "web_folder", lambda: tmp_path / "sources")
    return found


def served(said: list[str]) -> Path:
    with kept.page(said.append) as folder:
        assert (folder / bundle.MARKER).is_file()
    return folder


def test_a_page_is_kept_until_a_source_changes(builds: list[Path], tmp_path: Path) -> None:
    said: list[str] = []
    first = served(said)
    assert served(said) == first
    assert (len(said), len(builds)) == (1, 1)
    assert "building" in said[0]
    (tmp_path / "sources" / "index.html").write_text("two")
    assert served(said) != first
    (tmp_path / "sources" / "index.html").write_text("one")
    assert served(said) == first
    assert len(builds) == 2


def test_old_pages_are_deleted(builds: list[Path], tmp_path: Path) -> None:
    for i in range(kept.MOST + 2):
        (tmp_path / "sources" / "index.html").write_text(f"{i}")
        last = served([])
    found = list((tmp_path / "cache" / "pages").iterdir())
    assert len(found) == kept.MOST
    assert last in found


def test_a_page_that_is_shown_is_not_deleted(builds: list[Path], tmp_path: Path) -> None:
    with kept.page(str) as shown:
        with kept.page(str) as twice:
            assert twice == shown
        os.utime(shown, (0, 0))  # the oldest
        killed = tmp_path / "cache" / "pages" / f"{shown.name}.killed"
        killed.touch()
        for i in range(kept.MOST + 1):
            (tmp_path / "sources" / "index.html").write_text(f"{i}")
            served([])
        assert (shown / bundle.MARKER).is_file()
    (tmp_path / "sources" / "index.html").write_text("another")
    served([])
    assert not shown.exists()
    assert not killed.exists()


def test_a_page_that_cannot_be_kept_is_served_and_deleted(builds: list[Path], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    folder = served([])
    assert not folder.exists()
    assert builds == [folder]


def test_another_version_of_a_tool_builds_another_page(builds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = served([])
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.0" if name == "jinja2" else version(name))
    assert served([]) != first


def test_the_package_the_shaders_and_the_page_are_sources() -> None:
    names = {path.name for path in kept._sources()}
    assert {"tile_2d.wgsl", "bundle.py", "main.js", "index.html"} <= names
