"""The tables of `webmm bench`: the order of the ladder, its branches, and what each stage is compared with."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from webmm.cases import op_of
from webmm.kernels import STAGES, configure, depths
from webmm.measure.bench import CPU_STAGE
from webmm.measure.records import Record
from webmm.report import choice, show_reasons
from webmm.report.ladder import ladder_table


def record(kernel: str, us: float, **fields: Any) -> Record:
    about = {"dtype": "float32", "engine": "", "adapter": "", "backend": "", "driver": "", "version": ""}
    figures = {"median_us": us, "best_us": us, "gflops": 1 / us, "max_error": 0.0, "error_bound": 0.0}
    return Record("gemm", kernel, 64, 64, 64, 1, **about, **{**figures, **fields})  # type: ignore[arg-type]


def table(*records: Record) -> list[list[str]]:
    shown = ladder_table(list(records), op_of("gemm"))
    return [list(column.cells) for column in shown.columns]  # type: ignore[arg-type]


def test_the_table_is_in_the_order_of_the_ladder_and_compares_with_the_stage_that_each_follows() -> None:
    columns = table(record(CPU_STAGE, 3), record("workgroup_2d", 5), record("naive", 40), record("workgroup_1d", 10))
    assert columns[0] == ["naive", "workgroup_1d", "workgroup_2d", "cpu (NumPy)"]
    assert columns[4] == ["1", "4", "8", "13.3"]
    assert columns[5] == ["–", "4", "2", "–"]


def test_a_stage_of_several_settings_is_compared_with_the_fastest() -> None:
    slow, fast = record("tile_1d", 8, config={"tm": 4}), record("tile_1d", 6, config={"tm": 8})
    columns = table(record("naive", 12), slow, fast, record("tile_2d", 3))
    assert [label.strip("└ ").split()[0] for label in columns[0]] == ["naive", "tile_1d", "tile_1d", "tile_2d"]
    assert columns[5] == ["–", "–", "–", "2"]


@pytest.mark.parametrize(
    ("gflops", "shown"),
    [(0.01947, "0.0195"), (0.25, "0.250"), (7.618, "7.62"), (99.97, "100.0"), (631.44, "631.4"), (48_636.8, "48,637")],
)
def test_rates_of_slow_devices_have_three_figures(gflops: float, shown: str) -> None:
    assert table(record("naive", 1, gflops=gflops))[3] == [shown]


def test_a_search_compares_the_winner_with_the_default_of_the_same_round() -> None:
    default = configure("naive", {})
    rounds = [record("naive", us, config=default.config) for us in (200, 500)]
    assert "1.00 × the default (1 candidates" in choice._verdict(rounds, default)


def test_branches_are_indented() -> None:
    stages, depth = STAGES["gemm"], depths()
    assert depth["naive"] == depth["shared"] == depth["matrix_unit"] == 0
    assert depth["tile_1d"] == depth["tile_2d"] == depth["split_k"] == 1
    columns = table(*(record(name, 1 + i) for i, name in enumerate(stages)))
    shown = dict(zip(stages, columns[0], strict=True))
    assert shown["shared"] == "shared"
    assert (shown["tile_1d"], shown["tile_2d"]) == ("└ tile_1d", "  tile_2d")
    branches: list[str] = []  # the last stage above, by depth: what an indented table says that a stage follows
    for name, cls in stages.items():
        begins = "└" in shown[name]
        above = branches[: depth[name] + (not begins)]
        assert cls.follows == (above[-1] if above else ""), name
        branches = [*branches[: depth[name]], name]


def test_the_table_fits_its_width() -> None:
    shown = ladder_table([record("persistent", 123.456), record(CPU_STAGE, 1)], op_of("gemm"))
    assert Console().measure(shown).maximum <= 124


def test_a_reason_of_several_stages_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    late = {"median_us": None, "status": "skipped", "reason": "the budget is used up"}
    wrong = {"median_us": None, "status": "compile", "reason": "refused\nline 3: what"}
    show_reasons(
        [record("naive", 1, **late), record("tile_1d", 1, **wrong), record("shared", 1, **late), record("cpu", 1)]
    )
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "  naive, shared: skipped: the budget is used up",
        "  tile_1d: compile: refused",
        "  line 3: what",
    ]
