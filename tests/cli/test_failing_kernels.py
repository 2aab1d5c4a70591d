"""Stages that fail – broken syntax, types, templates, a wrong element – in every command that compiles them."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Cli
from webmm.cases import op_of
from webmm.cases.gemm import GemmOp
from webmm.cli import main
from webmm.engine.device import Device
from webmm.kernels import configure
from webmm.kernels.gemm.tile_1d import Tile1D
from webmm.measure import tuner
from webmm.measure.bench import Bench, record_of
from webmm.problems.gemm import gemm
from webmm.report import ablation, choice

STORE = "store_c(c_base, row0 + i, col, sum[i]);"
# By the name of a stage: the line of the example's template that is replaced, by what, and words of the message.
BROKEN = {
    "broken_syntax": (STORE, "store_c(c_base, row0 + i, col sum[i]);", "expected"),
    "broken_type": (STORE, "store_c(c_base, row0 + i, col, 1u + sum[i]);", "Operation Add can't work with"),
    "broken_name": ("let col = col0 + local_index;", "let col = {{ nothing }};", "'nothing' is undefined"),
}
WRONG = {
    "wrong": (STORE, "store_c(c_base, row0 + i, col, select(sum[i], 9.0, row0 + i == 2u && col == 3u));", "C[2, 3]")
}


def plugin(examples: Path, name: str) -> tuple[list[str], str, str]:
    """Write the stage `name`; return the option that loads it, FILE:LINE of its broken line, and that line."""
    old, new, _ = {**BROKEN, **WRONG}[name]
    python, text = ((examples / f"columns.{suffix}").read_text() for suffix in ("py", "wgsl"))
    assert text.count(old) == 1
    (examples / f"{name}.py").write_text(python.replace('"columns"', f'"{name}"'))
    (examples / f"{name}.wgsl").write_text(text.replace(old, new))
    number = text.replace(old, new).splitlines().index(next(x for x in text.splitlines() if old in x).replace(old, new))
    return ["--plugin", f"examples/{name}.py"], f"examples/{name}.wgsl:{number + 1}", new


def test_bench_says_why_stages_fail_and_measures_the_others(webmm: Cli, examples: Path, tmp_path: Path) -> None:
    made = {name: plugin(examples, name) for name in (*BROKEN, *WRONG)}
    options = [word for option, _, _ in made.values() for word in option]
    kernels = f"{','.join(BROKEN)},wrong:tm=2,naive"
    done = webmm("bench", *options, "--sizes", "8x12x4", "--layout", "nt", "--kernels", kernels, "--json", "r.json")
    assert done.returncode == 1, done.stderr
    assert "of peak" in done.stdout
    assert "GFLOP/s f32 by a kernel of independent FMAs" in done.stdout
    lines = done.stdout.splitlines()
    records = {r["kernel"]: r for r in json.loads((tmp_path / "r.json").read_text())["records"]}
    assert records["naive"]["status"] == "ok", "the others are measured"
    for name, (_, place, line) in list(made.items())[: len(BROKEN)]:
        (named,) = (each for each in lines if each.startswith(f"  {name}: compile: "))
        assert f" {place}: " in named
        assert BROKEN[name][2] in named
        assert named.endswith(records[name]["reason"]), "one line"
        assert f"    {place}: {line}" in lines
    size = "--size 8x12x4 --layout nt"
    assert f"    the text: webmm shader broken_type {size} --plugin examples/broken_type.py" in lines
    assert "  wrong tm=2: incorrect: 1 of 96 elements is wrong, first C[2, 3]: expected " in done.stdout
    assert ", got 9; the largest error is" in done.stdout
    (command,) = (each.partition("step by step: ")[2] for each in lines if "step by step: " in each)
    assert command == "webmm debug wrong 8 12 4 --at 2,3 --set tm=2 --layout nt --plugin examples/wrong.py"
    shown = webmm(*shlex.split(command)[1:])
    assert shown.returncode == 1
    assert "C[2, 3] = 9, NumPy's" in shown.stdout


def test_debug_and_shader_quote_the_template(webmm: Cli, examples: Path) -> None:
    option, place, line = plugin(examples, "broken_type")
    done = webmm("debug", "broken_type", 8, 8, 8, *option)
    assert done.returncode == 1
    first, quoted, *_ = done.stderr.splitlines()
    assert f"was refused by the engine: {place}: Operation Add" in first
    assert quoted == f"  {place}: {line}"
    option, place, line = plugin(examples, "broken_name")
    done = webmm("shader", "broken_name", *option)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == f"  {place}: {line}"


@pytest.mark.usefixtures("load_plugin")
def test_a_search_says_why_all_candidates_of_a_kernel_failed(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(examples.parent)
    (one, place, line), (other, _, _) = plugin(examples, "broken_type"), plugin(examples, "wrong")
    drawn = [("broken_type", {"tm": "2"}), ("broken_type", {}), ("wrong", {})]
    monkeypatch.setattr(tuner, "drawn", lambda device, problem: iter([configure(*each) for each in drawn]))
    monkeypatch.setattr(choice, "choose", lambda problem, device: configure("naive", {}))
    done = CliRunner().invoke(main, ["tune", "--sizes", "8", *one, *other])
    assert done.exit_code == 1, done.output
    assert "8×8×8 nn float32: naive" in done.stdout, "the others are measured"
    refused = (
        "  broken_type tm=2: compile: all 2 candidates failed: broken_type(width=64,tm=2) was refused by the engine"
    )
    assert f"{refused}: {place}: " in done.stdout
    assert f"    {place}: {line}" in done.stdout.splitlines()
    assert "  wrong: incorrect: 1 of 64 elements is wrong, first C[2, 3]: expected" in done.stdout
    assert "    step by step: webmm debug wrong 8 8 8 --at 2,3 --plugin examples/wrong.py" in done.stdout.splitlines()


@pytest.mark.usefixtures("load_plugin")
def test_selftest_and_explain_say_why_plugins_fail(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(examples.parent)
    monkeypatch.setattr(GemmOp, "tried", GemmOp.tried[:1])
    (one, place, line), (other, _, _) = plugin(examples, "broken_type"), plugin(examples, "wrong")
    done = CliRunner().invoke(main, ["selftest", *one, *other])
    assert done.exit_code == 1
    assert "  64x64x64 nn float32: broken_type(width=64,tm=4): broken_type(width=64,tm=4) was refused" in done.stdout
    assert f"    {place}: {line}" in done.stdout.splitlines()
    assert ": it computes wrong results: 1 of 4,096 elements is wrong, first C[2, 3]: expected" in done.stdout
    assert (
        "    step by step: webmm debug wrong 64 64 64 --at 2,3 --plugin examples/wrong.py" in done.stdout.splitlines()
    )
    done = CliRunner().invoke(main, ["explain", "8", "8", "8"])
    assert done.exit_code == 1
    assert f"was refused by the engine: {place}: " in " ".join(done.stdout.split())
    assert f"  {place}: {line}" in done.stdout.splitlines()


def test_tint_is_quoted_as_well(webmm: Cli, examples: Path, swiftshader: dict[str, str]) -> None:
    option, place, line = plugin(examples, "broken_type")
    command = ("bench", *option, "--sizes", 8, "--kernels", "broken_type", "--engine", "dawn")
    done = webmm(*command, **swiftshader)
    assert done.returncode == 1, done.stderr
    assert f"{place}: no matching overload for 'operator + (u32, f32)'" in done.stdout
    assert f"    {place}: {line}" in done.stdout.splitlines()
    assert "--dialect tint" in done.stdout


def test_an_ablation_says_why_a_variant_was_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def timed(bench: Bench, kernel: Tile1D, changes: object) -> list[object]:
        problem = gemm(8, 8, 8)
        base = dataclasses.replace(record_of(bench.device, problem, kernel), median_us=1.0)
        return [base, record_of(bench.device, problem, Tile1D(wx=8), "skipped", "the budget of 1 s is used up")]

    monkeypatch.setattr(ablation, "_timed", timed)
    with Device() as device:
        ablation._at(Bench(device, [], [(8, 8, 8)], op=op_of("gemm")), Tile1D(), (8, 8, 8))
    assert "  wx=8: skipped: the budget of 1 s is used up" in capsys.readouterr().out.splitlines()
