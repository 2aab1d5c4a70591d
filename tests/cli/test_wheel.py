"""The wheel: built, installed into a fresh environment, used from another folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_wheel_works_from_another_folder(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, ROOT / "tools" / "check-dist", tmp_path, cwd=tmp_path)
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if "node_modules" in name or name.endswith("package.json")]
    run(sys.executable, "-m", "venv", "fresh", cwd=tmp_path)
    fresh = tmp_path / "fresh" / "bin"
    run(fresh / "pip", "install", "--quiet", "--no-compile", wheel, cwd=tmp_path)
    product = "webmm.matmul(numpy.eye(3, dtype='f4'), numpy.ones((3, 2), 'f4'))"
    code = f"import numpy, webmm; print(webmm.__file__); print({product})"
    out = run(fresh / "python", "-c", code, cwd=tmp_path)
    assert str(tmp_path) in out
    assert "[1. 1.]" in out
    assert "const BM: u32 = 64u" in run(fresh / "webmm", "shader", "blocked", cwd=tmp_path)
    run(fresh / "webmm", "bundle", "page", cwd=tmp_path)
    assert (tmp_path / "page" / "index.html").exists()
    assert not (tmp_path / "page" / "package.json").exists()
    assert "Stages" in run(fresh / "webmm", "info", cwd=tmp_path)
