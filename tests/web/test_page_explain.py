"""The explain panel: every op's stages, their shaders, tunables, memory traffic, translations and results."""

from __future__ import annotations

import pytest

from tests.sampled import sampled
from tests.web.page_steps import show, wait_text
from webmm.page import stages
from webmm.problems.gemm import gemm

STAGES_BY_NAME = {kernel.name: kernel for kernel in stages.offered()}


def test_explain_every_stage(page) -> None:
    show(page, "explain")
    for name in STAGES_BY_NAME:
        page.check(f"#explain input[value={name}]", force=True)
        wait_text(page, "#explain-code", f"// {name}:")
        assert page.inner_text(".about-stage h3") == name
        assert page.locator(".tile-picture svg").get_attribute("aria-label").startswith("A tile of")
        assert page.locator("#explain-code .comment").count() > 3


def test_explain_moves_a_slider_and_reruns(page) -> None:
    show(page, "explain")
    page.check("#explain input[value=tile_2d]", force=True)
    before = page.locator(".tile-picture svg").get_attribute("aria-label")
    page.focus("#tunable-tm")
    page.keyboard.press("End")
    wait_text(page, "#explain-code", "const TM: u32 = 8u;")
    assert page.locator(".tile-picture svg").get_attribute("aria-label") != before
    page.click("#explain-run")
    outcome = wait_text(page, "#explain-outcome", "GFLOP/s", "runtime", "skipped")
    assert outcome.startswith("tile_2d tm=8 at 128³")
    assert "checked" in outcome


def test_explain_disables_unsupported_settings(page) -> None:
    show(page, "explain")
    page.check("#explain input[value=shared]", force=True)
    page.focus("#tunable-tile")
    page.keyboard.press("End")
    assert "needs 1,024 invocations per workgroup" in wait_text(page, "#explain-reason", "Cannot run")
    assert page.is_disabled("#explain-run")
    page.keyboard.press("Home")
    page.wait_for_selector("#explain-run:enabled")
    assert page.inner_text("#explain-reason") == ""


def test_explain_copies_the_shader(open_page) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    show(page, "explain")
    page.check("#explain input[value=naive]", force=True)
    wait_text(page, "#explain-code", "// naive:")
    page.click("#explain-copy")
    wait_text(page, "#explain-copy", "Copied")
    assert "@compute @workgroup_size(1)" in page.evaluate("navigator.clipboard.readText()")
    for sizes, shapes in (("general", "any sizes, strides and offsets."), ("", "only k at most 65535.")):
        page.select_option("#explain-sizes", sizes)
        wait_text(page, "#explain-code", f"// Shapes: {shapes}")
        page.click("#explain-copy")
        wait_text(page, "#explain-copy", "Copied")
        assert f"// Shapes: {shapes}\n" in page.evaluate("navigator.clipboard.readText()")


def test_explain_has_every_op(page) -> None:
    show(page, "explain")
    titles = page.locator("#explain-op option").all_inner_texts()
    assert len(titles) == 11
    for i, title in enumerate(titles):
        page.select_option("#explain-op", str(i))
        page.wait_for_selector("#explain-op:enabled")
        names = page.locator("#explain input[name=stage]").evaluate_all("all => all.map((each) => each.value)")
        for name in names:
            page.check(f"#explain input[value={name}]", force=True)
            wait_text(page, "#explain-code", f"// {name}:")
            figures = page.locator("#explain-traffic dd").all_inner_texts()
            assert len(figures) == 4, title
            assert float(figures[0].split()[0].replace(",", "")) > 0
            assert float(figures[-1].replace(",", "")) > 0


@pytest.mark.parametrize("title", sampled(["Matrix product, 4-bit weights", "Column sums", "Row softmax", "GELU"]))
def test_explain_runs_stages_of_other_ops(page, title: str) -> None:
    show(page, "explain")
    page.select_option("#explain-op", label=title)
    page.wait_for_selector("#explain-op:enabled")
    page.click("#explain-run")
    outcome = wait_text(page, "#explain-outcome", "checked", ":")
    wait_text(page, "#explain-outcome", "checked", "incorrect", "runtime", "compile", "timeout")
    assert "checked" in page.inner_text("#explain-outcome"), outcome


