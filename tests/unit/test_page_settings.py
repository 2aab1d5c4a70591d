"""What the page's panels work out of kernels and records, and views of arrays as webmm.js makes them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from webmm import text
from webmm.arguments import views
from webmm.arguments.arrays import Layout
from webmm.cases import OPS
from webmm.cases.base import Exhibit
from webmm.dtypes import F16
from webmm.errors import ProblemError
from webmm.kernels import STAGES
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.subgroup import Subgroup
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.quantized.packed import Packed
from webmm.measure.records import SCHEMA, Record
from webmm.page import documents, rows, runs, settings, stages, subjects, tables, traffic
from webmm.page.browser import Browser, adapter_of, browser_of, first_able
from webmm.page.stages import light
from webmm.problems.gemm import gemm

ABOUT = {"dtype": "float32", "engine": "e", "adapter": "a", "backend": "", "driver": "", "version": ""}


def record(kernel: str, m: int, gflops: float | None, **more: str) -> Record:
    return replace(Record("gemm", kernel, m, m, m, 1, **ABOUT, gflops=gflops), **more)  # type: ignore[arg-type]


def test_the_nearest_kernel_has_the_value_and_else_the_fewest_changes() -> None:
    kernel = Pipelined(unroll=16)
    assert settings.choices(kernel, "bk") == [8, 16, 32]
    assert settings.choices(replace(kernel, bk=64), "bk") == [8, 16, 32, 64]
    assert settings.choices(kernel, "order") == ["serpentine", "rows"]
    assert settings.nearest(kernel, "tm", 4, None) == replace(kernel, tm=4)
    assert settings.nearest(kernel, "bk", 8, None) == replace(kernel, bk=8, unroll=8)  # 16 does not divide 8
    far, near = replace(kernel, unroll=8, bm=32), replace(kernel, unroll=1)
    assert settings.nearest(kernel, "bk", 8, [far, near]) == replace(near, bk=8)
    assert settings.nearest(kernel, "bk", 8, [kernel]) == kernel
    assert settings.neighbours(kernel)
    assert all(each.invalid() is None for each in settings.neighbours(kernel))


def test_changes_of_settings_are_told_one_by_one() -> None:
    kernel = Pipelined(unroll=16)
    changed = replace(kernel, bk=8, unroll=8)
    told = settings.changes(kernel, changed)
    assert sorted(told, key=str) == [
        ("bk 16 → 8", None),  # 16 does not divide 8
        ("unroll 16 → 8", replace(kernel, unroll=8)),
    ]


def test_a_search_tries_the_defaults_and_then_what_is_near_the_best() -> None:
    best = Tile2D()
    left = [Naive(), replace(best, tm=1, wx=1), replace(best, tm=1)]
    assert settings.upcoming(left, None, 5) == 0
    assert settings.upcoming(left, best, 2) == 0
    assert settings.upcoming(left, best, 4) == 2
    assert settings.upcoming(left, best, 6) == 6 * 7919 % 3


def test_a_search_tries_every_configuration_once_and_remembers_the_best() -> None:
    limits: dict[str, int] = defaultdict(lambda: 2**31)
    device = browser_of(adapter_of(defaultdict(str), "Chrome/122"), (32, 32), limits, frozenset(), [])
    records: list[Record] = []
    tried = []
    every = settings.searched(gemm(256, 256, 256), device, records)
    for i, (kernel, longest, turn) in enumerate(itertools.islice(every, 40), 1):
        assert turn.startswith(f"{i} of ")
        assert longest == (2.5 * 4e-6 + 0.001 if i > 4 else math.inf)
        tried.append(kernel)
        records.append(replace(record(kernel.name, 256, None), median_us=4.0 if i == 4 else None))
    names = [stage.name for stage in stages.offered()]
    assert [kernel.name for kernel in tried[1:]][: len(names)] == names[::-1]
    assert tried[0] == first_able(gemm(256, 256, 256), device)
    assert len(set(tried)) == 40


def test_a_problem_gets_an_element_type_that_the_kernel_supports() -> None:
    problem = gemm(64, 64, 64)
    assert settings.suited(Naive(), problem) == problem
    assert settings.suited(MatrixUnit(), problem).dtype is F16


def test_an_excerpt_has_the_corners_of_a_matrix() -> None:
    table = tables.excerpt(lambda i, j: [0.125, 1e-5, float("nan"), 123456.7][2 * i + j], 2, 2, "C")
    assert [(row.name, row.cells) for row in table.rows] == [("0", ["0.125", "1e-05"]), ("1", ["nan", "1.2346e+05"])]
    assert table.heads == ["", "0", "1"]
    table = tables.excerpt(lambda i, j: 10 * i + j, 10, 10, "C")
    assert [row.name for row in table.rows] == ["0", "1", "2", "3", "4", "5", "…", "9"]
    assert table.rows[-1].cells == ["90", "91", "92", "93", "94", "95", "…", "99"]
    assert set(table.rows[6].cells) == {"…"}


def test_texts_of_records_are_no_html_of_a_table() -> None:
    elements: list[tuple[str, list[tuple[str, str | None]]]] = []
    texts: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: elements.append((tag, attributes))  # type: ignore[method-assign]
    parser.handle_data = texts.append  # type: ignore[method-assign]
    bad = "</td><img src=x onerror='alert(1)'>\" & \"&lt;"
    ok, failed = tables.Row(bad, bad, (bad,), best=True), tables.Row(bad, bad, (), status=bad, reason=bad)
    parser.feed(tables.Table(("", bad), (ok, failed), bad).html("matrix"))
    parser.close()
    assert "".join(texts).split(bad) == [*[""] * 8, " ", ""]
    row = ("tr", []), ("th", [("scope", "row")]), ("span", [("class", "config")])
    assert elements == [
        *(("table", [("class", "matrix")]), ("caption", []), ("thead", []), ("tr", []), ("td", [])),
        *(
            ("th", [("scope", "col")]),
            ("tbody", []),
            ("tr", [("class", "best")]),
            *row[1:],
            ("td", [("class", "number")]),
        ),
        *(*row, ("td", [("colspan", "1"), ("class", "reason")]), ("b", [])),
    ]


def test_runs_on_the_same_problems_are_compared_and_else_those_of_the_same_kernels() -> None:
    new, sizes, same, others = (
        runs.Run(name, [record(kernel, m, gflops) for kernel, m, gflops in rows])
        for name, rows in (
            ("new", [("naive", 64, 1.0), ("naive", 64, 3.0), ("shared", 64, None)]),
            ("sizes", [("naive", 128, 2.0)]),
            ("same", [("naive", 64, 6.0)]),
            ("others", [("gemv", 64, 1.0)]),
        )
    )
    assert runs.likely([new, others, sizes, same]) == "same"
    assert runs.likely([new, others, sizes]) == "sizes"
    assert [runs.likely(some) for some in ([new, others], [new], [])] == ["others", "new", ""]
    table = runs.compared(new, same)
    assert table.heads == ("Kernel", "a, e", "a, e", "second ÷ first")
    assert [(row.name, row.about, row.cells) for row in table.rows] == [
        ("naive", "64³ float32, GFLOP/s", ("3", "6", "2 ×")),
        ("shared", "64³ float32, GFLOP/s", ("0", "–", "")),
    ]
    assert [row.cells for row in runs.compared(new, new).rows] == [("3",), ("0",)]
    assert runs.compared(new, sizes).caption.endswith("; the sizes differ")
    assert [runs.hint(some)[:26] for some in ([], [new], [new, same])] == [
        "To see runs here, run the ",
        "Only one run so far: new. ",
        "",
    ]


def test_gains_outcomes_and_changes_in_words() -> None:
    records = [record("naive", 8, 1.0), record("shared", 64, 5.0), record("naive", 64, 2.0), record("naive", 64, 4.0)]
    assert runs.gain(records, "reduce", "shared", "naive") == []
    assert runs.speed_on(records, Naive(), gemm(64, 64, 64)) == 2.0
    assert runs.speed_on(records, Naive(), gemm(64, 64, 65)) is None
    failed = record("gemv", 8, None, status="timeout")
    assert [r.kernel for r in runs.outstanding([failed, *records])] == ["shared", "naive", "naive", "naive", "gemv"]
    assert runs.outcomes([failed, *records]).startswith("Outcomes for 8³: 1 timeout, 4 ok.")
    assert runs.change("// C\n// Changed from x: y\n// and z.\n// Dispatch 1\n") == "Changed from x: y and z."
    assert "reached 9 GFLOP/s" in traffic.place("naive", 0.5, 9.0, 8.0)
    assert runs.gain(records, "gemm", "shared", "naive") == [
        "1.25 × naive on this device",
        ": 5 against 4 GFLOP/s at 64³ float32.",
    ]
    assert runs.best_of(records) == (
        "Best: shared at 5 GFLOP/s, 5 × the default choice. This page now uses it for products of similar shape."
    )
    assert runs.best_of([failed]) == ""


def test_changes_of_a_kernel_alone_and_together() -> None:
    base, first, both = (record("tile_2d", 8, gflops) for gflops in (2.0, 3.0, 4.0))
    table = runs.ablation([("tm 4 → 2", Tile2D(tm=2)), ("wx 16 → 8", None)], [base, first, both], "tile_2d")
    assert [(row.name, row.cells) for row in table.rows] == [
        ("tile_2d", ("2 GFLOP/s", "1 ×")),
        ("tm 4 → 2", ("3 GFLOP/s", "1.5 ×")),
        ("wx 16 → 8", ("", "impossible alone")),
        ("all together", ("4 GFLOP/s", "2 ×")),
        ("expected if independent", ("", "–")),
    ]


def test_bars_are_compared_with_the_first_stage_and_the_one_before() -> None:
    slow, fast, failed, best = (
        record(kernel, 64, gflops, status=status)
        for kernel, gflops, status in (
            *(("naive", 2.0, "ok"), ("tile_1d", 4.0, "ok")),
            *(("shared", None, "skipped"), ("tile_2d", 8.0, "ok")),
        )
    )
    follows = ("", "naive", "naive", "tile_1d", "tile_2d", "shared")
    steps = [tables.Step("label", "summary", each, "", "") for each in follows]
    shown = tables.bars([slow, fast, failed, best], steps[:4], "waiting")
    assert [(bar.status, bar.share, bar.value, bar.note) for bar in shown] == [
        ("ok", 0.25, "2", "checked"),
        ("ok", 0.5, "4", "2 × naive"),
        ("skipped", 0, "skipped", ""),
        ("best", 1.0, "8", "4 × naive · 2 × tile_1d"),
    ]
    for state, expected in (
        ("waiting", [("waiting", ""), ("waiting", "")]),
        ("running", [("running", "running …"), ("waiting", "")]),
        ("finished", [("waiting", "not run"), ("waiting", "not run")]),
    ):
        shown = tables.bars([slow, fast, failed, best], steps, state)
        assert [(bar.status, bar.value) for bar in shown[4:]] == expected
        assert {bar.note for bar in shown[4:]} == {"summary"}
    table = tables.results([slow, failed, best])
    assert [row.name for row in table.rows] == ["tile_2d", "naive", "shared"]
    assert [row.status for row in table.rows] == ["", "", "skipped"]
    assert tables.found([slow, best], steps, True) == "Stopped. Fastest: label at 8 GFLOP/s on 64³."
    assert tables.found([failed], steps, False) == "No stage could run at this size."
    assert tables.step("gemm", "tile_1d", "tile_1d", "", "").branch == "└ "
    assert tables.step("gemm", "integers", "integers", "words", "float64").href == "#explain/float64"


def test_a_kernels_traffic_in_words() -> None:
    facts = dict(traffic.facts(Tile2D(), gemm(64, 64, 64)))
    assert facts["Operations"] == "0.524 MFLOP"
    assert facts["Workgroup memory"] == "none"
    assert traffic.roofline_of([record("naive", 64, 5.0)], 100.0, 10.0).alt.endswith("naive, reached 5 GFLOP/s")


def test_numbers_in_words() -> None:
    assert [text.nbytes(x) for x in (0, 1000, 16384, 2**31, 2**42)] == [
        *("0 bytes", "1,000 bytes", "16 KiB", "2 GiB", "4,096 GiB")
    ]
    assert [text.percent(x) for x in (None, 0.5, 0.0123)] == ["–", "50 %", "1.2 %"]
    assert [text.exponent(x) for x in (None, 0.0, 1.25e-7, float("inf"))] == ["–", "0", "1.2e-07", "∞"]
    assert [text.figures(x) for x in (None, 0.0, 1e-5, 1.234, 12345.6)] == ["–", "0", "1.0e-05", "1.23", "12,346"]


@dataclass(frozen=True)
class Strided:
    """An array on a device, as far as views need it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: str = "int64"
    mT: object = None  # noqa: N815 (NumPy's name)

    @property
    def ndim(self) -> int:
        return len(self.shape)


