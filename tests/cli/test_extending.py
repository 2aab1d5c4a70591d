"""Commands with plugins and with shaders from other projects: files in a folder outside the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

TILES = ("--uniform", "m,n,k", "--workgroup", "16,16", "--grid", "n/16,m/16")


@pytest.mark.usefixtures("examples")
def test_a_stage_is_found_by_name(webmm: Cli) -> None:
    plugin = ("--plugin", "examples/columns.py")
    assert "const TM: u32 = 2u; // rows of C" in webmm("shader", "columns", "--set", "tm=2", *plugin).stdout
    assert "columns(width=64,tm=4): registered" in webmm("explain", 64, 64, 64, *plugin).stdout
    assert "unknown kernel 'columns'" in webmm("shader", "columns").stderr


@pytest.mark.usefixtures("examples")
def test_the_tuner_loads_plugins_in_its_worker(webmm: Cli, tmp_path: Path) -> None:
    settings = ("--sizes", "400x100", "--budget", 10, "--json", "r.json")
    done = webmm(
        *("tune", "--op", "cumsum", "--plugin", "examples/cumsum.py", *settings),
        WEBMM_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    records = json.loads((tmp_path / "r.json").read_text())["records"]
    assert {(r["op"], r["kernel"], r["status"]) for r in records} == {("cumsum", "one_by_one", "ok")}
    shown = webmm("cache", "show", WEBMM_CACHE_DIR=str(tmp_path / "cache")).stdout
    assert "cumsum 400×100×1 float32: one_by_one (op not registered)" in shown


def test_a_failing_plugin_is_reported_with_its_line(webmm: Cli, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import webmm\n\nwebmm.register(3)\n")
    done = webmm("explain", 8, 8, 8, "--plugin", "wrong.py")
    assert done.returncode == 2
    assert done.stderr == ("webmm: plugin wrong.py, line 3: register() takes a subclass of Kernel or Op, not 3\n")


def test_a_foreign_shader_is_checked_and_timed(webmm: Cli, examples: Path, tmp_path: Path) -> None:
    text = examples / "tiles.wgsl"
    done = webmm("kernel", "check", text, *TILES, "--sizes", "33x17x5")
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, "  33x17x5: right")
    text.write_text(text.read_text().replace(" && at.x < sizes.n) {\n        c[", ") {\n        c["))
    done = webmm("kernel", "check", text, *TILES, "--sizes", "33x17x5")
    assert done.returncode == 1
    assert "elements beyond the end of C were written, first element 561 of its buffer: got 0" in done.stdout
    done = webmm(*("kernel", "bench", text, *TILES, "--sizes", 16, "--kernels", "naive", "--json", "r.json"))
    assert done.returncode == 0, done.stderr
    kernels = {r["kernel"]: r["status"] for r in json.loads((tmp_path / "r.json").read_text())["records"]}
    assert kernels == {"tiles.wgsl": "ok", "naive": "ok", "cpu": "ok"}


def test_debug_of_several_elements(webmm: Cli) -> None:
    done = webmm("debug", "per_row", 3, 5, "--op", "reduce:max", "--at", 0, "--at", 2, "--json")
    assert [found["at"] for found in json.loads(done.stdout)] == [[0, 0], [2, 0]]
