"""Products of Dask arrays in this process: any chunks and epilogue, lazy; device arrays as chunks; files."""

import os
import resource
import shutil
import stat
import subprocess
import sys
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
import zarr
from dask.base import tokenize

import webmm
import webmm.dask
from webmm import Array, Device, choose
from webmm.cut.devices import Types
from webmm.dask import files, ops, products, workers
from webmm.errors import ConfigError, ProblemError
from webmm.kernels.gemm.naive import Naive
from webmm.problems.gemm import Gemm
from webmm.wgsl.epilogues import ACTIVATIONS

RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def quick(device, monkeypatch):
    """Use the tests' device, and for products the kernel that compiles fastest."""
    chosen = choose.choose
    plain = lambda p, *rest, **more: Naive() if isinstance(p, Gemm) else chosen(p, *rest, **more)  # noqa: E731
    monkeypatch.setattr(choose, "choose", plain)
    monkeypatch.setattr(products, "default_device", lambda: device)


def whole(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


A, B = whole(65, 83), whole(83, 47)
CHUNKS = [((65, 83), (83, 47)), ((10, 7), (9, 11)), (((1, 60, 4), (40, 43)), ((80, 3), (46, 1)))]


@pytest.mark.parametrize(("left", "right"), CHUNKS)
@pytest.mark.parametrize("tile", [None, (65, 47, 83), (20, 47, 83), (33, 16, 10), (64, 64, 40)])
def test_any_chunks_and_tiles(left, right, tile):
    c = webmm.dask.matmul(da.from_array(A, left), da.from_array(B, right), tile=tile)
    assert c.shape == (65, 47)
    assert c.dtype == np.float32
    assert tile is None or c.chunksize == (min(tile[0], 65), min(tile[1], 47))
    np.testing.assert_array_equal(c.compute(), A @ B)


def test_products_are_lazy(monkeypatch):
    monkeypatch.setattr(products, "multiply", lambda *_, **__: 1 / 0)
    c = webmm.dask.matmul(da.from_array(A, (20, 20)), da.from_array(B, (20, 20)), tile=(30, 30, 30))
    with pytest.raises(ZeroDivisionError):
        c.compute()


@pytest.mark.parametrize("tile", [(20, 30, 83), (20, 30, 30)], ids=["whole k", "pieces of k"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("bias", "activation"), [("column", "gelu"), ("row", "relu"), (None, "silu"), ("column", None)]
)
def test_epilogues(tile, dtype, bias, activation):
    a, b, residual = ((RNG.random(shape) - 0.5).astype(dtype) for shape in ((65, 83), (83, 47), (65, 47)))
    added = None if bias is None else (RNG.random((65, 1) if bias == "row" else (47,)) - 0.5).astype(dtype)
    more = {"bias": added, "activation": activation, "alpha": 0.5, "out_dtype": "float32"}
    x, y, r = da.from_array(a, (40, 17)), da.from_array(b, (30, 40)), da.from_array(residual.astype(np.float32), 16)
    got = webmm.dask.matmul(x, y, residual=r, tile=tile, **more).compute()
    value = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + (0 if added is None else added)
    value = ACTIVATIONS[activation].reference(value) if activation else value
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, value + residual, rtol=1e-5, atol=1e-4)


def test_dtypes_are_kept():
    for dtype in (np.float16, np.float64):
        a, b = A.astype(dtype), B.astype(dtype)
        got = webmm.dask.matmul(da.from_array(a, 30), da.from_array(b, 30), tile=(40, 40, 40)).compute()
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, a @ b)


def test_the_memory_limit_is_passed_to_the_device(device, monkeypatch):
    seen, multiply = [], products.multiply
    monkeypatch.setattr(
        products,
        "multiply",
        lambda *args, device, **more: (seen.append(device.memory), multiply(*args, device=device, **more))[1],
    )
    before = device.memory
    c = webmm.dask.matmul(da.from_array(A, 30), da.from_array(B, 30), memory=2**13)
    np.testing.assert_array_equal(c.compute(), A @ B)
    assert set(seen) == {2**13}
    assert device.memory == before