@pytest.mark.parametrize("shape", [(5, 6, 7), (1, 4)])
def test_views_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    host = np.arange(np.prod(shape)).reshape(shape)
    x = Strided(shape, tuple(stride // 8 for stride in host.strides))

    def check(layout: Layout, expected: np.ndarray) -> None:
        start, strides = host.reshape(-1)[min(layout.offset, host.size - 1) :], [8 * each for each in layout.strides]
        assert layout.shape == expected.shape
        assert (np.lib.stride_tricks.as_strided(start, layout.shape, strides) == expected).all()

    ends = (None, 0, 2, -1, -9, 9)
    for start, stop, step in itertools.product(ends, ends, (None, 1, 2, -1, -3)):
        check(views.sliced(x, [0, (start, stop, step)]), host[0, slice(start, stop, step)])
    check(views.transposed(x, []), host.T)
    check(views.transposed(x, [*range(len(shape) - 2), -1, -2]), host.swapaxes(-1, -2))
    if shape[0] == 1:
        check(views.broadcast(x, (2, 3, 4)), np.broadcast_to(host, (2, 3, 4)))
    for wrong in (
        lambda: views.sliced(x, [9]),
        lambda: views.broadcast(x, (8, 8, 8)),
        lambda: views.transposed(x, [0]),
    ):
        with pytest.raises(ProblemError):
            wrong()


def test_a_document_is_read_as_a_whole_or_refused() -> None:
    right = asdict(record("naive", 8, 1.0, status="incorrect"))
    head = {"schema": SCHEMA}
    assert documents.records_of({**head, "records": [right]}) == [Record.from_json(right)]
    for document, words in [
        ([], "^this is not a webmm.records/1 document$"),
        ({"schema": "other/1"}, "document; its schema is other/1$"),
        (head, "contains no list of records"),
        ({**head, "records": [right] * 10_001}, "contains 10001 records; this page shows at most 10000"),
        ({**head, "records": [right, 1]}, "^record 2 is not an object"),
        ({**head, "records": [{**right, "kernel": "tile_2d", "config": {"tm": 1024}}]}, "^record 1 is of tile_2d"),
    ]:
        with pytest.raises(ProblemError, match=words):
            documents.records_of(document)


def on_browser(**said: str) -> Browser:
    """Return a browser's device, whose subgroups have 32 lanes; of software unless `description` names a GPU."""
    adapter = adapter_of(defaultdict(str, {"vendor": "x", "description": "SwiftShader", **said}), "Firefox/141.0")
    return browser_of(adapter, (32, 32), defaultdict(lambda: 2**27), frozenset({"subgroups"}), [])


def test_products_are_as_large_as_is_quick() -> None:
    shown = subjects.products(on_browser())
    assert shown.first in shown.stages
    assert [step.label for step in shown.steps] == shown.stages
    assert (shown.sizes[0], shown.sizes[-1]) == (("64", "64³"), ("333×257×129", "333×257×129"))
    assert [shown.sizes[place][0] for place in shown.usual(0)] == ["256", "128"]
    assert [shown.sizes[shown.usual(gflops)[0]][0] for gflops in (0.1, 2.0, 1e3, 1e9)] == ["128", "256", "2048", "4096"]
    assert [subjects.products(on_browser(description="Arc")).usual(0)[i] for i in (0, 1)] == [4, 4]
    problem = shown.problem("333×257×129", "float32")
    assert problem.sizes[:3] == (333, 257, 129)
    assert [kernel.name for kernel in shown.kernels(problem)] == shown.stages
    assert shown.kernel("tile_2d", problem) == light(Tile2D)


def test_a_prepared_ladder_has_the_first_kernel_of_each_label_that_can_run() -> None:
    problems = [gemm(8, 8, 8), gemm(9, 8, 8), gemm(8, 8, 8, dtype="float16")]
    wide, narrow = Subgroup(lanes=64), Subgroup(lanes=32)
    kernels = [[Naive(), wide, narrow]] * len(problems)
    shown = subjects.prepared(problems, kernels, ("tile_2d", "naive"), on_browser())
    assert (shown.op, shown.dtypes, shown.usual(0)) == ("gemm", ["float32"], (1, 0))  # float16 is missing here
    assert shown.sizes == [("8³", "8³"), ("9×8×8", "9×8×8")]
    assert shown.problem("9×8×8", "float32") is problems[1]
    assert shown.stages == ["naive", "subgroup", "tile_2d"]
    assert shown.kernels(problems[0]) == [Naive(), narrow]
    assert shown.kernel("tile_2d", problems[0]) == Tile2D()
    assert subjects.label_of(Packed(dot="emulated")) == "packed emulated"


def test_an_exhibit_has_the_sizes_of_its_kind_of_adapter() -> None:
    exhibit = Exhibit("Softmax", {"gpu": ((4, 4, 1),), "cpu": ((2, 64, 1), (3, 64, 1))})
    row = OPS["normalise"]
    shown = subjects.exhibited(rows.Shown("normalise", exhibit, True), row, on_browser())
    assert shown.stages == list(STAGES["normalise"])
    assert [words for _, words in shown.sizes] == ["2×64", "3×64"]
    assert shown.problem("1", "float32").sizes[:2] == (3, 64)
    assert (shown.dtypes, shown.usual(5.0)) == (["float32"], (1, 0))
