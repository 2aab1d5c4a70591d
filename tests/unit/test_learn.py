"""The chapters: their directives, excerpts, figures and links, and that the files are what the tool writes."""

import re

import pytest

from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.learn import chapters, excerpts, numbers, pictures
from webmm.learn.__main__ import stale
from webmm.learn.directives import filled
from webmm.learn.drawings.tiles import own, tile_of
from webmm.learn.kernels import problem_for, stage_of
from webmm.wgsl.render import render, shader_folder


def test_files_are_what_the_tool_writes():
    assert not stale(), "run `python -m webmm.learn`"


def test_a_directive_is_filled_in_a_line_and_as_a_block():
    line = "It is <!-- gain gemm/tile_2d h200-f32 4096 -->?<!-- end --> times."
    assert re.search(r"4096 -->2\.26<!-- end --> times", filled(line))
    block = "\n<!-- code gemm/naive inner -->\n<!-- end -->\n"
    made = filled(block)
    assert "-->\n**naive**\n\n```wgsl\nvar sum: f32 = 0.0;" in made
    assert filled(made) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!-- gian gemm/naive -->1<!-- end -->", "there is no directive 'gian'"),
        ("<!-- gain gemm/naive h200-f32 -->1", "not ended"),
        ("1<!-- end -->", "no directive"),
        ("<!-- gain gemm/tile_2d h200-f32 77 --><!-- end -->", "no record of gemm/tile_2d at 77"),
        ("<!-- gain gemm/tile_2d h300 77 --><!-- end -->", "no records h300"),
        ("<!-- code gemm/naive outer --><!-- end -->", "no region 'outer'"),
        ("<!-- code gemm/nave inner --><!-- end -->", "gemm/nave is not a stage"),
        ("<!-- code gemm/naive inner bm=3 --><!-- end -->", "no tunable 'bm'"),
        ("<!-- traffic gemm/naive speed --><!-- end -->", "'speed' is not counted"),
        ("<!-- drawing cat --><!-- end -->", "no drawing 'cat'"),
    ],
)
def test_what_cannot_be_filled_is_an_error(text, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        filled(text)


def test_marks_of_regions_are_in_no_rendered_text():
    kernel = stage_of("gemm/naive")
    assert "//#" not in render(kernel, problem_for("gemm", "64")).wgsl
    assert "//#" not in render(kernel, problem_for("gemm", "64"), debug=True).wgsl


def test_an_excerpt_is_in_the_text_that_runs():
    kernel, problem = stage_of("gemm/naive"), problem_for("gemm", excerpts.SIZE)
    lines = excerpts.excerpt(kernel, problem, "inner").split("\n")
    assert all(line.strip() in render(kernel, problem).wgsl for line in lines)


def test_figures_agree_with_the_records():
    fastest = max(
        r.gflops or 0 for r in numbers.records("h200-f32") if r.kernel == "pipelined" and (r.m, r.n, r.k) == (4096,) * 3
    )
    assert numbers.speed("gemm/pipelined", "h200-f32") == f"{fastest:,.0f}"
    assert numbers.traffic("gemm/naive", "loads_per_fma") == "2"
    assert numbers.traffic("gemm/tile_1d", "loads_per_fma") == "1.25"
    assert numbers.traffic("gemm/naive", "flop_per_byte") == "0.25"


@pytest.mark.parametrize(
    ("stage", "count"),
    [("naive", 1), ("tile_1d", 4), ("tile_2d", 16), ("shared", 1), ("blocked", 64), ("pipelined", 64)],
)
def test_a_picture_shows_every_element_of_an_invocation_within_its_tile(stage, count):
    kernel = stage_of(f"gemm/{stage}")
    rows, columns, _ = tile_of(kernel)
    cells = own(kernel)
    assert len(set(cells)) == len(cells) == count
    assert all(0 <= r < rows and 0 <= c < columns for r, c in cells) or kernel.grid.elements
    assert f"{len(cells)} element" in pictures.drawing("tile", f"gemm/{stage}")


def test_the_header_of_a_template_names_the_stage_that_it_follows():
    told = 0
    for op in STAGES:
        for name, cls in STAGES[op].items():
            path = shader_folder() / f"{op}/{name}.wgsl"
            words = re.search(r"^// Changed from (\w+)[:,]", path.read_text() if path.is_file() else "", re.MULTILINE)
            assert not words or words[1] == cls.follows, f"{op}/{name}"
            told += words is not None
    assert told > 20


def test_plain_words_of_a_summary():
    chapter = chapters.Chapter("x", "# t: u\n\n<!-- note -->\nIt *reads* `A` **once**, see\n[b](c.md).\n\nMore.\n")
    assert (chapter.title, chapter.summary) == ("t: u", "It *reads* A once, see b.")


def test_anchors_are_those_of_github():
    assert chapters.slug("What held `naive` back?") == "what-held-naive-back"