def test_pieces_follow_the_division():
    rows, columns, inner = products.task_sizes((60_000, 60_000, 60_000), Types(), 4)
    assert rows * columns * 4 + 2 * (rows + columns) * inner * 4 <= products.ROOM
    assert (60_000 / rows) * (60_000 / columns) >= 4 * products.TASKS
    assert products.task_sizes((64, 64, 10**7), Types(), 4)[2] < 10**7, "few pieces are split along k"


def test_device_arrays_as_chunks(device):
    x, y = (da.from_array(device.array(host), chunks=32, asarray=False) for host in (A, B))
    assert isinstance(x._meta, Array)
    cases = [
        (x @ y, A @ B),
        (da.tensordot(x, y, axes=1), A @ B),
        (webmm.dask.matmul(x, y), A @ B),
        (webmm.dask.matmul(x, y, tile=(32, 32, 32), bias=B[0], activation="relu"), np.maximum(A @ B + B[0], 0)),
        (da.exp(x * 0.1).sum(axis=0), np.exp(A * np.float32(0.1)).sum(0)),
        (x.mean(axis=1), A.mean(1)),
        (da.concatenate([x, x], axis=1).max(axis=0), np.concatenate([A, A], 1).max(0)),
        (da.where(x > 0, x, -x)[::2, 5:], np.abs(A)[::2, 5:]),
        (x.T[[1, 50, 3]], A.T[[1, 50, 3]]),
        ((x - x.mean(axis=0)) / (da.sqrt(abs(x)) + 1), (A - A.mean(0)) / (np.sqrt(np.abs(A)) + 1)),
    ]
    for lazy, expected in cases:
        got = lazy.compute()
        assert isinstance(got, Array), lazy
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_tokens_depend_on_the_values(device):
    assert tokenize(device.array(A)) == tokenize(device.array(A))
    assert tokenize(device.array(A)) != tokenize(device.array(A + 1))


def test_importing_webmm_does_not_import_dask():
    code = "import sys, webmm; print({m.partition('.')[0] for m in sys.modules} & {'dask', 'distributed', 'zarr'})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_without_dask_the_error_says_what_to_install():
    code = "import sys; sys.modules['dask'] = None; import webmm.dask"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'webmm[dask]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("x", "y", "more", "words"),
    [
        (A, B[:9], {}, "the inner sizes 83 and 9 differ"),
        (A, B.astype(np.float16), {}, r"x is float32, y is float16; cast one of them: x\.astype"),
        (A[0], B, {}, "x and y must be matrices"),
        (A.astype(np.int64), B.astype(np.int64), {}, "int64 is not supported"),
        (A > 0, B > 0, {}, "does not support"),
        (A[:, :0], B[:0], {}, "x has no columns; a product needs"),
        (A, B, {"bias": A[0]}, "bias has shape"),
        (A, B, {"residual": A}, "residual has shape"),
        (A, B, {"activation": "step"}, "unknown activation"),
        (A, B, {"tile": (4, 4)}, "tile must be three whole numbers"),
    ],
)
def test_bad_input(x, y, more, words):
    with pytest.raises(ProblemError, match=words):
        webmm.dask.matmul(da.from_array(x), da.from_array(y), **more)


def test_chunks_of_unknown_sizes():
    x = da.from_array(A, 20)
    with pytest.raises(ProblemError, match="call compute_chunk_sizes"):
        webmm.dask.matmul(x[x[:, 0] > 0], da.from_array(B))


# Files


@pytest.fixture
def inputs(tmp_path):
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    for name, host in (("a", A), ("b", B)):
        zarr.create_array(store=str(tmp_path / f"{name}.zarr"), shape=host.shape, chunks=(20, 30), dtype="float32")[
            :
        ] = host
    return tmp_path


def product(inputs, a="a.npy", b="b.npy", c="c.npy", **more):
    return webmm.dask.multiply_files(inputs / a, inputs / b, inputs / c, **more)


def read(path):
    return np.load(path) if path.suffix == ".npy" else zarr.open_array(str(path), mode="r")[:]


