"""A page built with plugins: the ladder, Explain and form of an op with checked results, a stage, a wrong shader."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.web.conftest import TIMEOUT, Watch
from tests.web.page_steps import npy, saved, show, upload, wait_text
from webmm import plugins
from webmm.page import bundle, serve

TITLE = "Cumulative sums of each row"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def plugin_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("plugin")
    examples = shutil.copytree(EXAMPLES, folder / "examples")
    try:
        for name in ("cumsum.py", "columns.py"):
            plugins.load(examples / name)
        bundle.build(folder / "page")
    finally:
        while plugins.registered():
            plugins.unregister(plugins.registered()[0])  # ops first, with their stages
    assert not any(str(examples).encode() in file.read_bytes() for file in (folder / "page").rglob("*.js*"))
    with serve.server(folder / "page", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def plugin_page(browser, plugin_url: str) -> Iterator[object]:
    """The page in a new context; after the test, assert no errors and no requests to other hosts."""
    context = browser.new_context(accept_downloads=True, service_workers="block")
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    watch = Watch(plugin_url, page)
    page.goto(plugin_url)
    page.wait_for_selector("body[data-ready]")
    yield page
    context.close()
    assert watch.errors == []
    assert watch.foreign == []


def test_a_plugins_op_has_a_ladder(plugin_page) -> None:
    page = plugin_page
    page.select_option("#ladder-op", label=TITLE)
    page.wait_for_selector("#ladder-op:enabled")
    assert page.locator("#ladder-size option").all_inner_texts() == ["61×1001", "64×1024", "512×8192"]
    page.select_option("#ladder-size", label="61×1001")
    page.click("#ladder-run")
    message = wait_text(page, "#ladder-message", "Fastest", "No stage", "failed")
    assert message.startswith("Fastest: one_by_one at ")
    assert message.endswith(" GB/s on 61×1001.")


def test_a_plugins_op_is_explained(plugin_page) -> None:
    page = plugin_page
    show(page, "explain")
    page.select_option("#explain-op", label=TITLE)
    page.wait_for_selector("#explain-op:enabled")
    wait_text(page, "#explain-code", "// one_by_one:")
    page.focus("#tunable-size")
    page.keyboard.press("End")
    wait_text(page, "#explain-code", "const SIZE: u32 = 128u;")
    page.click("#explain-run")
    outcome = wait_text(page, "#explain-outcome", "checked", "incorrect:", "runtime:", "compile:", "timeout:")
    assert "one_by_one size=128 at 61×1001: " in outcome
    assert outcome.endswith("checked.")


def test_a_plugins_stage_is_among_those_of_its_op(plugin_page) -> None:
    page = plugin_page
    assert page.locator(".bars [data-kernel=columns]").count() == 1  # the ladder of matrix products
    show(page, "explain")
    page.check("#explain input[value=columns]", force=True)
    wait_text(page, "#explain-code", "// columns:")
    page.select_option("#explain-size", label="64³")
    page.click("#explain-run")
    outcome = wait_text(page, "#explain-outcome", "checked", "incorrect:", "runtime:", "compile:", "timeout:")
    assert outcome.startswith("columns at 64³: ")


def test_a_plugins_op_has_a_form(plugin_page) -> None:
    page = plugin_page
    x = np.random.default_rng(0).random((33, 70), np.float32) - 0.5
    show(page, "multiply")
    page.select_option("#multiply-op", "cumsum")
    upload(page, "#x-file", "x.npy", npy(x))
    wait_text(page, "#x-about", "33×70 float32")
    page.click("#form-run")
    message = wait_text(page, "#form-message", "y is", "not", "error")
    assert message.startswith("y is 33×70 float32, computed by one_by_one in ")
    assert page.inner_text("#multiply-check").startswith("CPU check: every result compared; largest error is ")
    y = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
    np.testing.assert_allclose(y, x.cumsum(axis=1), atol=1e-5)


def test_a_wrong_shader_of_a_plugin_is_detected(plugin_page) -> None:
    page = plugin_page

    def broken(route) -> None:
        text = route.fetch().text()
        assert "sum += x_reg" in text
        route.fulfill(body=text.replace("sum += x_reg", "sum = x_reg"), content_type="text/javascript")

    page.route("**/templates/cumsum/one_by_one.js", broken)
    show(page, "multiply")
    page.select_option("#multiply-op", "cumsum")
    page.click("#form-run")
    assert "y is wrong (y[1]: expected 3, got 2)" in wait_text(page, "#form-message", "y is")
    show(page, "explain")
    page.select_option("#explain-op", label=TITLE)
    page.wait_for_selector("#explain-op:enabled")
    page.click("#explain-run")
    assert "incorrect: y[1]: expected " in wait_text(page, "#explain-outcome", "incorrect:", "checked")


def test_results_beyond_the_range_are_zero_or_infinite(page) -> None:
    show(page, "multiply")
    page.wait_for_selector("#multiply-op option[value='reduce:prod']", state="attached")
    page.select_option("#multiply-op", "reduce:prod")
    page.fill("#x-text", "1e-20, 1e-19\n1e-20, 2e-17\n1e20, -1e19")
    page.click("#form-run")
    assert "y is 3×1 float32" in wait_text(page, "#form-message", "y is")
    assert "wrong" not in page.inner_text("#form-message")


@pytest.mark.parametrize("op", ["reduce:argmax", "normalise:softmax", "elementwise:silu"])
def test_forms_of_other_ops(page, op: str) -> None:
    show(page, "multiply")
    page.wait_for_selector(f"#multiply-op option[value='{op}']", state="attached")
    page.select_option("#multiply-op", op)
    page.fill("#x-text", "1, 3, 2\n-1, 0, nan")
    page.click("#form-run")
    assert f"y is 2×{1 if op == 'reduce:argmax' else 3} " in wait_text(page, "#form-message", "y is", "not", "error")
    assert "every result except in rows with NaN or infinities (1) compared" in page.inner_text("#multiply-check")
