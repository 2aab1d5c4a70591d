"""The chapters: their directives, excerpts, figures and links, and that the files are what the tool writes."""

import re

import pytest

from webmm.choose.tables import shipped
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.learn import ablations, chapters, counts, excerpts, machines, numbers, pictures
from webmm.learn.__main__ import stale
from webmm.learn.directives import filled
from webmm.learn.drawings import find
from webmm.learn.drawings.tiles import own, tile_of
from webmm.learn.drawings.work import place
from webmm.learn.kernels import problem_for, stage_of
from webmm.measure.records import Record
from webmm.wgsl.render import render, shader_folder


def test_files_are_what_the_tool_writes():
    assert not stale(), "run `python -m webmm.learn`"


def test_every_stage_is_told_and_the_index_lists_every_chapter():
    assert chapters.untold() == []
    names = {path.relative_to(chapters.folder()).with_suffix("").as_posix() for path in chapters.folder().rglob("*.md")}
    assert names - {"README"} == set(chapters.load())


def test_links_of_chapters_lead_to_files():
    dead = [
        (path.name, link)
        for path in chapters.folder().rglob("*.md")
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert dead == []


def test_every_chapter_has_a_summary_and_becomes_html():
    for name, chapter in chapters.load().items():
        assert 40 < len(chapter.summary) < 900, name
        text = chapters.html(chapter, "#{}".format, "<svg>{}</svg>".format)
        assert "<h1" in text, name
        assert "<!--" not in text, name


def test_a_directive_is_filled_in_a_line_and_as_a_block():
    line = "It is <!-- gain gemm/tile_2d h200-f32 4096 -->?<!-- end --> times."
    assert re.search(r"4096 -->2\.26<!-- end --> times", filled(line))
    block = "\n<!-- code gemm/naive inner -->\n<!-- end -->\n"
    made = filled(block)
    assert "-->\n**naive**\n\n```wgsl\nvar sum: f32 = 0.0;" in made
    assert filled(made) == made
    assert filled(f"<!-- here gemm/naive -->\n{block}") == f"<!-- here gemm/naive -->\n{made}"


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
        ("<!-- machine h300 clock --><!-- end -->", "no table 'h300'"),
        ("<!-- machine nvidia-h200 weight --><!-- end -->", "no 'weight'"),
        ("<!-- clocks gemm/naive h200-f32 77 --><!-- end -->", "no record of gemm/naive at 77"),
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


def test_a_table_of_counts_has_the_stage_before_and_no_row_of_zeros():
    head, _, *rows = counts.counts("gemm/shared").split("\n")
    assert head == "| M=N=K = 4096 | workgroup_2d | shared |"
    assert "| loads from storage per FMA | 2 | 0.125 |" in rows
    assert "| FMAs between barriers | – | 8 |" in rows
    assert "barriers" not in counts.counts("gemm/tile_1d")


def test_figures_of_a_device_are_those_of_its_table():
    hardware = shipped()["nvidia-h200"].machine
    assert machines.machine("nvidia-h200", "workgroups") == f"{hardware.workgroups}"  # not those of its rates
    found = numbers.best("gemm/naive", "h200-f32", "1024")
    assert found
    assert found.median_us
    steps = 1024**3 / (132 * 32)  # of an invocation, one after the other
    assert machines.clocks("gemm/naive", "h200-f32", "1024") == f"{found.median_us * 1980 / steps:,.0f}"


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


def test_a_picture_of_a_step_has_a_cell_for_each_load_and_each_sum():
    svg = str(find()["step"](stage_of("gemm/tile_2d", tm=2)))
    assert (svg.count('class="slab"'), svg.count('class="mine"')) == (6, 8)
    assert "6 loads, 8 FMAs" in svg


def test_a_picture_of_lanes_marks_those_with_an_invocation():
    svg = str(find()["lanes"](stage_of("gemm/naive"), stage_of("gemm/workgroup_1d")))
    assert (svg.count('class="mine"'), svg.count('class="faint"')) == (1 + 32, 31)
    assert "naive: 1 of 32 lanes, 32 subgroups" in svg
    assert "workgroup_1d: 32 of 32 lanes, 64 subgroups" in svg


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


def test_a_figure_may_ask_for_settings_and_takes_the_plain_layout():
    of = numbers.best("gemm/pipelined", "h200-f32", "4096", prefetch="workgroup")
    assert of is not None
    assert of.config["prefetch"] == "workgroup"
    assert float(ablations.changed("gemm/pipelined", "h200-f32", prefetch="workgroup")) < 0.6
    swept = numbers.best("gemm/pipelined", "h200-sweep-f32", "4096")  # whose fastest record there is of another layout
    assert swept is not None
    assert swept.layout == "nn"


def test_bandwidth_counts_each_operand_once():
    assert numbers.bandwidth("gemm/gemv", "h200-sweep-f32", "1x16384x16384") == "4,398"


def test_ablations_are_read_as_speeds_relative_to_the_kernel_itself(monkeypatch):
    def record(us, **change):
        config = {"tm": 8, "tn": 8, "unroll": 16} | change
        name = ("gemm", "pipelined", 64, 64, 64, 1, "float32", "wgpu", "llvmpipe (LLVM)", "", "", "")
        return Record(*name, config=config, median_us=us, best_us=us, gflops=1.0)

    rows = (record(10.0), record(20.0, tm=4), record(5.0, tn=4), record(40.0, unroll=1), record(8.0, tm=4, tn=4))
    monkeypatch.setattr(numbers, "records", lambda name: rows)
    single = ablations.single_changes("x").split("\n")
    assert single[0] == "| changed | lavapipe |"
    assert single[2:] == ["| `tn=4` | × 2.00 |", "| `tm=4` | × 0.50 |", "| `unroll=1` | × 0.25 |"]
    assert ablations.paired_changes("x").endswith("| `tm=4`, `tn=4` | × 0.50 | × 2.00 | × 1.00 | × 1.25 |")


def test_tiles_in_turns_are_where_the_shader_puts_them():
    places = {place(tile, rows=5, columns=3, group=2) for tile in range(15)}
    assert places == {(row, column) for row in range(5) for column in range(3)}
    assert [place(tile, 5, 3, 2) for tile in (0, 1, 2, 12)] == [(0, 0), (1, 0), (0, 1), (4, 0)]
    svg = find()["turns"](stage_of("gemm/persistent"))
    assert svg.alt.startswith("C of 2048 by 2048 is 512 tiles of 64 by 128. 396 workgroups compute one each, then 116")


@pytest.mark.parametrize(("stage", "rows", "columns"), [("subgroup", 8, 8), ("cpu_lanes", 32, 8)])
def test_lanes_share_a_tile_without_overlap(stage, rows, columns):
    kernel = stage_of(f"gemm/{stage}")
    ly = kernel.config.get("ly", 1)
    lx = kernel.lanes // ly
    cells = own(kernel)
    assert len(cells) == rows * columns
    everyone = {(r + y, c + 4 * x) for r, c in cells for y in range(ly) for x in range(lx)}
    assert len(everyone) == kernel.grid.tile_m * kernel.grid.tile_n
