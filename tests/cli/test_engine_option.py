"""`--engine`: every command that opens a device uses the named engine, or says in one line why it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.conftest import Clis
from webmm import report
from webmm.engine import adapters
from webmm.engine.wgpu import WGPU
from webmm.measure.records import from_json

DAWN = ("--engine", "dawn")
MESA_22 = {"VK_DRIVER_FILES": "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"}


def test_info_lists_the_adapters_of_each_engine(processes: Clis, swiftshader: dict[str, str]) -> None:
    done, as_json = processes(["info", *DAWN], ["info", "--json"], **swiftshader)
    assert done.returncode == 0, done.stderr
    assert "Adapters of wgpu-py" in done.stdout
    assert " → 0: SwiftShader" in done.stdout.partition("Adapters of dawn")[2]
    assert done.stderr == "", "Dawn prints nothing about adapters that it refuses"
    data = json.loads(as_json.stdout)
    assert (data["engine"], data["elsewhere"]) == ("wgpu", "")
    assert {each["engine"] for each in data["adapters"]} == {"wgpu", "dawn"} == set(data["engines"])
    assert all(each["features"] for each in data["adapters"])


def test_each_command_opens_the_named_engine(processes: Clis, swiftshader: dict[str, str], tmp_path: Path) -> None:
    env = {**swiftshader, "WEBMM_CACHE_DIR": str(tmp_path / "cache")}
    np.save(tmp_path / "a.npy", np.eye(5, dtype=np.float32))
    commands: tuple[list[object], ...] = (
        ["run", "a.npy", "a.npy", "-o", "c.npy"],
        ["debug", "naive", 3, 3, 3],
        ["explain", 8, 8, 8],
        ["bench", "--sizes", "8", "--kernels", "naive", "--json", "bench.json"],
        ["tune", "--sizes", "16", "--budget", "4", "--json", "tune.json"],  # opens the engine in a worker process
    )
    for done in processes(*([*command, *DAWN] for command in commands), **env):
        assert done.returncode == 0, done.stderr
        assert "SwiftShader" in done.stdout + done.stderr
    for name in ("bench", "tune"):
        records = from_json((tmp_path / f"{name}.json").read_text())
        assert {record.engine.split()[0] for record in records} - {"numpy"} == {"dawn"}
        assert "ok" in {record.status for record in records if record.kernel != "cpu"}


def test_a_driver_refused_by_dawn(processes: Clis) -> None:
    if not os.path.exists(MESA_22["VK_DRIVER_FILES"]):
        pytest.fail("lavapipe is not installed: tools/ensure-vulkan installs it")
    done, info = processes(["explain", 8, 8, 8, *DAWN], ["info"], **MESA_22)
    assert done.returncode == 2
    assert "dawn rejects every adapter here (llvmpipe" in done.stderr
    assert "Dawn rejects old drivers, such as Mesa below 23; update the driver; or use wgpu" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "none accepted: Dawn rejects old drivers, such as Mesa below 23" in info.stdout


def test_an_engine_that_is_not_installed(processes: Clis, tmp_path: Path) -> None:
    (tmp_path / "wgpudawn.py").write_text("raise ModuleNotFoundError('wgpudawn')")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    explain = ["explain", 8, 8, 8, "--engine"]
    done, automatic = processes([*explain, "dawn"], [*explain, "auto"], PYTHONPATH=path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "pip install 'webmm[dawn]'" in done.stderr
    assert automatic.returncode == 0


@pytest.mark.parametrize(
    ("engine", "features", "shapes", "installed", "words"),
    [
        (WGPU, {WGPU.matrix_units}, (), 1, "pip install 'webmm[dawn]'"),
        (WGPU, {WGPU.matrix_units}, (), 2, "Dawn reaches them: --engine dawn"),
        (WGPU, {WGPU.matrix_units}, ("16x16x16",), 2, ""),
        (WGPU, set(), (), 1, ""),
        (None, {WGPU.matrix_units}, (), 2, ""),
    ],
)
def test_a_more_capable_engine_is_recommended(
    monkeypatch: pytest.MonkeyPatch, engine: object, features: set[str], shapes: object, installed: int, words: str
) -> None:
    for module in (report, adapters):
        monkeypatch.setattr(module, "installed", lambda: [WGPU] * installed)
    monkeypatch.setattr(report, "reaches_more", lambda *_: True)
    opened = SimpleNamespace(adapter=SimpleNamespace(features=features))
    device = SimpleNamespace(
        wgpu_device=opened, engine=engine, info=None, capabilities=SimpleNamespace(matrix_shapes=shapes)
    )
    hint = report.engine_hint(device)  # type: ignore[arg-type]
    assert words in hint
    assert bool(words) == bool(hint)
