"""The chapters as readers get them: their order, titles, summaries, and their text as Markdown or HTML."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from webmm.errors import ConfigError
from webmm.kernels import STAGES

LINK = re.compile(r"\[[^\]]*\]\(([\w./-]+\.md)\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
HERE = re.compile(r"<!-- here (\w+)/(\w+) -->")


@dataclass(frozen=True)
class Chapter:
    """A chapter: its path below the folder without `.md`, such as gemm/tile_2d, and its text in Markdown."""

    name: str
    text: str

    @property
    def title(self) -> str:
        """The text of its first heading."""
        return self.text.partition("\n")[0].removeprefix("# ").strip()

    @property
    def summary(self) -> str:
        """Its first paragraph, on one line, without marks of Markdown."""
        return _plain(self.text)

    def section(self, stage: str) -> str:
        """Return the heading of the section that tells a stage; "" if there is none."""
        found = re.search(rf"^## ({re.escape(stage)}\b.*)$", self.text, re.MULTILINE)
        return found[1] if found else ""

    def summary_of(self, section: str) -> str:
        """Return the first paragraph below the heading of a section, or the summary if it is ""."""
        _, _, below = self.text.partition(f"\n## {section}\n")
        return _plain(f"\n{below}") if section else self.summary


def _plain(text: str) -> str:
    paragraph = COMMENT.sub("", text).split("\n", 1)[-1].strip().split("\n\n")[0]
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.sub(r"\*\*|`", "", words)


def folder() -> Path:
    """Return the folder of the chapters: inside the installed package, or `docs/learn` of a checkout."""
    installed = Path(__file__).with_name("chapters")
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "docs" / "learn"


@functools.cache
def load() -> dict[str, Chapter]:
    """Return the chapters by name, in the order of the links of the index, README.md.

    Raises ConfigError if the index links a chapter that does not exist.
    """
    found = {}
    for name in _listed((folder() / "README.md").read_text(encoding="utf-8")):
        path = folder() / f"{name}.md"
        if not path.is_file():
            raise ConfigError(f"the index of the chapters links {name}.md, which does not exist")
        found[name] = Chapter(name, path.read_text(encoding="utf-8"))
    return found


def _listed(index: str) -> Iterator[str]:
    for link in dict.fromkeys(LINK.findall(index)):
        if not link.startswith(".."):
            yield link.removesuffix(".md")


def told_in(op: str, stage: str) -> tuple[Chapter, str] | None:
    """Return the chapter that tells a stage, and the heading of its section ("": all of it does); None if none does."""
    if chapter := load().get(f"{op}/{stage}"):
        return chapter, ""
    chapter = load().get(op)
    section = chapter.section(stage) if chapter else ""
    return (chapter, section) if chapter and section else None


def untold() -> list[str]:
    """Return the stages, as OP/STAGE, that no chapter tells."""
    return [f"{op}/{stage}" for op in STAGES for stage in STAGES[op] if told_in(op, stage) is None]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def html(chapter: Chapter, link: Callable[[str], str], image: Callable[[str], str]) -> str:
    """Return a chapter as HTML.

    `link` returns the address of a chapter from its name, with #anchor if there is one; other links stay as they are.
    `image` returns what stands for a drawing from its name. Where the text asks for the gain on the reader's device is
    `<div class="here" data-stage="OP/STAGE"></div>`.
    """
    from markdown_it import MarkdownIt  # only when a page is built

    place = PurePosixPath(chapter.name).parent
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    text = HERE.sub(r'<div class="here" data-stage="\1/\2"></div>', chapter.text)
    tokens = parser.parse(COMMENT.sub("", text))
    for i, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(tokens[i + 1].content))
        for child in token.children or ():
            if child.type == "link_open" and (target := _target(place, str(child.attrGet("href")))):
                child.attrSet("href", link(target))
            elif child.type == "image":
                child.type, child.content = "html_inline", image(PurePosixPath(str(child.attrGet("src"))).stem)
    # A table's corner without words is no header.
    return str(parser.renderer.render(tokens, parser.options, {})).replace("<th></th>", "<td></td>")


def _target(place: PurePosixPath, href: str) -> str | None:
    """Return the chapter that a relative link in a folder names, with its anchor."""
    path, hash_, anchor = href.partition("#")
    if not path.endswith(".md") or "://" in path:
        return None
    name = posixpath.normpath(place / path).removesuffix(".md")
    return f"{name}{hash_}{anchor}" if name in load() else None