@pytest.mark.parametrize("kinds", ["nnn", "zzz", "nzn", "nnz"])
@pytest.mark.parametrize("tile", [None, (20, 30)])
def test_files(inputs, device, kinds, tile, monkeypatch):
    monkeypatch.setattr(ops, "READ", 2**13)
    names = [f"{name}.{'npy' if kind == 'n' else 'zarr'}" for name, kind in zip("abc", kinds, strict=True)]
    calls = []
    c = product(inputs, *names, device=device, tile=tile, memory=2**14, progress=lambda *step: calls.append(step))
    np.testing.assert_array_equal(read(c), A @ B)
    assert calls[-1][0] == calls[-1][1] == (8 if tile else 1)
    assert not [path.name for path in inputs.iterdir() if ".part" in path.name]


@pytest.mark.parametrize("c", ["c.npy", "c.zarr"])
def test_an_interrupted_product_is_resumed(inputs, device, monkeypatch, c):
    computed, compute = [], files.compute

    def stopped(job, corner, of):
        if len(computed) == 3:
            raise KeyboardInterrupt
        computed.append(corner)
        return compute(job, corner, of)

    monkeypatch.setattr(files, "compute", stopped)
    with pytest.raises(KeyboardInterrupt):
        product(inputs, c=c, tile=(20, 30), device=device)
    assert not (inputs / c).exists()
    listing = inputs / f"{c}.part.done"
    assert len(listing.read_text().splitlines()) == 4
    listing.write_text(listing.read_text() + "4")  # cut short while it was written
    monkeypatch.setattr(files, "compute", lambda *args: (computed.append(args[1]), compute(*args))[1])
    np.testing.assert_array_equal(read(product(inputs, c=c, tile=(20, 30), device=device)), A @ B)
    assert len(computed) == len(set(computed)) == 8, "a piece was computed twice, or never"


def test_a_product_of_changed_files_starts_again(inputs, device):
    with pytest.raises(ZeroDivisionError):
        product(inputs, tile=(20, 30), device=device, progress=lambda done, total: 1 / (done - 3))
    np.save(inputs / "a.npy", A + 1)
    np.testing.assert_array_equal(read(product(inputs, tile=(20, 30), device=device)), (A + 1) @ B)


def test_bad_files(inputs, device):
    (inputs / "c.npy").touch()
    with pytest.raises(ConfigError, match=r"c\.npy exists; --force overwrites it"):
        product(inputs, device=device)
    np.testing.assert_array_equal(read(product(inputs, device=device, force=True)), A @ B)
    zarr.create_array(store=str(inputs / "int.zarr"), shape=(83, 4), chunks=(83, 4), dtype="int32")
    with pytest.raises(ProblemError, match=r"int\.zarr holds int32; cast to float32 or float16"):
        product(inputs, b="int.zarr", c="d.npy")
    zarr.create_array(store=str(inputs / "f64.zarr"), shape=(83, 4), chunks=(83, 4), dtype="float64")
    with pytest.raises(ProblemError, match=r"is float32, .* is float64; cast one"):
        product(inputs, b="f64.zarr", c="d.npy")
    zarr.create_array(store=str(inputs / "line.zarr"), shape=(83,), chunks=(83,), dtype="float32")
    with pytest.raises(ProblemError, match=r"has shape \(83,\); webmm reads matrices"):
        product(inputs, b="line.zarr", c="d.npy")
    with pytest.raises(ProblemError, match=r"cannot read .*none\.zarr as a Zarr array"):
        product(inputs, b="none.zarr", c="d.npy")
    with pytest.raises(ProblemError, match=r"has 83 columns, .* has 65 rows"):
        product(inputs, b="a.zarr", c="d.npy")
    with pytest.raises(ConfigError, match=r"the output must be a \.npy or \.zarr path"):
        product(inputs, c="d.txt")
    with pytest.raises(ConfigError, match="there is no folder"):
        product(inputs, c="nowhere/d.npy")


def test_more_workers_than_adapters(device, monkeypatch):
    with pytest.raises(ConfigError, match="3 workers for 1 adapters; each worker needs its own"):
        workers.cluster([device.info.index], workers=3)


