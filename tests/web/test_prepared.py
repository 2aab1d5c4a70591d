"""The page's ladders of the other ops: every stage is right, and a wrong shader is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.web.page_steps import saved, wait_text
from webmm.cases import OPS
from webmm.measure import records
from webmm.page import ladders

PREPARED_JS = Path(__file__).with_name("prepared.js")
MOST = 3_000_000  # operations: excludes the largest problem of each kind
LEGITIMATE = re.compile(r"needs the feature (shader-f16|chromium-experimental-subgroup-matrix)|needs subgroups of")
THIN, DOUBLES, PRODUCTS, WEIGHTS, SUMS, MAXIMA, PLACES = (str(number) for number in range(1, 8))  # the ladder's choices


def judge(outcomes: list[dict]) -> None:
    assert [o for o in outcomes if o["reason"] and not LEGITIMATE.search(o["reason"])] == []
    assert [o for o in outcomes if not o["reason"] and o["wrong"] is not None] == []
    for ladder in ladders.every():
        right = {o["label"] for o in outcomes if o["title"] == ladder.title and not o["reason"]}
        assert right >= {kernel.name for kernel in ladder.kernels["cpu"] if not kernel.subgroup}


def test_prepared_problems_in_chromium(page) -> None:
    function = PREPARED_JS.read_text().replace("export async", "async")
    outcomes = page.evaluate(
        f"async (most) => {{ {function}\n"
        "return checkPrepared(await import('./prepared.js'), webmm.device, most, 1); }",
        MOST,
    )
    judge(outcomes)


def test_prepared_problems_in_node(page_folder: Path, node_modules: Path, node) -> None:
    dawn = node_modules / "webgpu" / "index.js"
    done = node(str(PREPARED_JS.with_name("node_prepared.mjs")), str(page_folder), str(dawn), str(MOST), "0")
    assert done.returncode == 0, done.stderr[-2000:]
    judge(json.loads(done.stdout)["outcomes"])


def run_ladder(page, op: str, size: str) -> dict[str, str]:
    """Run the ladder of an op; return the status of each stage."""
    page.select_option("#ladder-op", op)
    page.wait_for_selector("#ladder-op:enabled")
    page.select_option("#ladder-size", size)
    page.click("#ladder-run")
    wait_text(page, "#ladder-message", "Fastest:")
    page.wait_for_selector("#ladder-save:enabled")
    rows = page.locator(".bars li").all()
    return {row.get_attribute("data-kernel"): row.get_attribute("data-status") for row in rows}


def test_ladder_of_reductions(page) -> None:
    statuses = run_ladder(page, SUMS, "61×1001")
    ladder = ladders.every()[int(SUMS) - 1]
    assert list(statuses) == [kernel.name for kernel in ladder.kernels["cpu"]]
    assert sorted(set(statuses.values()) - {"unsupported"}) == ["best", "ok"]
    assert re.search(r"Fastest: \w+ at [\d.]+ GB/s on 61×1001", page.inner_text("#ladder-message"))
    assert "GB/s" in page.inner_text("#ladder .axis-title")
    assert "GB/s" in page.inner_text("#ladder thead")
    assert page.locator("#ladder .roofline").count() == 0
    document = records.from_json(saved(page, "#ladder-save").decode())
    for record in document:
        assert (record.op, record.m, record.n, record.dtype) == ("reduce", 61, 1001, "float32")
        assert record.max_error == 0
        assert record.peak_fraction > 0
    fastest = max(document, key=lambda record: record.gflops or 0)
    shown = float(page.inner_text(".bars [data-status=best] .value"))
    assert shown == pytest.approx(OPS["reduce"].rate(fastest), rel=0.01)
    page.select_option("#ladder-op", "0")
    assert "GFLOP/s" in page.inner_text("#ladder .axis-title")
    assert page.locator(".bars [data-kernel=naive]").count() == 1


def test_units_are_the_same_as_pythons(page) -> None:
    """Units and speeds are those of the ops' rows; records of unknown ops have operations per second."""
    fields = {"m": 3, "n": 7, "k": 1, "dtype": "float16", "gflops": 5.0}
    told = page.evaluate(
        """(records) => {
          const { unit_of, speed_of, size_of } = webmm.device.core;
          return records.map((record) => [unit_of(record), speed_of(record), size_of(record)]);
        }""",
        [{"op": name, **fields} for name in [*OPS, "constructor"]],
    )
    about = {"batch": 1, "engine": "", "adapter": "", "backend": "", "driver": "", "version": ""}
    for op, (unit, speed, size) in zip(OPS.values(), told, strict=False):
        record = records.Record(op.name, "", **fields, **about, variant=op.variant)
        assert (unit, speed) == (op.unit, pytest.approx(op.rate(record)))
        assert size == {1: "3×7", 2: "3×7", 3: "3×7×1"}[op.axes]
    assert told[-1] == ["GFLOP/s", 5.0, "3×7×1"]


NO_PACKED_DOT = "Object.defineProperty(GPU.prototype, 'wgslLanguageFeatures', { get: () => new Set() });"


def test_a_browser_without_packed_dot_products_emulates_them(open_page) -> None:
    page = open_page(script=NO_PACKED_DOT)
    statuses = run_ladder(page, PRODUCTS, "61³")
    assert statuses["packed"] == "unsupported"
    assert statuses["packed emulated"] in ("ok", "best")
    note = page.inner_text(".bars [data-kernel=packed] .note")
    assert "needs the feature packed_4x8_integer_dot_product" in note


def test_a_wrong_shader_is_incorrect(open_page, page_folder: Path) -> None:
    right = (page_folder / "bundle" / "templates" / "reduce" / "per_row.js").read_text()
    wrong = right.replace("k < params.length", "k < params.length - 500u")
    assert wrong != right
    page = open_page(service_workers="block")
    page.route("**/reduce/per_row.js", lambda route: route.fulfill(body=wrong, content_type="text/javascript"))
    statuses = run_ladder(page, MAXIMA, "61×1001")
    assert statuses["per_row"] == "incorrect"
    assert set(statuses.values()) >= {"best", "ok"}
    assert "differs from Python's" in page.inner_text(".bars [data-kernel=per_row] .note")
