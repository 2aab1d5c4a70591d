"""Every stage × element type that the adapter allows is right: in Chromium, and in node on Dawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

from webmm import tint
from webmm.page.bundle import CASES
from webmm.page.stages import offered

CASES_JS = Path(__file__).with_name("cases.js")
LEGITIMATE = re.compile(
    r"needs the feature (shader-f16|chromium-experimental-subgroup-matrix)|needs subgroups of|multiplies float16"
    r"|slow to compile"
)


def judge(outcomes: list[dict]) -> None:
    assert len(outcomes) == len(CASES) * len(offered()) * 2
    assert [o for o in outcomes if not o["flags"]] == [], "the page picks another specialisation than Python"
    refused = [o for o in outcomes if o["reason"]]
    assert [o for o in refused if not LEGITIMATE.search(o["reason"])] == []
    assert [o for o in outcomes if not o["reason"] and not o["right"]] == []
    right = {o["name"] for o in outcomes if o.get("right")}
    assert right >= {kernel.name for kernel in offered() if not kernel().subgroup}


def test_every_stage_is_right_in_chromium(page) -> None:
    function = CASES_JS.read_text().replace("export async", "async")
    outcomes = page.evaluate(
        f"async () => {{ {function}\n return checkCases(await import('./webmm.js'), webmm.device); }}"
    )
    judge(outcomes)


def test_every_stage_is_right_in_node_on_dawn(page_folder: Path, node_modules: Path, node) -> None:
    dawn = node_modules / "webgpu" / "index.js"
    done = node(str(CASES_JS.with_name("node_cases.mjs")), str(page_folder), str(dawn))
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert "swiftshader" in result["adapter"]
    judge(result["outcomes"])
    assert result["resident"] == [40, 8]


def test_tint_takes_every_shader_of_the_page(page_folder: Path) -> None:
    texts = sorted(page_folder.glob("bundle/shaders/*.wgsl"))
    assert len(texts) > 1000
    for path in texts:
        tint.validate(path.read_text(), path.name)


def test_types(node_modules: Path, node) -> None:
    tsc = node_modules / "typescript" / "bin" / "tsc"
    done = node(str(tsc), "--project", str(node_modules.parent / "tsconfig.json"))
    assert done.returncode == 0, done.stdout
