"""The course on the page: a file per chapter, loaded on demand.

`bundle/learn/index.deflate` lists where each chapter and each stage, as OP/STAGE, is told: NAME or NAME~ANCHOR;
`bundle/learn/NAME.deflate` is the HTML of a chapter with links to those around it. All are compressed JSON.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from webmm.kernels import STAGES
from webmm.learn import chapters
from webmm.learn.chapters import Chapter
from webmm.learn.drawings.svg import COLOURS
from webmm.page.translated import deflated

HEADING = re.compile(r"<(/?)h([1-4])\b")
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
ALIGNED = re.compile(r'style="text-align:(\w+)"')  # the page's policy allows no inline styles
SCROLLED = '<div class="scroll" tabindex="0">'  # with the keyboard, too
WITHIN = re.compile(r'href="#(?!explain/)')
ELSEWHERE = re.compile(r'<a href="(?!#|https?:)[^"]*">(.*?)</a>', re.DOTALL)  # files that the page does not have


def write(bundle: Path) -> str:
    """Write the course to the folder `bundle`; return the style of its drawings."""
    index = Chapter("contents", (chapters.folder() / "README.md").read_text(encoding="utf-8"))
    found = {index.name: index, **chapters.load()}
    around = zip([None, *found.values()], found.values(), [*list(found.values())[1:], None], strict=False)
    for before, chapter, after in around:
        _write(bundle / "learn" / chapter.name, html(chapter) + _links(before, after))
    told = {f"{op}/{stage}": place for op in STAGES for stage in STAGES[op] if (place := _place(op, stage))}
    _write(bundle / "learn" / "index", list(({name: name for name in found} | told).items()))
    return _style()


def html(chapter: Chapter) -> str:
    """Return a chapter as the page shows it: below a heading of level 2, without inline styles, drawings in place."""
    text = chapters.html(chapter, lambda name: f"#explain/{name.replace('#', '~')}", _drawing)
    text = HEADING.sub(lambda tag: f"<{tag[1]}h{int(tag[2]) + 2}", text)
    text = ALIGNED.sub(r'class="\1"', text.replace(' id="', ' id="to-')).replace("<pre>", '<pre tabindex="0">')
    text = text.replace("<table>", f"{SCROLLED}<table>").replace("</table>", "</table></div>")
    text = WITHIN.sub(f'href="#explain/{chapter.name}~', text)
    return ELSEWHERE.sub(r"\1", text)


def _links(before: Chapter | None, after: Chapter | None) -> str:
    """Return links to the chapters before and after one."""
    links = (
        f'<a href="#explain/{each.name}" rel="{rel}">{words}: {escape(each.title)}</a>'
        for each, words, rel in ((before, "Previous", "prev"), (after, "Next", "next"))
        if each
    )
    return f'<nav class="row" aria-label="Chapters">{"".join(links)}</nav>'


def _drawing(name: str) -> str:
    svg = (chapters.folder() / "drawings" / f"{name}.svg").read_text(encoding="utf-8")
    return STYLE.sub("", svg).replace("<svg ", '<svg class="drawing" ', 1)


def _place(op: str, stage: str) -> str:
    """Return the chapter that tells a stage, with ~ANCHOR of its section; "" if none does."""
    found = chapters.told_in(op, stage)
    if found is None:
        return ""
    chapter, section = found
    return f"{chapter.name}~{chapters.slug(section)}" if section else chapter.name


def _style() -> str:
    rules = (
        f".drawing .{name}{{fill:light-dark({light},{dark})}}"
        f".drawing .{name}-line{{stroke:light-dark({light},{dark});fill:none}}"
        for name, (light, dark) in COLOURS.items()
    )
    return "".join(rules) + "\n"


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.deflate").write_bytes(deflated(document))
