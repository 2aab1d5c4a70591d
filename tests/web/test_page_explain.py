"""The explain panel: every op's stages, their shaders, tunables, memory traffic, translations and results."""

from __future__ import annotations

import json
import zlib

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
        assert page.locator(".workbench .tile-picture svg").get_attribute("aria-label").startswith("A tile of")
        assert page.locator("#explain-code .comment").count() > 3


def test_explain_moves_a_slider_and_reruns(page) -> None:
    show(page, "explain")
    page.check("#explain input[value=tile_2d]", force=True)
    before = page.locator(".workbench .tile-picture svg").get_attribute("aria-label")
    page.focus("#tunable-tm")
    page.keyboard.press("End")
    wait_text(page, "#explain-code", "const TM: u32 = 8u;")
    assert page.locator(".workbench .tile-picture svg").get_attribute("aria-label") != before
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
    assert len(titles) == 12
    assert "Row sums" in titles, "the stages that only the last ladders have"
    for i, title in enumerate(titles):
        page.select_option("#explain-op", str(i))
        page.wait_for_selector("#explain-op:enabled")
        assert page.input_value("#explain-op") == str(i), page.inner_text("#explain-outcome")
        names = page.locator("#explain input[name=stage]").evaluate_all("all => all.map((each) => each.value)")
        for name in names if i else names[:1]:  # those of the matrix product are explained above
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
          const { rowCase } = await import("./exhibits.js");
          const { DTYPES, Elementwise } = webmm.device.core;
          const row = await webmm.app.bundle.row("elementwise", "gelu");
          const right = row.problem([8, 64, 1], "float32");
          const wrong = new Elementwise("relu", 8 * 64, DTYPES.get("float32"));
          const kernel = webmm.app.bundle.kernel("map", {}, "elementwise");
          const reference = row.reference.bind(row);
          row.reference = (_, values) => reference(right, values);
          const verdicts = [];
          for (const problem of [right, wrong]) {
            const on = await rowCase(webmm.device, row, problem);
            webmm.device.submit(await on.open(kernel), 1);
            verdicts.push(await on.check(await on.result.read()));
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
              const { moved } = webmm.app.bundle.core;
              const problem = webmm.app.bundle.problem({ m: n, n, k: n, dtype: "float32" });
              return { ...moved(webmm.device.stage(name).of, problem) };
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


# The lesson


def answering(document: object):
    """Return a handler of requests that answers with a compressed document."""
    packer = zlib.compressobj(9, wbits=-15)
    body = packer.compress(json.dumps(document).encode()) + packer.flush()
    return lambda route: route.fulfill(body=body, content_type="application/octet-stream")


COURSE = {
    "index": [*([name] * 2 for name in ("problem", "gemm/workgroup_1d", "reduce")), ["reduce/tree", "reduce~tree"]],
    "problem": "<h3>The problem</h3><p>A <a href='#explain/reduce/tree'>tree</a>.</p>",
    "gemm/workgroup_1d": "<h3>workgroup_1d: a line</h3><div class='here' data-stage='gemm/workgroup_1d'></div>"
    "<nav><a href='#explain/problem'>Previous: The problem</a></nav>",
    "reduce": f"<h3>Sums</h3>{'<p>Long.</p>' * 90}<h4 id='to-tree'>Tree</h4>",
}


@pytest.fixture
def lesson(open_page):
    """The page with a course of three chapters."""

    def opened(fragment: str = ""):
        page = open_page(wait=False, service_workers="block")
        for name, document in COURSE.items():
            page.route(f"**/bundle/learn/{name}.deflate", answering(document))
        page.goto(f"{page.url.partition('#')[0]}{fragment}")
        page.reload()
        page.wait_for_selector("body[data-ready]")
        return page

    return opened


def test_a_stage_has_its_chapter_and_others_are_a_link_away(lesson) -> None:
    page = lesson("#explain/gemm/workgroup_1d")
    wait_text(page, "#chapter", "workgroup_1d: a line")
    assert page.locator("#explain input[value=workgroup_1d]").is_checked()
    page.locator("#chapter nav a").first.scroll_into_view_if_needed()
    page.click("#chapter nav a >> text=Previous: The problem")
    wait_text(page, "#chapter", "The problem")
    page.wait_for_function("() => document.querySelector('#chapter').getBoundingClientRect().top >= 0")
    assert page.locator("#explain input[value=workgroup_1d]").is_checked(), "a chapter of no stage moved the stage"
    page.click("#chapter >> text=tree")
    wait_text(page, "#explain-code", "// tree:")
    assert page.locator("#explain-op option:checked").inner_text() == "Row sums"
    wait_text(page, "#chapter", "Sums")
    assert page.locator("#to-tree").evaluate("(x) => x.getBoundingClientRect().top < innerHeight"), "not its section"
    page.check("#explain input[value=serial]", force=True)
    assert page.url.endswith("#explain/reduce/serial")
    page.wait_for_selector("#chapter", state="hidden")
    page.go_back()
    wait_text(page, "#chapter", "Sums")


def test_a_chapter_has_the_gain_on_this_device(lesson) -> None:
    page = lesson("#explain/gemm/workgroup_1d")
    page.select_option("#explain-size", label="64³")
    page.click("#chapter .here button")
    words = wait_text(page, "#chapter .here", "× naive on this device")
    assert "GFLOP/s at 64³ float32" in words
    assert float(words.split()[0]) > 0
    assert words == page.inner_text(".story > .row .here")
    page.evaluate(
        """() => {
          const { app, device } = webmm;
          const of = (name, gflops) => device.record(device.stage(name), { m: 9, n: 9, k: 9, dtype: "float32" },
            { gflops, median_us: 1, best_us: 1 });
          app.addRun("elsewhere", [of("naive", 1), of("workgroup_1d", 50)].map((r) => ({ ...r, adapter: "other" })));
          app.addRun("a ladder", [of("naive", 1), of("workgroup_1d", 5)]);
        }"""
    )
    assert page.inner_text("#chapter .here").startswith("5 × naive on this device: 5 against 1 GFLOP/s at 9³")


def test_the_first_stages_go_step_by_step(page) -> None:
    show(page, "explain")
    page.check("#explain input[value=shared]", force=True)
    page.wait_for_selector("#steps:visible")
    assert "copies from storage to workgroup memory A[0, 0] and B[0, 0]" in page.inner_text("#steps-words")
    page.focus("#steps-step")
    page.keyboard.press("End")
    page.focus("#steps-invocation")
    page.keyboard.press("End")
    last = wait_text(page, "#steps-words", "invocation 255")
    assert "Step 18 of 18" in last
    assert "reads from workgroup memory, and adds the products of A[15, 15] and B[15, 15]: C[15, 15] = " in last
    assert "4 loads from storage for 16 FMAs: 0.25 per FMA" in last
    page.check("#explain input[value=tile_2d]", force=True)
    assert "A[0–3, 0] and B[0, 0–3]" in wait_text(page, "#steps-words", "A[0–3, 0]")
    page.check("#explain input[value=pipelined]", force=True)
    page.wait_for_selector("#steps", state="hidden")


def test_a_stage_has_one_figure_of_flop_per_byte(page) -> None:
    show(page, "explain")
    for name in ("naive", "workgroup_2d", "shared"):
        page.check(f"#explain input[value={name}]", force=True)
        told = page.locator("#explain-traffic dd").last.inner_text()
        assert f"{told} FLOP per byte as loaded" in page.inner_text(".legend-list")


def test_code_is_on_the_first_screen_and_not_clipped(page) -> None:
    for width, height in ((390, 844), (1280, 800), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        page.reload()
        page.wait_for_selector("body[data-ready]")
        show(page, "explain")
        page.check("#explain input[value=vectorized]", force=True)
        wait_text(page, "#explain-code", "// vectorized:")
        code = page.locator("#explain-code")
        top, wide, there = code.evaluate("(x) => [x.getBoundingClientRect().top, x.scrollWidth, x.clientWidth]")
        assert top < height
        assert wide <= there
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_names_of_matrices_are_not_over_the_tile(page) -> None:
    show(page, "explain")
    page.check("#explain input[value=naive]", force=True)
    covered = page.evaluate(
        """() => [...document.querySelectorAll(".tile-picture svg[aria-label^='A tile'] text")].some((text) => {
          const name = text.getBBox();
          return [...text.parentElement.querySelectorAll(".mine, .tile, .slab")].some((each) => {
            const { x, y, width, height } = each.getBBox();
            return x < name.x + name.width && name.x < x + width && y < name.y + name.height && name.y < y + height;
          });
        })"""
    )
    assert not covered


def test_explain_says_what_each_change_of_a_slider_gains(page) -> None:
    show(page, "explain")
    page.select_option("#explain-size", label="64³")
    page.check("#explain input[value=tile_2d]", force=True)
    assert page.is_hidden("#explain-ablate")
    for name, key in (("tm", "Home"), ("wx", "Home")):
        page.focus(f"#tunable-{name}")
        page.keyboard.press(key)
    page.click("#explain-ablate")
    page.wait_for_selector("#explain-ablation tr >> nth=4")
    rows = [row.split("\t") for row in page.locator("#explain-ablation tr").all_inner_texts()]
    assert [name for name, *_ in rows] == [
        *("tile_2d", "wx 16 → 8", "tm 4 → 2", "all together", "expected if independent")
    ]
    gains = [float(gain.removesuffix(" ×")) for _, _, gain in rows]
    speeds = [float(speed.split()[0]) for _, speed, _ in rows[:4]]
    assert gains[0] == 1
    for gain, speed in zip(gains[1:4], speeds[1:], strict=True):
        assert gain == pytest.approx(speed / speeds[0], rel=0.02)
    assert gains[4] == pytest.approx(gains[1] * gains[2], rel=0.02)
