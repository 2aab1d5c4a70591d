"""The README and docs are true: Python examples and commands print the shown output, options and links exist."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Cli
from webmm.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "start").glob("*.md"))]
README = PAGES[0].read_text()
EXAMPLES = {
    page: re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page.read_text(), flags=re.DOTALL) for page in PAGES
}
# All examples run in one process, as for a reader who types them, but for those with settings: files of these are read
# at its start.
USUAL, WITH_SETTINGS = (
    {
        page: chosen
        for page, every in EXAMPLES.items()
        if (chosen := [each for each in every if ("webmm.toml" in each[0]) == settings])
    }
    for settings in (False, True)
)
IN_TURN = [
    *(pytest.param("usual", page, id=page.stem) for page in USUAL),
    *(pytest.param("with_settings", page, id=f"{page.stem} with settings") for page in WITH_SETTINGS),
]
RUN_IN_TURN = """
import contextlib, io, json, sys, traceback
printed = []
for code in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            exec(compile(code, "<example>", "exec"), {"__name__": "__main__"})
        except Exception:
            traceback.print_exc(file=output)
    printed.append(output.getvalue())
print(json.dumps(printed))
"""
COMMANDS = [
    pytest.param(command, output, id=f"{page.stem} {command}")
    for page in PAGES
    for command, output in re.findall(r"```console\n\$ webmm (.*?)\n(.*?)```", page.read_text(), flags=re.DOTALL)
]


def test_every_python_block_has_its_output() -> None:
    for page, examples in EXAMPLES.items():
        assert page.read_text().count("```python") == len(examples), page
    assert any(EXAMPLES.values())


# Quotes from examples/, whose files are run by other tests.
QUOTES = [
    pytest.param(quote, id=f"{page} {i}")
    for page in ("extending", "building-blocks", "decoding", "attention")
    for i, quote in enumerate(
        re.findall(r"```(?:py|wgsl|js)\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), flags=re.DOTALL)
    )
]


@pytest.mark.parametrize("quote", QUOTES)
def test_quotes_of_examples_are_current(quote: str) -> None:
    assert any(quote in example.read_text() for example in (ROOT / "examples").iterdir() if example.is_file())


def outputs(pages: dict[Path, list[tuple[str, str]]], folder: Path) -> dict[Path, list[str]]:
    """Return what the examples of each page print."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    done = subprocess.run(
        [sys.executable, "-c", RUN_IN_TURN],
        cwd=folder,
        input=json.dumps([code for examples in pages.values() for code, _ in examples]),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = iter(json.loads(done.stdout))
    return {page: [next(printed) for _ in examples] for page, examples in pages.items()}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[str]]:
    return outputs(USUAL, tmp_path_factory.mktemp("usual"))


@pytest.fixture(scope="module")
def with_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[str]]:
    return outputs(WITH_SETTINGS, tmp_path_factory.mktemp("settings"))


@pytest.mark.parametrize(("run", "page"), IN_TURN)
def test_python_prints_what_the_page_shows(run: str, page: Path, request: pytest.FixtureRequest) -> None:
    examples = USUAL if run == "usual" else WITH_SETTINGS
    assert request.getfixturevalue(run)[page] == [shown for _, shown in examples[page]]


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_commands_print_what_the_page_shows(command: str, output: str, webmm: Cli) -> None:
    done = webmm(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    spelling = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(output, done.stdout, spelling), done.stdout


def test_the_readme_lists_exactly_the_commands() -> None:
    shown = set(re.findall(r"^webmm ([a-z]+)", README, flags=re.MULTILINE))
    assert shown == set(main.commands)


def test_every_option_in_the_readme_exists() -> None:
    groups = [command for command in main.commands.values() if isinstance(command, click.Group)]
    commands = [*main.commands.values(), *(command for group in groups for command in group.commands.values())]
    options = {name for command in commands for param in command.params for name in param.opts}
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", README)) <= options


LINKING = [*PAGES, *sorted(ROOT.glob("*/README.md")), ROOT / "bench" / "results" / "README.md"]


@pytest.mark.parametrize("page", LINKING, ids=[str(page.relative_to(ROOT)) for page in LINKING])
def test_links_have_targets(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, heading = link.partition("#")
        if not link.startswith("https://"):
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not heading or heading in anchors(target), link


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose(page: Path) -> str:
    """Return the text of a page without blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
