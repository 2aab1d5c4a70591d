"""Pages of the reference that are made from the program: API, commands, settings, errors, stages and their sources."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

import webmm
from webmm import config, errors
from webmm.cli import main
from webmm.kernels import STAGES
from webmm.learn import chapters

ROOT = Path(__file__).resolve().parents[2]
TITLES = {  # of the parts of the API, by the package that defines a public name
    "calls": "Calls",
    "engine": "Devices and arrays",
    "measure": "Timing",
    "problems": "Problems and quantised data",
    "wgsl": "Shaders and epilogues",
    "plugins": "Extending",
}
BEYOND = (  # names that programs use from modules: what docs and examples import
    *("webmm.problems.gemm.gemm", "webmm.kernels.configure", "webmm.kernels.base.Kernel", "webmm.kernels.base.tunable"),
    *("webmm.cases.base.Op", "webmm.cases.base.Case", "webmm.cases.base.Exhibit", "webmm.measure.records.Record"),
)
PAGES = {
    "Python": "reference/api.md",
    "Kernels and records": "reference/kernels.md",
    "Commands": "reference/commands.md",
    "Settings": "reference/settings.md",
    "Errors": "reference/errors.md",
    "Stages": "reference/stages.md",
}
CITED = re.compile(r"\(((?:[A-Z][\w-]+(?:, | and | et al\.,? ?)?)+[^()]{0,120}\b(?:19|20)\d\d)\)")


def listed(made: Path) -> dict[str, str]:
    """Return the pages of the reference by title, in order; `made` is the folder of those that TypeDoc wrote."""
    names = sorted(path.stem for path in (made / "javascript").glob("*.md") if path.stem != "index")
    found = {f"{name}.js": f"javascript/{name}.md" for name in sorted(names, key=lambda name: name != "webmm")}
    return {**PAGES, **found}


def pages(made: Path) -> dict[str, str]:
    """Return the text of each page by its path on the site."""
    texts = (api(), kernels(), commands(), settings(), hierarchy(), stages())
    scripts = {path: _escaped(made / path) for path in listed(made).values() if path not in PAGES.values()}
    return {**dict(zip(PAGES.values(), texts, strict=True)), **scripts}


def _escaped(page: Path) -> str:
    """Return a page of TypeDoc, where arrays of arrays are no links."""
    return page.read_text(encoding="utf-8").replace("[][]", "\\[\\]\\[\\]")


def api() -> str:
    """Return the public names of the package, from their docstrings."""
    parts: dict[str, list[str]] = {title: [] for title in TITLES.values()}
    for name in webmm.__all__:
        what = getattr(webmm, name)
        if inspect.isclass(what) and issubclass(what, errors.WebmmError):
            continue  # they have a page
        package = getattr(what, "__module__", "").split(".")
        if len(package) > 1 or name == "register":
            parts[TITLES["plugins" if name == "register" else package[1]]].append(path_of(name))
    text = "# Python\n\nEverything in `webmm`; `import webmm` loads what a program uses.\n\n"
    for title, names in parts.items():
        text += f"## {title}\n\n" + "".join(_documented(name) for name in names)
    return text


def path_of(name: str) -> str:
    """Return the dotted path of a public name where it is defined."""
    what = getattr(webmm, name)
    return f"{'webmm' if name == 'register' else what.__module__}.{what.__qualname__}"


def _documented(path: str) -> str:
    return f"::: {path}\n    options:\n      heading_level: 3\n\n"


def kernels() -> str:
    """Return the classes for programs that choose, write or record kernels."""
    intro = "# Kernels and records\n\nFor programs that run, add or record kernels: [extending](../extending.md).\n\n"
    return intro + "".join(_documented(name) for name in BEYOND)


def commands() -> str:
    """Return the help of every command, from click."""
    text = "# Commands\n\n" + _help(main, "webmm")
    for name, command in sorted(main.commands.items()):
        text += f"## webmm {name}\n\n{_help(command, f'webmm {name}')}"
        if isinstance(command, click.Group):
            for part, sub in sorted(command.commands.items()):
                text += f"### webmm {name} {part}\n\n{_help(sub, f'webmm {name} {part}')}"
    return text


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=100, terminal_width=100)
    return f"```text\n{command.get_help(context)}\n```\n\n"


def settings() -> str:
    """Return the table of settings, and how they are found."""
    rows = ""
    for field in dataclasses.fields(config.Settings):
        names = f"`{field.name}` | `{config.variable(field.name)}`"
        rows += f"| {names} | {_default(field.name)} | {_cell(field.metadata['doc'])} |\n"
    table = f"| setting | variable | default | meaning |\n|---|---|---|---|\n{rows}\n"
    rules = (config.__doc__ or "").split("\n\n", 1)
    return f"# Settings\n\n{rules[0]}\n\n{table}{rules[1]}\n\n{_documented('webmm.config.set')}"


def _default(name: str) -> str:
    value = getattr(config.Settings(), name)
    if isinstance(value, Path):
        return "the platform's folder"
    return f"`{value}`" if value not in ("", None) else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def hierarchy() -> str:
    """Return the tree of exceptions and each of them."""
    tree = (errors.__doc__ or "").partition("::\n")[2]
    classes = [f"webmm.errors.{name}" for name, what in vars(errors).items() if inspect.isclass(what)]
    return f"# Errors\n\n```text\n{inspect.cleandoc(tree)}\n```\n\n" + "".join(map(_documented, classes))


def stages() -> str:
    """Return what each stage of each op changes, with its template, and the publications that the code names."""
    text = "# Stages\n\nThe algorithms, in the order of the ladders, with the chapters that tell them. "
    text += "`webmm shader STAGE` prints them.\n\n"
    for op, ladder in STAGES.items():
        text += f"## {op}\n\n| stage | follows | what it is | template |\n|---|---|---|---|\n"
        for name, stage in ladder.items():
            template = f"[{name}.wgsl](../../shaders/{stage().template})"
            follows = f"`{stage.follows}`" if stage.follows else "–"
            told = chapters.told_in(op, name)
            shown = f"[`{name}`](../learn/{told[0].name}.md)" if told else f"`{name}`"
            text += f"| {shown} | {follows} | {_cell(_idea(stage))} | {template} |\n"
        text += "\n"
    return text + "## Sources\n\n| in | source |\n|---|---|\n" + "".join(_sources())


def _idea(stage: type) -> str:
    return " ".join(inspect.cleandoc(stage.__doc__ or "").split("\n\n")[0].split())


def _sources() -> Iterator[str]:
    files = [*sorted((ROOT / "webmm").rglob("*.py")), *sorted((ROOT / "shaders").rglob("*.wgsl"))]
    for path in files:
        for cited in dict.fromkeys(CITED.findall(path.read_text(encoding="utf-8"))):
            place = path.relative_to(ROOT)
            yield f"| [{place}](../../{place}) | {' '.join(cited.split())} |\n"
