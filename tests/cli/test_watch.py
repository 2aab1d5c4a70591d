"""`webmm watch`: files, a window on a display without a screen, and what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageGrab

from tests.cli.conftest import Cli


@pytest.fixture
def display() -> Iterator[str]:
    """Return the name of a display of Xvfb."""
    if not shutil.which("Xvfb") and "CI" not in os.environ:
        pytest.skip("needs Xvfb: tools/ensure-display installs it")
    reading, writing = os.pipe()
    # Without a reset when its last client leaves, such as a grabbed picture, which would refuse a window meanwhile.
    options = ["-displayfd", str(writing), "-screen", "0", "800x600x24", "-noreset"]
    server = subprocess.Popen(["Xvfb", *options], pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with os.fdopen(reading) as numbers:
            yield f":{numbers.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


def test_pictures_are_saved_without_a_display(webmm: Cli, tmp_path: Path) -> None:
    done = webmm("watch", "tile_2d", "naive", "--size", "96x64x8", "--pictures", "5", "--save", "w.gif", DISPLAY="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("w.gif: 5 pictures of 96x64x8 on ")
    with Image.open(tmp_path / "w.gif") as image:
        assert image.n_frames == 5
        assert image.info["loop"] == 0


def test_a_window_shows_the_product_and_is_closed(display: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "webmm", "watch", "tile_2d", "--size", "128", "--once"]
    environment = {**os.environ, "DISPLAY": display, "WAYLAND_DISPLAY": "", "XDG_SESSION_TYPE": "x11"}
    shown = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    most = 0  # colours at once; a display without windows has one
    end = time.monotonic() + 120
    while shown.poll() is None:
        if time.monotonic() > end:
            shown.kill()
        most = max(most, len(ImageGrab.grab(xdisplay=display).getcolors(1 << 24) or []))
        time.sleep(0.1)
    assert shown.stderr is not None
    assert shown.returncode == 0, shown.stderr.read()
    assert most > 50


def test_without_a_display(webmm: Cli) -> None:
    done = webmm("watch", "tile_2d", "--size", "64", DISPLAY="", WAYLAND_DISPLAY="")
    assert done.returncode == 2
    assert done.stderr == "webmm: no window can be opened, since there is no display; use --save watch.gif\n"


@pytest.mark.parametrize("lacking", ["PIL", "glfw"])
def test_without_the_extra(webmm: Cli, tmp_path: Path, lacking: str) -> None:
    (tmp_path / f"{lacking}.py").write_text("raise ImportError\n")
    done = webmm("watch", "tile_2d", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert done.returncode == 2
    assert "pip install 'webmm[window]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tile_2d", "--save", "w.png"], "pictures are saved as .gif, not .png"),
        (["tile_2d", "--save", "none/w.gif"], "there is no folder none"),
        (["tile_2d", "--size", "8,9"], "one size N or MxNxK, not '8,9'"),
        (["tile_2d", "--size", "8x8x8@2"], "one size N or MxNxK, not '8x8x8@2'"),
        (["tile_3d"], "tile_3d"),
        (["split_k:splits=4", "--size", "64", "--save", "w.gif"], "split_k cannot be watched"),
        (["naive"] * 9, "at most 8 kernels fit side by side, not 9"),
    ],
)
def test_what_is_refused(webmm: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = webmm("watch", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
