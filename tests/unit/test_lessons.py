"""The course on the page: chapters as HTML that its policy allows, and the steps of the first stages."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from webmm.kernels import STAGES
from webmm.learn import chapters
from webmm.page import lessons, steps

NAIVE = """# naive: one for each

A product, as it is [defined](../problem.md#the-scale), [below](#the-idea) and [elsewhere](../../matmul.md).

## The idea

![A tile](../drawings/tile.svg)

| size | speed |
|--|--:|
| 8 | 9 |

<!-- here gemm/naive -->
"""
SVG = '<svg width="7" viewBox="0 0 7 5"><style>.tile{fill:red}</style><rect class="tile"/></svg>'


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three chapters, in place of the package's."""
    for name, text in {
        "README.md": "# Learn\n\n- [Problem](problem.md)\n- [naive](gemm/naive.md)\n- [Reductions](reduce.md)\n",
        "problem.md": "# The problem\n\nIt is large.\n",
        "gemm/naive.md": NAIVE,
        "reduce.md": "# Reductions\n\nSums.\n\n## serial: one by one\n\nSlow.\n",
        "drawings/tile.svg": SVG,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(chapters, "folder", lambda: tmp_path)
    chapters.load.cache_clear()
    yield tmp_path
    chapters.load.cache_clear()


def read(path: Path) -> object:
    return json.loads(zlib.decompress(path.read_bytes(), wbits=-15))


def test_chapters_are_html_without_styles_whose_links_stay_on_the_page(course: Path, tmp_path: Path) -> None:
    style = lessons.write(tmp_path / "bundle")
    text = read(tmp_path / "bundle/learn/gemm/naive.deflate")
    assert isinstance(text, str)
    assert "style" not in text
    assert '<a href="#explain/problem~the-scale">defined</a>' in text
    assert '<a href="#explain/gemm/naive~the-idea">below</a>' in text
    text, _, links = text.partition("<nav ")
    assert '<a href="#explain/problem" rel="prev">Previous: The problem</a>' in links
    assert '<a href="#explain/reduce" rel="next">Next: Reductions</a>' in links
    assert len(re.findall("<a ", text)) == 2, "a link leads to a file that the page does not have"
    assert '<h3 id="to-naive-one-for-each">' in text
    assert '<h4 id="to-the-idea">' in text
    assert '<svg class="drawing" width="7" viewBox="0 0 7 5">' in text
    assert '<td class="right">9</td>' in text
    assert '<div class="scroll" tabindex="0"><table>' in text
    assert '<div class="here" data-stage="gemm/naive"></div>' in text
    assert ".drawing .tile{fill:light-dark(" in style


def test_the_index_lists_where_chapters_and_stages_are_told(course: Path, tmp_path: Path) -> None:
    lessons.write(tmp_path / "bundle")
    index = read(tmp_path / "bundle/learn/index.deflate")
    assert index == [
        *([name, name] for name in ("contents", "problem", "gemm/naive", "reduce")),
        ["reduce/serial", "reduce~serial-one-by-one"],
    ]
    contents = read(tmp_path / "bundle/learn/contents.deflate")
    assert isinstance(contents, str)
    assert '<a href="#explain/gemm/naive">naive</a>' in contents


def test_every_chapter_can_be_shown() -> None:
    for chapter in chapters.load().values():
        assert "style=" not in lessons.html(chapter), chapter.name


# Steps

SHOWN = {kernel.name: (kernel, problem) for kernel, problem in steps.shown()}


def test_the_first_stages_can_be_stepped_through() -> None:
    order = list(STAGES["gemm"])
    assert list(SHOWN) == [*order[: order.index("tile_2d") + 1], "shared"]


@pytest.mark.parametrize("name", SHOWN)
def test_the_steps_of_all_invocations_are_the_product(name: str) -> None:
    """Each reads from storage or what its workgroup has copied, and adds the products to its own elements."""
    kernel, problem = SHOWN[name]
    walk = steps.walk(kernel, problem)
    a, b = np.array(walk.a), np.array(walk.b)
    c, owned = np.zeros((problem.m, problem.n), int), np.zeros((problem.m, problem.n), int)
    held: dict[tuple[int, int], set[tuple[int, int, int, int]]] = {}

    def block(matrix: np.ndarray, place: tuple[int, int, int, int]) -> np.ndarray:
        row, column, rows, columns = place
        assert row + rows <= matrix.shape[0]
        assert column + columns <= matrix.shape[1]
        return matrix[row : row + rows, column : column + columns]

    for *_, tile in walk.invocations:
        block(owned, tile)[:] += 1
    assert (owned == 1).all(), "each element belongs to one invocation"
    for before, step in zip([None, *walk.steps], walk.steps, strict=False):
        if step.kind == "share" and (before is None or before.kind != "share"):
            held = {}
        for (workgroup, _, _, tile), reads in zip(walk.invocations, step.reads, strict=True):
            for of, place in enumerate(reads):
                if step.kind == "share":
                    held.setdefault((workgroup, of), set()).add(place)
                elif step.kind == "read":
                    assert place in held[workgroup, of], "read before it was copied"
            if step.kind != "share":
                block(c, tile)[:] += block(a, reads[0]) @ block(b, reads[1])
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("name", SHOWN)
def test_steps_agree_with_what_the_kernel_counts_of_its_work(name: str) -> None:
    kernel, problem = SHOWN[name]
    walk, count = steps.walk(kernel, problem), kernel.traffic(problem)
    assert count is not None

    def total(*kinds: str, of: object) -> int:
        return sum(of(*reads) for step in walk.steps if step.kind in kinds for reads in step.reads)  # type: ignore[operator]

    def elements(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        return a[2] * a[3] + b[2] * b[3]

    work = count.workgroups * count.invocations * count.steps
    assert len(walk.invocations) == count.workgroups * count.invocations
    assert total("load", "share", of=elements) == work * count.scalar_loads
    assert total("load", "read", of=lambda a, b: a[2] * b[3]) == work * count.fmas
    assert total("read", of=elements) == work * count.workgroup_loads
    assert total("share", of=elements) == work * count.workgroup_stores
