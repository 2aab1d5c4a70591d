"""What the documentation site has beyond the files in docs/: see mkdocs.yml.

docs/README.md is the order of reading, the index in docs/learn that of the chapters. Pages elsewhere in the repository
keep their paths. Links between pages become those of the site; links to other files lead to the repository, or stay
text while it has no address.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measured
import ratios
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from webmm.learn import chapters
from webmm.version import ADDRESS, AUTHORS, CONTACT, SITE

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "build" / "docs"  # what `make docs` wrote before: the reference of JavaScript
HOME, ORDER = "README.md", "docs/README.md"
MOVED = {HOME: "index.md", ORDER: "contents.md"}  # pages of the repository with other paths on the site
ELSEWHERE = (  # pages outside docs/
    *("CHANGELOG.md", "SECURITY.md", "bench/README.md", "bench/results/README.md", "leaderboard/README.md"),
    *("shaders/README.md", "tests/README.md", "tests/web/README.md", "web/README.md"),
)
ITEM = re.compile(r"^[*-] \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)
STYLE = """.md-typeset td code { word-break: normal; }
@media (max-width: 600px) {
  .md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: .4em; }
  .md-typeset p:has(> img[src$=".svg"]) { overflow-x: auto; }
  .md-typeset p > img[src$=".svg"] { max-width: max(100%, 480px); }
}
"""
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(`[^`\n]+`)")  # in a line
seen: Counter[str] = Counter()  # the anchors of the page that is being made
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)|!\[([^\]]*)\]\(([^()\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the address, the authors and the order of reading; headings get GitHub's anchors."""
    config.site_url = SITE or None
    config.site_author = AUTHORS or None
    config.copyright = " · ".join(filter(None, (AUTHORS, CONTACT)))
    config.repo_url = ADDRESS or None
    config.mdx_configs["toc"] = {"slugify": anchor, "toc_depth": 3}
    config.nav = list(order())
    return config


def anchor(heading: str, separator: str) -> str:
    """Return the anchor of a heading as on GitHub, which numbers equal ones of a page."""
    slug = chapters.slug(heading)
    number = seen[slug]
    seen[slug] += 1
    return f"{slug}{separator}{number}" if number else slug


def order() -> Iterator[dict[str, Any]]:
    """Yield the sections of docs/README.md with their pages, as `nav` has them."""
    yield {"webmm": [{"Overview": MOVED[HOME]}, {"Contents": MOVED[ORDER]}]}
    made = {"Reference": reference.listed(MADE), "Results": measured.PAGES | ratios.PAGES}
    parts = re.split(r"^## (.+)$", (ROOT / ORDER).read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section, text in zip(parts[1::2], parts[2::2], strict=True):
        pages = [page for title, link in ITEM.findall(text) for page in listed(title, link)]
        yield {section: [*pages, *({title: path} for title, path in made.get(section, {}).items())]}


def listed(title: str, link: str) -> Iterator[dict[str, str] | str]:
    """Yield the page that docs/README.md links, and after the index of the chapters all of them."""
    path = page_of(resolved(ORDER, link))
    if path is None:
        raise PluginError(f"{ORDER} lists {link}, which is no page of the site")
    yield {title: path}
    if path == "learn/README.md":
        yield from (f"learn/{name}.md" for name in chapters.load())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ and those made from the program and its records."""
    if readme := files.get_file_from_path("README.md"):
        files.remove(readme)
    for path in (*MOVED, *ELSEWHERE):
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, MOVED.get(path, path), content=text))
    for path, content in {**reference.pages(MADE), **measured.pages(), **ratios.pages()}.items():
        files.append(File.generated(config, path, content=content))
    files.append(File.generated(config, "site.css", content=STYLE))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with links for the site, without the chapters' directives."""
    del config
    seen.clear()
    place = page.file.src_uri
    link = linker(place, lambda path: files.get_file_from_path(path) is not None)
    parts = FENCE.split(markdown)
    parts[::2] = [prose(part, link) for part in parts[::2]]
    return "".join(parts)


def prose(text: str, link: Callable[[re.Match[str]], str]) -> str:
    """Return a part of a page that is not code: without comments, folded parts as Markdown, links mended."""
    pieces = CODE.split(text)
    pieces[::2] = [chapters.COMMENT.sub("", piece) for piece in pieces[::2]]
    text = "".join(pieces)
    text = text.replace("<details>", '<details markdown="1">')
    return LINK.sub(link, text)


def linker(place: str, known: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    """Return the function that gives a link on the page `place` of the site for one of the repository."""
    source = repository(place)

    def mended(match: re.Match[str]) -> str:
        words, target, picture, image = match.groups()
        path, hash_, anchor = (target or image).partition("#")
        if ":" in path or not path:
            return inner(match)
        there = resolved(source, path)
        page = page_of(there)
        if page is not None and known(page):
            link = posixpath.relpath(page, posixpath.dirname(place) or ".")
            return f"![{picture}]({link})" if image else f"[{LINK.sub(mended, words)}]({link}{hash_}{anchor})"
        if not (ROOT / there).exists():
            return match[0]  # MkDocs reports it
        kind = "tree" if (ROOT / there).is_dir() else "blob"
        return f"[{words}]({ADDRESS}/{kind}/main/{there})" if ADDRESS else words

    def inner(match: re.Match[str]) -> str:
        """Return a link elsewhere; its words may be a picture."""
        words, target, *_ = match.groups()
        return f"[{LINK.sub(mended, words)}]({target})" if words else match[0]

    return mended


def resolved(source: str, link: str) -> str:
    """Return the path in the repository of a link on the page `source` of it."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def page_of(path: str) -> str | None:
    """Return the path on the site of a file in the repository; None if the site has no such page."""
    if path in MOVED or path in ELSEWHERE:
        return MOVED.get(path, path)
    if path.startswith("build/docs/"):
        return path.removeprefix("build/docs/")
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def repository(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    back = {there: here for here, there in MOVED.items()}
    return back.get(page) or (page if page in ELSEWHERE else f"docs/{page}")