def snapshot(folder):
    """Return what is in a folder, without following links: kinds, contents and targets."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path) if stat.S_ISLNK(mode) else path.read_bytes() if stat.S_ISREG(mode) else b""
        found[path.relative_to(folder).as_posix()] = stat.S_IFMT(mode), content
    return found


@pytest.fixture
def refused(inputs, device):
    """Return a function that expects a product to be refused, and every file to stay as it was."""

    def check(words, **more):
        before = snapshot(inputs)
        with pytest.raises(ConfigError, match=words) as raised:
            product(inputs, device=device, tile=(20, 30), **more)
        assert "\n" not in str(raised.value)
        assert snapshot(inputs) == before

    return check


def interrupted(inputs, device, c="c.npy", count=3):
    """Compute some pieces of the product."""
    with pytest.raises(ZeroDivisionError):
        product(inputs, c=c, tile=(20, 30), device=device, progress=lambda done, total: 1 / (done - count))


def test_a_second_run_to_the_same_output_is_refused(inputs, device):
    (inputs / "link.npy").symlink_to("c.npy")
    said = []

    def again(done, total):
        for name in ("c.npy", "link.npy"):
            with pytest.raises(ConfigError, match=r"another run is writing .*; wait until it has ended") as raised:
                product(inputs, c=name, device=device)
            said.append(raised)

    product(inputs, tile=(65, 30), device=device, progress=again)
    assert len(said) == 4
    np.testing.assert_array_equal(read(inputs / "c.npy"), A @ B)
    assert not list(inputs.glob("*.part*"))


@pytest.mark.parametrize("c", ["c.npy", "c.zarr"])
def test_the_target_of_a_link_is_replaced(inputs, device, c):
    (inputs / "real").mkdir()
    product(inputs, c="real/target.zarr" if c == "c.zarr" else "real/target.npy", device=device)
    (inputs / c).symlink_to(next((inputs / "real").iterdir()))
    np.save(inputs / "a.npy", A + 1)
    product(inputs, c=c, device=device, force=True)
    assert (inputs / c).is_symlink()
    np.testing.assert_array_equal(read(inputs / c), (A + 1) @ B)
    assert len(list((inputs / "real").iterdir())) == 1


def folder_with(path, name="thesis.txt"):
    path.mkdir()
    (path / name).write_text("precious")


def group(path):
    zarr.create_group(store=str(path)).create_array("a", shape=(2, 2), dtype="float32")[:] = 1


UNTOUCHABLE = {
    "a pipe": (lambda here: os.mkfifo(here / "c.npy"), "c.npy", "is a pipe or a device"),
    "a link to a pipe": (
        lambda here: (os.mkfifo(here / "p"), (here / "c.npy").symlink_to("p")),
        "c.npy",
        "is a pipe or a device",
    ),
    "a folder": (lambda here: folder_with(here / "c.npy"), "c.npy", "Is a directory"),
    "no array": (lambda here: folder_with(here / "c.zarr"), "c.zarr", "is not a Zarr array"),
    "a group": (lambda here: group(here / "c.zarr"), "c.zarr", "is not a Zarr array"),
    "a file": (lambda here: (here / "c.zarr").write_text("precious"), "c.zarr", "is not a Zarr array"),
    "an array and more": (
        lambda here: (shutil.copytree(here / "a.zarr", here / "c.zarr"), (here / "c.zarr" / "thesis").touch()),
        "c.zarr",
        "or holds other files",
    ),
    "links to each other": (lambda here: (here / "c.npy").symlink_to("c.npy"), "c.npy", "levels of symbolic links"),
    "a matrix .part": (lambda here: np.save((here / "c.npy.part").open("wb"), A), "c.npy", "not from an unfinished"),
    "a folder .part": (lambda here: folder_with(here / "c.zarr.part"), "c.zarr", "not from an unfinished run"),
    "a link .part": (lambda here: (here / "c.npy.part").symlink_to("a.npy"), "c.npy", "overlap"),
    "a list": (lambda here: (here / "c.npy.part.done").write_text("0 0\n"), "c.npy", "is damaged, or not a list"),
    "a lock": (lambda here: (here / "c.npy.part.lock").write_text("precious"), "c.npy", "not from an unfinished run"),
    "an old array": (lambda here: folder_with(here / "c.zarr.part.old"), "c.zarr", "not from an unfinished run"),
}


@pytest.mark.parametrize("case", UNTOUCHABLE)
def test_what_is_not_an_output_of_webmm_is_not_replaced(inputs, refused, case):
    make, c, words = UNTOUCHABLE[case]
    make(inputs)
    refused(words, c=c, force=True)


OPERANDS = {
    "itself": (lambda here: None, "a.npy", "a.npy"),
    "its name with .part": (lambda here: (here / "a.npy").rename(here / "c.npy.part"), "c.npy.part", "c.npy"),
    "the list": (lambda here: (here / "a.npy").rename(here / "c.npy.part.done"), "c.npy.part.done", "c.npy"),
    "the lock": (lambda here: (here / "a.npy").rename(here / "c.npy.part.lock"), "c.npy.part.lock", "c.npy"),
    "a hard link": (lambda here: (here / "c.npy.part").hardlink_to(here / "a.npy"), "a.npy", "c.npy"),
    "a link": (lambda here: (here / "x.npy").symlink_to("a.npy"), "x.npy", "a.npy"),
    "inside the operand": (lambda here: None, "a.zarr", "a.zarr/c.npy"),
    "around the operand": (
        lambda here: (
            shutil.copytree(here / "a.zarr", here / "c.zarr"),
            (here / "a.npy").rename(here / "c.zarr/a.npy"),
        ),
        "c.zarr/a.npy",
        "c.zarr",
    ),
    "its chunks": (
        lambda here: (
            shutil.copytree(here / "a.zarr", here / "c.zarr"),
            shutil.rmtree(here / "a.zarr" / "c"),
            (here / "a.zarr" / "c").symlink_to(here / "c.zarr" / "c"),
        ),
        "a.zarr",
        "c.zarr",
    ),
}


@pytest.mark.parametrize("case", OPERANDS)
def test_an_operand_is_never_written_to(inputs, refused, case):
    make, a, c = OPERANDS[case]
    make(inputs)
    refused("the operand .* overlap", a=a, c=c, force=True)


@pytest.mark.parametrize("line", [b"a b\n", b"\xff\xfe 1\n", b"[0, 0]\n", b"[1, 0, 5]\n", b"[0, 0, 1e999]\n", b"{}\n"])
def test_a_damaged_list_is_refused(inputs, device, refused, line):
    interrupted(inputs, device)
    listing = inputs / "c.npy.part.done"
    listing.write_bytes(listing.read_bytes() + line)
    refused("is damaged, or not a list of pieces; to start again, move it")


def halves(path):
    with path.open("wb") as file:
        np.save(file, np.zeros((65, 47), np.float16))


def other(path):
    with path.open("wb") as file:
        np.save(file, np.zeros((65, 47), np.float32))


def copied(path):
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


@pytest.mark.parametrize("change", [halves, other, copied, lambda path: path.write_bytes(path.read_bytes() + b"x")])
def test_a_part_that_was_changed_is_refused(inputs, device, refused, change):
    interrupted(inputs, device)
    change(inputs / "c.npy.part")
    refused("not from an unfinished run")


def test_a_zarr_part_that_was_changed_is_refused(inputs, device, refused):
    interrupted(inputs, device, "c.zarr")
    (inputs / "c.zarr.part" / "c" / "0" / "0").unlink()
    refused("not from an unfinished run", c="c.zarr")


@pytest.mark.parametrize("c", ["c.npy", "c.zarr"])
def test_a_disk_that_fills_while_resuming_is_one_line(inputs, device, monkeypatch, c):
    interrupted(inputs, device, c, count=1)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=65 * 47 * 4 - 20 * 30 * 4 - 1))
        with pytest.raises(ConfigError, match=r"\.part: it needs 9,820 bytes, the disk has 9,819 left"):
            product(inputs, c=c, tile=(20, 30), device=device)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*\.part: File too large"):
            product(inputs, c=c, tile=(20, 30), device=device)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    np.testing.assert_array_equal(read(product(inputs, c=c, tile=(20, 30), device=device)), A @ B)


def test_operands_that_change_meanwhile_are_noticed(inputs, device):
    with pytest.raises(ProblemError, match=r"changed meanwhile; run this again"):
        product(inputs, device=device, progress=lambda *_: np.save(inputs / "a.npy", A + 1))
    np.testing.assert_array_equal(read(product(inputs, device=device)), (A + 1) @ B)


def test_an_output_that_appears_meanwhile_is_not_replaced(inputs, device):
    with pytest.raises(ConfigError, match="exists; --force overwrites it"):
        product(inputs, device=device, progress=lambda *_: (inputs / "c.npy").write_text("precious"))
    assert (inputs / "c.npy").read_text() == "precious"
    np.testing.assert_array_equal(read(product(inputs, device=device, force=True)), A @ B)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np, zarr
import webmm.dask
from webmm.dask import files, stored

folder, name = Path(sys.argv[1]).resolve(), sys.argv[2]
a, b = np.load(folder / "a.npy"), np.load(folder / "b.npy")
old, new, c = np.ones((4, 4), np.float32), a @ b, folder / name
files.compute = lambda job, corner, device: stored.store(job, corner, new[job.slices(corner)])

def multiply():
    webmm.dask.multiply_files(folder / "a.npy", folder / "b.npy", c, tile=(33, 47), force=True)

def read():
    return zarr.open_array(str(c), mode="r")[:] if name.endswith("zarr") else np.load(c)

def in_child(run):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        run()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)

def killed(moment):
    left = [moment]
    def count(event, args):
        if event.split(".")[0] in ("open", "os", "shutil", "tempfile") and event != "os.listdir":
            if str(folder) in str(args) and "/b.npy" not in str(args) and "/a.npy" not in str(args):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    multiply()

def put_old():
    if name.endswith("zarr"):
        zarr.create_array(store=str(c), shape=(4, 4), chunks=(4, 4), dtype="float32", overwrite=True)[:] = 1
    else:
        np.save(c, old)

def check(whole):
    aside = c.with_name(name + ".part.old")
    found = None if aside.exists() and not c.exists() else read()
    assert found is None or np.array_equal(found, new) or (not whole and np.array_equal(found, old)), found
    assert not whole or not [path for path in folder.iterdir() if path.name.startswith(name + ".part")]

moment = 0
while True:
    moment += int(sys.argv[3])
    assert in_child(put_old) == 0
    status = in_child(lambda: killed(moment))
    assert in_child(lambda: check(False)) == 0, moment
    assert in_child(multiply) == 0, moment
    assert in_child(lambda: check(True)) == 0, moment
    if status == 0:
        break
    assert status == signal.SIGKILL, status
print(moment)
"""


@pytest.mark.parametrize(("c", "step"), [("c.npy", 3), ("c.zarr", 7)])
def test_a_run_that_is_killed_anywhere_can_be_resumed(inputs, c, step):
    """C is the old or the new one – or aside, between two renames – and running again completes it."""
    command = [sys.executable, "-c", KILLED, str(inputs), c, str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_headers_identify_the_inputs(inputs):
    a, b = str(inputs / "a.npy"), str(inputs / "b.zarr")
    job = files.FileCall((a, b), "", False, (65, 47), "float32", (20, 30), None, "gemm")
    before = job.header(1, "")
    assert before["tile"] == [20, 30]
    zarr.open_array(b, mode="r+")[0, 0] = 7
    changed = job.header(1, "")
    assert changed != before
    times = (inputs / "a.npy").stat()
    np.save(inputs / "a.npy", A + 1)
    os.utime(inputs / "a.npy", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert job.header(1, "") != changed, "same size and time, other contents"


def test_a_device_serves_one_task_at_a_time(device):
    with products.own_device() as mine:
        assert isinstance(mine, Device)
        assert not products._task_lock.acquire(blocking=False)
