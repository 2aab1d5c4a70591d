"""Invalid input: exit code 2, one line that says what is wrong and what to do, and no partial output."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from tests.cli import hostile
from tests.cli.conftest import Cli, measured_once
from tests.cli.hostile import FLOATS, HEADER
from webmm import config
from webmm.choose import tuned, verdicts
from webmm.cli import main
from webmm.measure import roofline
from webmm.text import is_plain


def fails(done: object, words: str, usage: bool = False) -> None:
    assert done.returncode == 2, (done.stdout, done.stderr)  # type: ignore[attr-defined]
    stderr = done.stderr.strip()  # type: ignore[attr-defined]
    assert words in stderr
    assert usage or len(stderr.splitlines()) == 1, stderr


TIMEOUT = 60  # seconds


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Change to a folder of test files, and fail the test if a command, run in this process, does not end in time."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(roofline, "measure", measured_once)
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(files / "cache"))
    monkeypatch.setattr(config.platformdirs, "user_config_dir", lambda name: str(files / "user"))
    config._files.cache_clear()
    os.mkfifo(files / "fifo")
    text = shutil.copy(Path(__file__).parents[2] / "examples" / "tiles.wgsl", files)
    (files / "silent.wgsl").write_text(Path(text).read_text().replace("//dbg", "// not dbg"))
    with (files / "large.npy").open("wb") as file:  # a sparse file
        header = HEADER.format(FLOATS, "(500000, 500000)").encode()
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
        file.truncate(10 + len(header) + 4 * 500_000**2)

    def waited(*_: object) -> None:
        pytest.fail(f"the command did not end within {TIMEOUT} s")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(TIMEOUT)
    yield files
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    config._files.cache_clear()


def refused(arguments: list[str], words: str) -> None:
    """Run a command; assert exit code 2, one line with `words`, and no escape sequences."""
    done = CliRunner().invoke(main, arguments)
    error = done.exception
    assert error is None or isinstance(error, SystemExit), "".join(traceback.format_exception(error))
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert words in done.stderr, done.stderr[-2000:]
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert is_plain(done.output.replace("\n", ""))


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def test_every_command_and_option_has_a_row() -> None:
    assert dict(commands()).keys() == hostile.ARGUMENTS.keys()
    for name, command in commands():
        tried = " ".join(hostile.ARGUMENTS[name])
        for param in command.params:
            if isinstance(param, click.Option) and not param.is_flag and param.name != "help":
                assert any(option in tried for option in param.opts), (name, param.opts)


PATHS = {"missing", "fifo", ".", "/dev/zero"}  # and paths in a missing folder


def test_every_file_has_a_row() -> None:
    """Every argument or option that names a file is tested with a missing file or one that is no regular file."""
    for name, command in commands():
        files = {param.name for param in command.params if isinstance(param.type, click.Path) and param.name}
        tried = [
            command.make_parser(click.Context(command)).parse_args(row.split())[0]
            for row in hostile.ARGUMENTS[name]
            if files and row
        ]
        for param in files:
            given = (row.get(param) for row in tried)
            values = {str(value) for each in given for value in (each if isinstance(each, tuple) else (each,))}
            assert any(value in PATHS or value.startswith("missing") for value in values), (name, param, values)


INPUT = re.compile(
    r"(?:local|session)Storage\.getItem|\.files\b|location\.(?:hash|search)|document\.cookie|clipboard\.read"
    r'|<textarea|type="(?:file|number|text|search|url)"|contentEditable'
)


def test_every_input_of_the_page_has_a_test() -> None:
    web = Path(__file__).parents[2] / "web"
    found = Counter(
        f"{path.relative_to(web)} {source}"
        for path in (*web.glob("*.js"), *web.glob("*.html"), *web.glob("panels/*.*"))
        for source in INPUT.findall(path.read_text())
    )
    assert found == {source: len(tests) for source, tests in hostile.PAGE.items()}
    tests = "".join(path.read_text() for path in (web.parent / "tests" / "web").glob("test_page*.py"))
    assert not [name for names in hostile.PAGE.values() for name in names if f"def {name}(" not in tests]


def test_every_setting_has_a_row() -> None:
    assert config.effective().keys() == hostile.SETTINGS.keys()


def table_rows(table: dict[str, dict[str, str]]) -> list[Any]:
    return [
        pytest.param(name, text, words, id=f"{name} {text[:50]}".encode("unicode_escape").decode())
        for name, row in table.items()
        for text, words in row.items()
    ]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "arguments", "words"), table_rows(hostile.ARGUMENTS))
def test_arguments(command: str, arguments: str, words: str) -> None:
    refused([*command.split(), *arguments.split()], words)


@pytest.mark.usefixtures("here")
def test_an_unknown_command() -> None:
    refused(["frobnicate"], "No such command")


@pytest.mark.parametrize(("setting", "value", "words"), table_rows(hostile.SETTINGS))
def test_settings(here: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, words: str) -> None:
    if setting == "cache_dir":
        monkeypatch.delenv("WEBMM_CACHE_DIR")
    monkeypatch.delenv("WEBMM_" + setting.upper(), raising=False)
    own = config.Settings.__dataclass_fields__[setting].metadata["own"]  # ignored in a project's file
    (here / "user").mkdir(exist_ok=True)
    (here / ("user" if own else "") / "webmm.toml").write_text(f"{setting} = {value}")
    refused(["check" if setting == "naga" else "info"], words)


@pytest.mark.usefixtures("here")
def test_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBMM_CACHE_DIR", "~no such user/x")
    refused(["config"], "WEBMM_CACHE_DIR: cache_dir must start with the home directory of an existing user")
    monkeypatch.setenv("WEBMM_CACHE_DIR", "\x1b[31m")
    done = CliRunner().invoke(main, ["config"])
    assert (done.exit_code, "\x1b" in done.output) == (0, False)


@pytest.mark.parametrize(("header", "words"), hostile.HEADERS.items(), ids=lambda text: repr(text[:60]))
def test_headers_of_matrices(here: Path, header: str, words: str) -> None:
    for version, size in ((1, "<H"), (2, "<I")):
        text = header.encode()
        (here / "x.npy").write_bytes(
            b"\x93NUMPY" + bytes((version, 0)) + struct.pack(size, len(text)) + text + bytes(64)
        )
        refused(["run", "x.npy", "a.npy", "-o", "c.npy"], words)
        refused(["run", "x.npy", "x.npy", "-o", "c.npy"], words)
    assert not (here / "c.npy").exists()


@pytest.mark.parametrize(
    "data", [b"", b"\x93", b"\x93NUMPY", b"\x93NUMPY\1\0\xff\xff", b"\x80\4.", b"PK\5\6" + bytes(18)]
)
def test_files_that_are_no_matrices(here: Path, data: bytes) -> None:
    (here / "x.npy").write_bytes(data)
    refused(["run", "x.npy", "a.npy", "-o", "c.npy"], "x.npy is ")


@pytest.mark.parametrize(("text", "words"), hostile.RECORDS.items(), ids=lambda text: repr(text[:40]))
def test_records(here: Path, caplog: pytest.LogCaptureFixture, text: str, words: str) -> None:
    (here / "r.json").write_text(text)
    refused(["cache", "import", "r.json"], words)
    (here / "cache").mkdir(exist_ok=True)
    (here / "cache" / "tuned.json").write_text(text)
    assert tuned.load() == []
    assert words in caplog.text.replace("\\\\", "\\")
    assert (here / "cache" / "tuned.bad").read_text() == text


@pytest.mark.parametrize(
    "name", ["tuned.json", "selftest.json", "rates.json", "refit.json", "tuned.lock", "selftest.lock"]
)
def test_a_pipe_in_the_cache_does_not_block(here: Path, name: str) -> None:
    (here / "cache").mkdir()
    os.mkfifo(here / "cache" / name)
    done = CliRunner().invoke(main, ["explain", "8", "8", "8"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("text", hostile.VERDICTS, ids=lambda text: text[:60])
def test_verdicts(here: Path, text: str) -> None:
    (here / "cache").mkdir()
    driver = "some driver"
    (here / "cache" / "selftest.json").write_text(text.replace("DRIVER", driver))
    assert verdicts.verdicts(driver) == {}
    verdicts.keep_verdicts(driver, {"text": ""})
    assert verdicts.verdicts(driver) == {"text": ""}


def test_undecodable_file_names_are_escaped(webmm: Cli) -> None:
    done = webmm("cache", "export", "\udcff.json", PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0, done.stderr
    assert ".json: 0 tuned records" in done.stdout


def test_too_little_memory_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: object) -> None:
        raise MemoryError("Unable to allocate 3.64 TiB")

    monkeypatch.setattr("webmm.report.multiply_files", allocate)
    refused(["run", "a.npy", "a.npy", "-o", "c.npy"], "not enough memory: Unable to allocate")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    ones = np.ones((4, 4), np.float32)
    np.save(tmp_path / "a.npy", ones)
    np.save(tmp_path / "long.npy", np.ones((5, 4), np.float32))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2), np.float32))
    np.save(tmp_path / "whole.npy", ones.astype(np.int64))
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
    ("whole.npy", "whole.npy"): "cast to",
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
    """`ulimit` limits files to a kilobyte, so that writing fails in the middle, as on a full disk."""
    np.save(files / "large.npy", np.ones((64, 64), np.float32))
    command = f"ulimit -f 1; exec {sys.executable} -m webmm run large.npy large.npy -o c.npy"
    done = subprocess.run(["sh", "-c", command], cwd=files, capture_output=True, text=True, timeout=300, check=False)
    fails(done, "cannot write c.npy")
    assert not [path.name for path in files.iterdir() if "c.npy" in path.name]
