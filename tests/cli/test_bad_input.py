"""Bad input: exit code 2, one line that says what was wrong and what to do, and nothing half written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli

ARGUMENTS = {
    "bench --sizes 0": "at least 1",
    "bench --sizes -5": "at least 1",
    "bench --sizes 2x3": "MxNxK",
    "bench --sizes big": "MxNxK",
    "bench --kernels nope": "choose from naive",
    "bench --kernels blocked:bm=65": "multiple of tm",
    "bench --kernels blocked:bm": "NAME=VALUE",
    "bench --kernels blocked:zz=1": "its tunables",
    "bench --kernels shared:tile=33 --sizes 8": "invocations per workgroup",
    "bench --kernels blocked:bm=1024:bn=1024:tm=8:tn=128 --sizes 8": "workgroup",
    "bench --dtype object": "float32",
    "bench --dtype int64": "cast to",
    "bench --adapter no-such-adapter": "there is 0:",
    "bench --json missing/r.json --sizes 8": "no folder",
    "bench --plot r.pdf --sizes 8": ".png or .svg",
    "bench --budget 0": "budget",
    "shader nope": "choose from naive",
    "shader blocked --set bm=x": "takes an integer",
    "shader pipelined --set prefetch=disk": "registers, workgroup",
    "shader naive --dialect glsl": "naga, tint",
    "shader naive --layout xy": "nn, nt, tn, tt",
    "debug nope 1 1 1": "choose from naive",
    "debug naive 3 3 3 --at 3": "ROW,COL",
    "debug naive 3 3 3 --at 3,0": "C is 3x3: it has no element (3, 0)",
    "debug naive 3 3 3 --steps 2:9": "no steps 2:9 within 0:3",
    "debug naive 3 3 3 --steps two": "A:B",
    "run a.npy b.npy -o c.npy --profile=trace.txt": "a trace is .json",
    "run a.npy b.npy -o c.npy --profile=missing/trace.json": "no folder",
    "run": "Usage",
    "frobnicate": "No such command",
}


def fails(done: object, words: str, usage: bool = False) -> None:
    assert done.returncode == 2, (done.stdout, done.stderr)  # type: ignore[attr-defined]
    stderr = done.stderr.strip()  # type: ignore[attr-defined]
    assert words in stderr
    assert usage or len(stderr.splitlines()) == 1, stderr


@pytest.mark.parametrize(("arguments", "words"), ARGUMENTS.items(), ids=ARGUMENTS)
def test_arguments(webmm: Cli, arguments: str, words: str) -> None:
    done = webmm(*arguments.split())
    fails(done, words, usage="Usage" in done.stderr)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    ones = np.ones((4, 4), np.float32)
    np.save(tmp_path / "a.npy", ones)
    np.save(tmp_path / "long.npy", np.ones((5, 4), np.float32))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2), np.float32))
    np.save(tmp_path / "double.npy", ones.astype(np.float64))
    np.save(tmp_path / "half.npy", ones.astype(np.float16))
    np.save(tmp_path / "empty.npy", np.ones((0, 4), np.float32))
    np.save(tmp_path / "object.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "archive.npz", ones)
    (tmp_path / "text.npy").write_text("no matrix")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-20])
    (tmp_path / "folder").mkdir()
    return tmp_path


PAIRS = {
    ("a.npy", "long.npy"): "4 columns",
    ("cube.npy", "a.npy"): "3-D",
    ("double.npy", "double.npy"): "cast to",
    ("a.npy", "half.npy"): "cast one",
    ("empty.npy", "a.npy"): "empty",
    ("object.npy", "a.npy"): "not a .npy file of numbers",
    ("archive.npz", "a.npy"): "archive",
    ("text.npy", "a.npy"): "not a .npy file",
    ("cut.npy", "a.npy"): "not a .npy file",
    ("missing.npy", "a.npy"): "No such file",
    ("folder", "a.npy"): "directory",
}


@pytest.mark.parametrize(("pair", "words"), PAIRS.items(), ids=[" ".join(pair) for pair in PAIRS])
def test_run_refuses_files(webmm: Cli, files: Path, pair: tuple[str, str], words: str) -> None:
    fails(webmm("run", *pair, "-o", "c.npy"), words)
    assert not (files / "c.npy").exists()


def test_an_output_that_cannot_be_written(webmm: Cli, files: Path) -> None:
    fails(webmm("run", "a.npy", "a.npy", "-o", "missing/c.npy"), "no folder")
    if os.path.exists("/proc/self"):
        fails(webmm("run", "a.npy", "a.npy", "-o", "/proc/c.npy"), "cannot write /proc/c.npy")


def test_a_full_disk_leaves_nothing_behind(files: Path) -> None:
    """The file may not grow past a kilobyte: writing fails half-way, as it does on a full disk."""
    np.save(files / "large.npy", np.ones((64, 64), np.float32))
    command = f"ulimit -f 1; exec {sys.executable} -m webmm.cli run large.npy large.npy -o c.npy"
    done = subprocess.run(["sh", "-c", command], cwd=files, capture_output=True, text=True, timeout=300, check=False)
    fails(done, "cannot write c.npy")
    assert not [path.name for path in files.iterdir() if "c.npy" in path.name]
