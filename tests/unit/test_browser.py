"""What browsers say of adapters, clocks and the fields of a pasted text, which the page asks the translated package."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from webmm.errors import ConfigError, ProblemError, UnsupportedError, WebmmError
from webmm.foreign.pasted import pasted
from webmm.measure.records import Record
from webmm.page.browser import adapter_of, asking, browser_of, is_coarse, own_records

SAFARI = "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/130.0.6 Safari/537.36"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0"
ENGINES = {
    CHROME: "Chrome 130",
    f"{CHROME} Edg/131.0.1": "Edge 131",
    f"{CHROME} OPR/99.0": "Opera 99",
    FIREFOX: "Firefox 141",
    SAFARI: "Safari 26",
    "Node.js/22": "Node.js with Dawn",
    "": "WebGPU with Dawn",
}
NAMES = [
    ({"vendor": "nvidia", "architecture": "ampere"}, ("nvidia ampere", "gpu", "")),
    ({"vendor": "amd", "device": "0x744c", "description": "a card"}, ("a card", "gpu", "")),
    ({"device": "H200", "description": "580.1", "vendor": "nvidia"}, ("H200", "gpu", "580.1")),
    ({"device": "SwiftShader Device", "architecture": "swiftshader"}, ("SwiftShader Device", "cpu", "")),
    ({"description": "x", "type": "CPU", "driver": "Mesa 24"}, ("x", "cpu", "Mesa 24")),
    ({}, ("unnamed adapter", "gpu", "")),
]
TEXT = "const TILE = 8u; @compute @workgroup_size(TILE) fn main() {}"


@pytest.mark.parametrize(("agent", "engine"), ENGINES.items())
def test_the_engine_is_named_by_the_user_agent(agent: str, engine: str) -> None:
    assert adapter_of(defaultdict(str), agent).engine == engine


@pytest.mark.parametrize(("said", "found"), NAMES)
def test_adapters_have_a_name_a_kind_and_a_driver(said: dict[str, str], found: tuple[str, str, str]) -> None:
    adapter = adapter_of(defaultdict(str, said), CHROME)
    assert (adapter.name, adapter.kind, adapter.driver) == found


def test_the_choice_reads_of_a_browser_what_it_reads_of_a_device() -> None:
    adapter = adapter_of(defaultdict(str, vendor="intel", description="Arc"), CHROME)
    browser = browser_of(adapter, (8, 32), {}, frozenset({"subgroups"}), [])
    assert (browser.info.name, browser.info.kind, browser.engine.name) == ("intel Arc", "other", "dawn")
    assert browser.capabilities.subgroup_sizes == [8, 16, 32]
    assert asking(browser.capabilities, [16, 32]).subgroup_sizes == [16, 32, 8]
    assert asking(browser.capabilities, []) is browser.capabilities
    assert browser_of(adapter, (8, 32), {}, frozenset(), []).capabilities.subgroup_sizes == []


def test_the_choice_uses_the_measurements_of_its_own_adapter_and_engine() -> None:
    adapter = adapter_of(defaultdict(str, vendor="intel", description="Arc"), CHROME)
    browser = browser_of(adapter, (8, 32), {}, frozenset(), [])
    own = Record("gemm", "blocked", 8, 8, 8, 1, "float32", adapter.engine, adapter.name, "", "", "")
    others = [replace(own, engine="Firefox 141"), replace(own, adapter="intel Arc"), replace(own, status="skipped")]
    assert own_records(browser, adapter, [*others, own]) == [replace(own, adapter="intel Arc")]
    with pytest.raises(ProblemError, match="a record is of blocked with a value that is never tried: bm must be"):
        own_records(browser, adapter, [own, replace(own, config={"bm": 9999})])


def test_rounded_timestamps_are_coarse() -> None:
    assert is_coarse([1e-4, 3e-4])
    assert is_coarse([0.0, 1.23e-4])
    assert not is_coarse([1.2345e-4, 2.3456e-4])
    assert not is_coarse([1e-2, 2e-2])  # which rounding does not matter for


def test_fields_of_a_pasted_text() -> None:
    first, second = pasted(TEXT, " c, a,b", "m,n,k", "n/TILE,m", "TILE=8,16", False)
    types = [(each.binding, each.type) for each in first.layout]
    assert first.bindings == ("c", "a", "b")
    assert types == [(0, "uniform"), (1, "storage"), (2, "read-only-storage"), (3, "read-only-storage")]
    assert first.members((5, 6, 7)) == [5, 6, 7, 0]
    assert first.code.endswith("\n// c, a, b; m, n, k")
    assert (second.label, second.config) == ("your text with TILE = 16", {"TILE": 16})
    assert "const TILE = 16u;" in second.text
    assert second.workgroups((3, 33, 5), 65_535) == (3, 3, 1)
    assert [each.label for each in pasted(TEXT, "a,b,c", "", "1", "", False)] == ["your text"]


@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (ConfigError, "there is no text", (" ", "a,b,c", "", "1", "")),
        (ConfigError, 'Bindings must name a, b and c, each once, not "a,b"', (TEXT, "a,b", "", "1", "")),
        (ConfigError, "Uniform must name m, n or k, not 'x'", (TEXT, "a,b,c", "x", "1", "")),
        (ConfigError, "your text has no constant SIZE", (TEXT, "a,b,c", "", "1", "SIZE=8")),
        (ProblemError, "the grid n-9 has no workgroups for m=1, n=9, k=1: 0,1,1", (TEXT, "a,b,c", "", "n-9", "")),
        (
            UnsupportedError,
            "the grid n*9 has 81 workgroups along an axis; the limit is 80",
            (TEXT, "a,b,c", "", "n*9", ""),
        ),
    ],
)
def test_what_is_wrong_with_a_pasted_text(
    error: type[WebmmError], words: str, given: tuple[str, str, str, str, str]
) -> None:
    with pytest.raises(error) as raised:
        pasted(*given, False)[0].workgroups((1, 9, 1), 80)
    assert words in str(raised.value)
