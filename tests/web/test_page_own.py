"""The panel for a visitor's own WGSL: a pasted text is checked and timed, a wrong one refused with line or element."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.page_steps import show, wait_text

TILES = (Path(__file__).parents[2] / "examples" / "tiles.wgsl").read_text(encoding="utf-8")
MESSAGE = "#own-message"


@pytest.fixture
def own(page):
    show(page, "own")
    page.wait_for_selector("#own-text")
    return page


def test_a_pasted_text_is_checked_and_timed(own) -> None:
    own.fill("#own-text", TILES)
    own.click("#own-check")
    wait_text(own, MESSAGE, "Right at all 6 sizes.")
    findings = own.locator("#own-findings li").all_inner_texts()
    assert findings == [
        f"{size}: right" for size in ("64×64×64", "65×67×63", "1×1×1", "33×130×5", "128×16×200", "7×300×77")
    ]
    own.select_option("#own-size", "64")
    own.select_option("#own-stages", "naive")
    own.click("#own-time")
    wait_text(own, MESSAGE, "Your text: ")
    rows = {row.split()[0]: row for row in own.locator("#own-result tbody tr").all_inner_texts()}
    assert rows.keys() == {"pasted.wgsl", "naive"}
    assert all("s" in row and "reason" not in row for row in rows.values())


def test_tunables_of_a_pasted_text_are_tuned(own) -> None:
    own.fill("#own-text", TILES)
    own.select_option("#own-size", "64")
    own.click("#own-tune")
    wait_text(own, MESSAGE, "there is nothing to tune: name constants and their values")
    own.fill("#own-grid", "n/TILE,m/TILE")
    own.fill("#own-tunables", "TILE=8,256,4")
    own.click("#own-tune")
    said = wait_text(own, MESSAGE, "Best of 3: your text with TILE = ")
    assert "GFLOP/s at 64³" in said
    rows = [row.split("\t") for row in own.locator("#own-result tbody tr").all_inner_texts()]
    assert sorted(name.split()[-1] for name, *_ in rows[:2]) == ["4", "8"]
    assert rows[2][0].split()[-1] == "256"
    assert rows[2][1].startswith("compile")
    own.fill("#own-text", TILES.replace("at.y < sizes.m && at.x < sizes.n", "at.x < sizes.n"))  # right at 64³
    own.fill("#own-tunables", "TILE=16")
    own.click("#own-tune")
    wait_text(own, MESSAGE, "No combination is right.")
    assert "elements beyond the end of C were written" in own.inner_text("#own-result")


def test_a_pasted_text_with_an_error_is_refused_with_its_line(own) -> None:
    broken = TILES.replace("var sum = 0.0;", "var sum = nonsense;")
    line = 1 + broken[: broken.index("nonsense")].count("\n")
    for button in ("#own-check", "#own-time"):
        own.fill("#own-text", broken)
        own.click(button)
        said = wait_text(own, MESSAGE, "refused by the engine")
        assert f"line {line}: " in said
        assert "nonsense" in said
        assert own.inner_text("#own-result pre").startswith(f"  line {line}: var sum = nonsense;")
        own.fill("#own-text", "")
        own.click(button)
        wait_text(own, MESSAGE, "there is no text")


def test_a_wrong_text_is_told_its_elements(own) -> None:
    strays = TILES.replace("at.y < sizes.m && at.x < sizes.n", "at.x < sizes.n")
    own.fill("#own-text", strays.replace("= sum;", "= sum + f32(at.x == 4u);"))
    own.click("#own-check")
    wait_text(own, MESSAGE, "Wrong at 6 of 6 sizes.")
    findings = own.locator("#own-findings li").all_inner_texts()
    assert "64 of 4,096 elements are wrong, first C[0, 4]: expected " in findings[0]
    assert "beyond the end" not in findings[0]
    assert "elements beyond the end of C were written, first element 4,355 of its buffer" in findings[1]
    own.select_option("#own-size", "64")
    own.click("#own-time")
    wait_text(own, MESSAGE, "Your text is not timed: incorrect: 64 of 4,096 elements are wrong, first C[0, 4]")


def test_words_that_make_no_sense_are_refused(own) -> None:
    own.fill("#own-text", TILES)
    for selector, bad, words in (
        ("#own-bindings", "a,b", "Bindings must name a, b and c, each once, not"),
        ("#own-uniform", "rows", "Uniform must name m, n or k, not 'rows'"),
        ("#own-grid", "m**2", "a grid is one to three numbers, made of m, n, k"),
        ("#own-grid", "m/(n-n)", "divides by zero for m=64, n=64, k=64"),
        ("#own-grid", "m-m", "the grid m-m has no workgroups for m=64, n=64, k=64"),
        ("#own-tunables", "TILE", "a tunable is NAME=V,… with whole numbers, such as BM=32,64, not 'TILE'"),
        ("#own-tunables", "TALL=8", "your text has no constant TALL with a number as its value"),
        ("#own-tunables", "M=8", "tunable M: this is the name of a length"),
        ("#own-bindings", "c,a,b", "refused by the engine"),
    ):
        good = own.input_value(selector)
        own.fill(selector, bad)
        own.click("#own-check")
        wait_text(own, MESSAGE, words)
        own.fill(selector, good)