def test_explain_detects_a_wrong_map(page) -> None:
    worst = page.evaluate(
        """async () => {
          const { RowCase } = await import("./exhibits.js");
          const { DTYPES, Elementwise } = webmm.device.core;
          const row = await webmm.app.bundle.row("elementwise", "gelu");
          const right = row.problem([8, 64, 1], "float32");
          const wrong = new Elementwise("relu", 8 * 64, DTYPES.get("float32"));
          const kernel = webmm.app.bundle.kernel("map", {}, "elementwise");
          const reference = row.reference.bind(row);
          row.reference = (_, values) => reference(right, values);
          const verdicts = [];
          for (const problem of [right, wrong]) {
            const on = await RowCase.random(webmm.device, row, problem);
            const { launch, verdict } = await on.open({ kernel });
            webmm.device.submit(launch, 1);
            verdicts.push(await verdict());
          }
          return verdicts;
        }"""
    )
    assert worst[0]["wrong"] is None
    assert "rounding explains" in worst[1]["wrong"]


@pytest.mark.parametrize("name", ["naive", "shared", "vectorized", "pipelined"])
def test_explain_counts_the_same_bytes_as_python(page, name: str) -> None:
    kernel = stages.light(STAGES_BY_NAME[name])
    for n in (64, 500):
        found = page.evaluate(
            """async ([name, n]) => {
              const { trafficOf } = await import("./panels/traffic.js");
              const problem = webmm.app.bundle.problem({ m: n, n, k: n, dtype: "float32" });
              return trafficOf(webmm.device.stage(name), problem);
            }""",
            [name, n],
        )
        problem = gemm(n, n, n)
        counted = kernel.traffic(problem)
        assert found["flops"] == problem.flops
        assert found["least"] == problem.bytes
        assert found["storage"] == counted.workgroups * counted.steps * counted.loaded + counted.written
        each = counted.workgroup_loads + counted.workgroup_stores
        assert found["workgroup"] == 16 * counted.workgroups * counted.invocations * counted.steps * each


def test_explain_places_a_stage_on_the_roofline(page) -> None:
    show(page, "explain")
    page.click("#explain-roofline")
    dot = page.locator("#explain-traffic .dot")
    dot.wait_for()
    assert page.is_hidden("#explain-roofline")
    before = dot.get_attribute("style")
    words = page.inner_text("#explain-traffic .hint")
    assert "the roofline allows" in words
    page.select_option("#explain-size", label="64³")
    assert dot.get_attribute("style") != before
    assert page.inner_text("#explain-traffic .hint") != words
    page.check("#explain input[value=tile_2d]", force=True)
    page.click("#explain-run")
    wait_text(page, "#explain-outcome", "checked")
    assert "reached" in wait_text(page, "#explain-traffic .hint", "reached")


def test_explain_shows_translations_by_naga(page) -> None:
    show(page, "explain")
    page.check("#explain input[value=naive]", force=True)
    there = page.evaluate("webmm.app.bundle.index.translated")
    for target, words in (("MSL", "#include <metal_stdlib>"), ("HLSL", "[numthreads(")):
        page.select_option("#explain-target", target)
        if there:
            wait_text(page, "#explain-translated", words)
            assert "512x512x512 float32" in page.inner_text("#explain-naga")
        else:
            wait_text(page, "#explain-naga", "built without naga")
    page.check("#explain input[value=matrix_unit]", force=True)
    wait_text(page, "#explain-naga", "naga cannot translate this stage to HLSL", "built without naga")
    page.select_option("#explain-target", "")
    assert page.is_hidden("#explain-translated")


@pytest.mark.parametrize(
    ("find", "replace", "status", "words"),
    [
        ("fma(", "-fma(", "incorrect", "elements are wrong, first C[0, 0]: expected "),
        ("store_c(c_base", "store_c(c_base + 1u", "incorrect", "rounding explains at most"),
        ("fn main(", "fn main((", "compile", "refused by the engine: line "),
    ],
)
def test_bad_shader_is_detected(open_page, find: str, replace: str, status: str, words: str) -> None:
    page = open_page(service_workers="block")
    page.route(
        "**/bundle/templates/**",
        lambda route: route.fulfill(body=route.fetch().text().replace(find, replace), content_type="text/javascript"),
    )
    show(page, "explain")
    page.check("#explain input[value=workgroup_2d]", force=True)
    page.select_option("#explain-size", label="64³")
    page.click("#explain-run")
    assert words in wait_text(page, "#explain-outcome", f"{status}:", "GFLOP/s")
