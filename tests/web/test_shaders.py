"""Every stage × dtype that the adapter supports is right in Chromium and in node on Dawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.sampled import crossed
from webmm import cli
from webmm.dtypes import FLOATS
from webmm.page.bundle import CASES
from webmm.page.stages import offered
from webmm.problems.gemm import gemm
from webmm.wgsl.render import render

CASES_JS = Path(__file__).with_name("cases.js")
LEGITIMATE = re.compile(
    r"needs the feature (shader-f16|chromium-experimental-subgroup-matrix)|needs subgroups of|multiplies float16"
    r"|slow to compile"
)


def judge(outcomes: list[dict]) -> None:
    assert len(outcomes) == len(CASES) * len(offered()) // 2  # a quarter of them, in two dtypes
    refused = [o for o in outcomes if o["reason"]]
    assert [o for o in refused if not LEGITIMATE.search(o["reason"])] == []
    assert [o for o in outcomes if not o["reason"] and not o["right"]] == []
    right = {o["name"] for o in outcomes if o.get("right")}
    assert right >= {kernel.name for kernel in offered() if not kernel().subgroup}


def test_every_stage_in_chromium(page) -> None:
    function = CASES_JS.read_text().replace("export async", "async")
    outcomes = page.evaluate(
        f"async () => {{ {function}\n return checkCases(await import('./webmm.js'), webmm.device, 1); }}"
    )
    judge(outcomes)


def test_every_stage_in_node(page_folder: Path, node_modules: Path, node) -> None:
    dawn = node_modules / "webgpu" / "index.js"
    done = node(str(CASES_JS.with_name("node_cases.mjs")), str(page_folder), str(dawn))
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert "swiftshader" in result["adapter"]
    judge(result["outcomes"])
    assert result["resident"] == [40, 8]


TEXT = """
([name, m, n, k, dtype]) => {
  const kernel = webmm.device.bundle.kernel(name);
  return kernel.dtypes.includes(dtype) ? kernel.wgsl({ m, n, k, dtype }) : "";
}
"""


@pytest.mark.parametrize(
    ("shape", "dtype"),
    crossed([(64, 64, 64), (333, 257, 129), (2, 3, 70_000)], [dtype.name for dtype in FLOATS]),
    ids=str,
)
def test_the_page_runs_the_shaders_that_python_renders(page, shape: tuple[int, int, int], dtype: str) -> None:
    problem = gemm(*shape, dtype=dtype)
    for cls in offered():
        expected = "" if cls().unsuited(problem) else render(cls(), problem, "tint").wgsl
        assert page.evaluate(TEXT, [cls.name, *shape, dtype]) == expected


SHOWN = """
async (general) => {
  const { bundle } = webmm.device;
  const p = bundle.problem({ m: 1024, n: 1024, k: 1024, dtype: "float32" });
  const { dispatches } = await bundle.stageAsData(bundle.kernel("pipelined", { bm: 32 }).of, p, general);
  return dispatches[0].wgsl;
}
"""


def test_the_page_shows_the_text_that_the_command_prints(page) -> None:
    command = ["shader", "pipelined", "--dialect", "tint", "--set", "bm=32"]
    for general, options in ((False, ["--size", "1024"]), (True, [])):
        printed = CliRunner().invoke(cli.main, [*command, *options])
        assert printed.exit_code == 0, printed.output
        assert page.evaluate(SHOWN, general) == printed.output


def test_types(node_modules: Path, node) -> None:
    tsc = node_modules / "typescript" / "bin" / "tsc"
    done = node(str(tsc), "--project", str(node_modules.parent / "tsconfig.json"))
    assert done.returncode == 0, done.stdout
