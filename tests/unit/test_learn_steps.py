"""Directives and drawings of the chapters on reductions, integers, float64 and calls."""

import re

import pytest

from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.learn import chapters, numbers, pictures, steps
from webmm.learn.directives import filled
from webmm.learn.drawings import reductions
from webmm.learn.kernels import stage_of


def test_a_table_of_steps_has_the_records_times_and_their_ratio():
    table = steps.steps("reduce/tree", "h200-reduce", "512x8192,4096x4096", variant="sum").split("\n")
    assert table[0] == "| size | `vectorized`, µs | `tree`, µs | model | gain | GB/s |"
    size, before, after, model, gain, rate = (cell.strip() for cell in table[2].strip("|").split("|"))
    assert (size, before, after, gain) == ("512×8192", "96.6", "7.6", "× 12.8")
    assert float(model.removeprefix("× ")) > 1
    assert rate == f"{512 * (8192 + 1) * 4 / 7.552e-6 / 1e9:,.0f}"
    assert len(table) == 4


def test_a_table_of_a_cpu_or_of_matrix_units_has_no_column_of_the_model():
    assert "model" not in steps.steps("reduce/alone", "lavapipe-ops", "64x1000", variant="sum")
    units = steps.steps("gemm/matrix_unit", "h200-dawn-matrix-units", "4096", "pipelined", dtype="float16", layout="nn")
    assert "model" not in units
    assert units.endswith("| 3,251 | 460 | × 7.1 | 298,601 |")


def test_a_layout_selects_records():
    nn, tn = (
        numbers.best("gemm/matrix_unit", "h200-dawn-matrix-units", "4096", "float16", "", x) for x in ("nn", "tn")
    )
    assert nn is not None
    assert tn is not None
    assert (nn.layout, tn.layout) == ("nn", "tn")


def test_a_recorded_field_is_found_by_words_with_and_without_spaces():
    assert steps.recorded("h200-transfers", "products", "torch", n=4096) == "63"
    call = {"config.call": "A_@_B_64³_f32", "engine": "wgpu"}
    assert steps.recorded("h200-calls", "records", "median_us", **call) == "13.5"
    assert steps.recorded("h200-reduce", "records", "peak_fraction", kernel="per_row", m=512) == "0.00438"
    positive = {"k": 4096, "data": "positive"}
    assert steps.recorded("h200-precision-errors", "records", "largest", precision="high", **positive) == "29.3"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: steps.recorded("h200-transfers", "products", "torch", n=5), "has no torch"),
        (lambda: steps.recorded("h300", "products", "torch"), "no records h300"),
        (lambda: steps.micros("reduce/tree", "h200-reduce", "7x7", variant="sum"), "no record of reduce/tree at 7x7"),
    ],
)
def test_what_was_not_recorded_is_an_error(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("stage", "tunables", "sectors", "used"),
    [
        ("per_row", {}, 8, "12%"),
        ("vectorized", {}, 8, "50%"),
        ("tree", {}, 4, "100%"),
        ("columns", {}, 4, "100%"),
        ("row_tiles", {"per_row": 2}, 4, "100%"),
    ],
)
def test_a_drawing_of_loads_counts_the_sectors_that_they_need(stage, tunables, sectors, used):
    alt = reductions.reduce_reads(stage_of(f"reduce/{stage}", **tunables)).alt
    assert f"in {sectors} pieces" in alt
    assert used in alt


def test_a_drawing_of_a_tree_shows_its_barriers():
    barriers = [
        str(reductions.reduce_tree(stage_of(f"reduce/{name}", lanes=8))).count(">barrier<")
        for name in ("tree", "subgroup", "alone")
    ]
    assert barriers == [4, 1, 0]


def test_pictures_of_fragments_and_slices_say_what_they_count():
    assert "16 fragments of 16 × 16" in pictures.drawing("fragments", "gemm/matrix_unit")
    assert "the 36 with s + t up to 9" in pictures.drawing("slice_pairs", "gemm/slices")


def test_pictures_of_words_and_of_moving_data_say_what_they_show():
    assert "holds 4 integers of 8 bits" in pictures.drawing("word", "quantized/packed")
    assert "holds 8 integers of 4 bits" in pictures.drawing("word", "weights/vector")
    assert "64: 59%, 1024: 92%" in pictures.drawing("moving")


def test_stages_of_float64_are_known_to_chapters_though_no_ladder_has_them():
    assert "slices" not in STAGES["gemm"]
    assert stage_of("gemm/slices").name == "slices"


def test_no_line_of_a_paragraph_begins_with_a_directive():
    """Markdown takes such a line for HTML and shows the marks of the rest as they are."""
    size = "<!-- tunable gemm/workgroup_1d size -->256<!-- end -->"
    assert filled(f"There\nare now\n{size} *lanes*.") == f"There\nare\nnow {size} *lanes*."
    assert filled(f"* are\n  {size},\n  {size}") == f"* are {size}, {size}"
    assert filled(f"a {size}\n{size} b") == f"a {size} {size} b"
    for path in chapters.folder().rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^ *<!-- (?!here )[^\n]* -->[^\n]*<!-- end -->", text, re.MULTILINE), path
