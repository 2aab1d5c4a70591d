"""Output files: replaced atomically or not at all; pipes and devices are written to, and links stay links."""

import os
import stat
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from webmm.errors import ConfigError
from webmm.files import check_output, save_matrix, write_atomically

MATRIX = np.arange(600_000, dtype=np.float32).reshape(600, 1000)  # more than a pipe holds


def put(path, data=b"new"):
    write_atomically(path, lambda file: file.write(data))


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "x"
    put(path, b"old")
    with path.open("rb") as before:
        put(path)
        assert before.read() == b"old", "overwritten in place"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "x"
    put(path, b"old")

    def fail(file):
        file.write(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match=r"^cannot write .*x: No space left on device$"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "none" / "x"):
        with pytest.raises(ConfigError, match=f"^cannot write {path}: "):
            put(path)


@pytest.mark.parametrize("exists", [True, False])
def test_the_target_of_a_link_is_replaced(tmp_path, exists):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "x", tmp_path / "link"
    if exists:
        put(target, b"old")
    link.symlink_to(Path("folder") / "x")
    put(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "folder") == ["x"]


def test_links_to_each_other_are_kept(tmp_path):
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with pytest.raises(ConfigError, match=r"^cannot write .*x: Too many levels of symbolic links$"):
        put(tmp_path / "x")
    assert os.readlink(tmp_path / "x") == "y"


def test_what_an_output_may_be(tmp_path):
    put(tmp_path / "x")
    (tmp_path / "link").symlink_to("x")
    assert check_output(tmp_path / "new", force=False) == tmp_path / "new"
    assert check_output(tmp_path / "link", force=True) == tmp_path / "x"
    for name, more, words in (
        ("link", {"force": False}, "exists; --force overwrites it"),
        ("none/x", {"force": True}, "there is no folder .*none"),
        (".", {"force": True}, "Is a directory"),
        ("link", {"force": True, "operands": [tmp_path / "x"]}, "and the operand .* overlap"),
        ("", {"force": True, "folders": True, "operands": [tmp_path / "x"]}, "overlap"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_output(tmp_path / name, **more)


def test_a_pipe_receives_the_bytes(tmp_path):
    save_matrix(tmp_path / "x.npy", MATRIX)
    expected, pipe = (tmp_path / "x.npy").read_bytes(), tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = open(os.open(pipe, os.O_RDWR), "rb")  # noqa: SIM115 (closing would hang if no bytes arrive)
    reading = threading.Thread(target=lambda: got.append(reader.read(len(expected))), daemon=True)
    reading.start()  # O_RDWR: without it, opening would wait for the writer
    save_matrix(pipe, MATRIX)
    reading.join(20)
    assert got == [expected]
    assert pipe.is_fifo()
    reader.close()


def test_a_pipe_without_a_reader_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"pipe: nobody reads from this pipe; start its reader first$"):
        put(pipe)
    assert pipe.is_fifo()


def test_an_unnamed_file_receives_the_bytes():
    with tempfile.TemporaryFile() as file:  # such as the standard output of tests
        put(Path(f"/proc/self/fd/{file.fileno()}"))
        assert file.read() == b"new"


@pytest.fixture(params=["null", "full"])
def node(request, tmp_path):
    """Return a device file: a copy if run as root, who could replace the system's."""
    node = Path("/dev") / request.param
    if os.geteuid() == 0:
        node = tmp_path / request.param
        try:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, {"null": 3, "full": 7}[request.param]))
            node.open("rb").close()
        except OSError as error:
            pytest.skip(f"no device can be made here: {error}")
    return node


def test_a_device_file_is_not_replaced(node):
    if node.name == "full":
        with pytest.raises(ConfigError, match=r"cannot write .*full: No space left on device"):
            save_matrix(node, MATRIX)
    else:
        save_matrix(node, MATRIX)
    assert stat.S_ISCHR(node.stat().st_mode)
