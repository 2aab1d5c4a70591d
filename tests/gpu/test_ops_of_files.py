"""Ops of matrices in files: piece by piece, resumed after interruptions, for every op and for a plugin's."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import webmm
from webmm import ConfigError, ProblemError, qmatmul
from webmm.cases import OPS
from webmm.cases.streaming import StreamingOp
from webmm.cli import main
from webmm.dask import apply_to_files, files
from webmm.dask.ops import READ, op_of_files

RNG = np.random.default_rng(5)
X = RNG.standard_normal((83, 47)).astype(np.float32)
CALLS = {
    "reduce:sum": lambda x, axis: x.sum(axis, keepdims=True),
    "reduce:argmax": lambda x, axis: x.argmax(axis, keepdims=True).astype(np.int32),
    "normalise:softmax": lambda x, axis: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
    "normalise:layer_norm": lambda x, axis: (x - x.mean(axis, keepdims=True)) / x.std(axis, keepdims=True),
    "elementwise:relu": lambda x, axis: np.maximum(x, 0),
}


SCALES = tuple(f"--set={each}" for each in ("scale_a=0.02", "zero_a=3", "scale_b=0.05", "zero_b=-7"))


class InterruptedRunError(Exception):
    """Raised by a caller's progress function."""


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", CALLS)
def test_every_op(device, path, op, axis):
    y, heard = path.with_name("y.npy"), []
    apply_to_files(op, path, y, axis=axis, device=device, tile=20, progress=lambda *told: heard.append(told))
    got, expected = np.load(y), CALLS[op](X.astype(np.float64), axis)
    assert got.shape == expected.shape
    assert got.dtype == (np.int32 if op.endswith("argmax") else np.float32)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
    assert heard[-1] == (len(heard),) * 2
    assert len(heard) == -(-X.shape[1 - axis] // 20)
    assert sorted(each.name for each in path.parent.iterdir()) == ["x.npy", "y.npy"]


def test_every_reduction_and_norm_is_one_of_the_calls(device):
    rows = (row for row in OPS.values() if isinstance(row, StreamingOp))
    for op in (f"{row.name}:{variant}" for row in rows for variant in row.variants):
        assert op_of_files(op).compute([X], device).shape in ((83, 1), X.shape)
    assert op_of_files("var").op.variant == "var"


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_an_interrupted_run_is_resumed(device, path, monkeypatch, suffix):
    y, computed, compute = path.with_name("y" + suffix), [], files.compute

    def recorded(job, corner, on):
        computed.append(corner)
        return compute(job, corner, on)

    def stop(done, total):
        if done == 2:
            raise InterruptedRunError

    monkeypatch.setattr(files, "compute", recorded)
    with pytest.raises(InterruptedRunError):
        apply_to_files("normalise:softmax", path, y, device=device, tile=20, progress=stop)
    assert not y.exists()
    assert computed == [(0, 0), (20, 0)]
    header, *pieces = (json.loads(line) for line in y.with_name(y.name + ".part.done").read_text().splitlines())
    assert (header["op"], header["axis"], len(pieces)) == ("normalise:softmax", 1, 2)
    apply_to_files("normalise:softmax", path, y, device=device, tile=20)
    assert computed[2:] == [(40, 0), (60, 0), (80, 0)]
    np.testing.assert_allclose(files.opened(y)[:], CALLS["normalise:softmax"](X, 1), rtol=1e-5)


@pytest.mark.parametrize("changed", ["op", "axis", "operand"])
def test_another_run_starts_again(device, path, monkeypatch, changed):
    y = path.with_name("y.npy")

    def stop(done, total):
        raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        apply_to_files("elementwise:relu", path, y, device=device, tile=83 // 2, progress=stop)
    if changed == "operand":
        np.save(path, -X)
    op, axis = "elementwise:silu" if changed == "op" else "elementwise:relu", 0 if changed == "axis" else 1
    apply_to_files(op, path, y, axis=axis, device=device, tile=83 // 2)
    x = (-X if changed == "operand" else X).astype(np.float64)
    np.testing.assert_allclose(np.load(y), x / (1 + np.exp(-x)) if changed == "op" else np.maximum(x, 0), rtol=1e-5)


def test_an_operand_that_changes_meanwhile_is_noticed(device, path):
    with pytest.raises(ProblemError, match=r"x\.npy changed.*; run this again"):
        apply_to_files(
            *("reduce:max", path, path.with_name("y.npy")), device=device, progress=lambda *_: np.save(path, X + 1)
        )
    assert not path.with_name("y.npy").exists()


def test_an_op_of_a_plugin(device, path, examples, load_plugin):
    load_plugin(examples / "cumsum.py")
    apply_to_files("cumsum", path, path.with_name("y.npy"), device=device, tile=20)
    np.testing.assert_allclose(np.load(path.with_name("y.npy")), X.cumsum(axis=1), rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="op cumsum is from a plugin, which does not reach workers"):
        apply_to_files("cumsum", path, path.with_name("z.npy"), workers=1)
    with pytest.raises(ProblemError, match="cumsum supports the last axis only"):
        apply_to_files("cumsum", path, path.with_name("z.npy"), axis=0, device=device)


def test_float64_and_other_types(device, path):
    np.save(path, X.astype(np.float64))
    apply_to_files("reduce:mean", path, path.with_name("y.npy"), axis=0, device=device, tile=20)
    np.testing.assert_allclose(
        np.load(path.with_name("y.npy")), X.astype(np.float64).mean(0, keepdims=True), rtol=1e-14
    )
    with pytest.raises(ProblemError, match="float64 is not supported by activations"):
        apply_to_files("gelu", path, path.with_name("z.npy"), device=device)
    with pytest.raises(ProblemError, match="a piece has at least one row or column, not 0"):
        apply_to_files("softmax", path, path.with_name("z.npy"), device=device, tile=0)
    np.save(path, X.astype(np.int64))
    with pytest.raises(ProblemError, match="holds int64; cast to float32"):
        apply_to_files("reduce:mean", path, path.with_name("z.npy"), device=device)


def test_a_call_whose_first_piece_is_refused_leaves_no_files(device, path):
    np.save(path, np.ones((5, 5), np.int8))
    scales = {"scale_a": 1.0, "zero_a": 1000, "scale_b": 1.0, "zero_b": 0}
    with pytest.raises(ProblemError, match="zero_a"):
        apply_to_files("quantized", [path, path], path.with_name("z.npy"), arguments=scales, device=device)
    assert [each.name for each in path.parent.iterdir()] == ["x.npy"]


def command(path, *arguments):
    code = [sys.executable, "-m", "webmm", "run", *arguments]
    return subprocess.run(code, cwd=path.parent, capture_output=True, text=True, check=False)


def test_the_command(path, examples):
    done = command(path, "--op", "softmax", "x.npy", "-o", "y.npy", "--axis", "0")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("y.npy: by this process in ")
    np.testing.assert_allclose(np.load(path.with_name("y.npy")), CALLS["normalise:softmax"](X, 0), rtol=1e-5)
    plugin = ("--plugin", str(examples / "cumsum.py"), "--op", "cumsum")
    assert command(path, *plugin, "x.npy", "-o", "z.npy").returncode == 0
    np.testing.assert_allclose(np.load(path.with_name("z.npy")), X.cumsum(axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("x.npy", "-o", "y.npy"), "a product takes two files, A and B"),
        (("--op", "reduce:sum", "x.npy", "x.npy", "-o", "y.npy"), "op reduce:sum takes one file, A"),
        (
            ("--op", "weights", "x.npy", "-o", "y.npy"),
            "op weights is not for files; choose from gemm, quantized, expres",
        ),
        (("--op", "quantized", "x.npy", "x.npy", "-o", "y.npy"), "op quantized needs the argument scale_a; it takes"),
        (
            ("--op", "quantized", "x.npy", "x.npy", "-o", "y.npy", *SCALES),
            "x.npy holds float32; cast to uint8 or int8, e.g. webmm.quantize(x)",
        ),
        (("--op", "softmax", "--set", "eps=1", "x.npy", "-o", "y.npy"), "has no argument eps; it takes none"),
        (("--expression", "x + y", "x.npy", "-o", "y.npy"), "y was not given; the operands are x"),
        (("--expression", "x + y", "x.npy", "x.npy", "--op", "softmax", "-o", "y.npy"), "leave out --op and --set"),
        (
            ("--expression", "x", *["x.npy"] * 5, "-o", "y.npy"),
            "an expression takes one to four files, x, y, z, w,",
        ),
        (("--op", "quantized", "x.npy", "x.npy", "-o", "y.npy", *SCALES, SCALES[0]), "--set names an argument twice"),
        (("x.npy", "x.npy", "--set", "alpha=2", "-o", "y.npy"), "a product of .npy files has none"),
        (("--op", "reduce:median", "x.npy", "-o", "y.npy"), "unknown variant 'median' of op reduce"),
        (("--op", "reduce:sum", "x.npy", "-o", "x.npy", "--force"), "x.npy"),
        (("--op", "reduce:sum", "--kernel", "tree", "x.npy", "-o", "y.npy"), "--kernel and --profile are for"),
        (("--op", "reduce:sum", "missing.npy", "-o", "y.npy"), "cannot read missing.npy"),
    ],
)
def test_refused_commands(path, arguments, words, monkeypatch):
    monkeypatch.chdir(path.parent)
    done = CliRunner().invoke(main, ["run", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [each.name for each in path.parent.iterdir()] == ["x.npy"]
    np.testing.assert_array_equal(np.load(path), X)


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_quantised_products(device, path, suffix):
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 256, (50, 70), np.uint8), rng.integers(-128, 128, (70, 45), np.int8)
    for name, x in (("a", a), ("b", b)):
        stored(path.with_name(name + suffix), x)
    arguments = {"scale_a": 0.02, "zero_a": 3, "scale_b": 0.05, "zero_b": -7, "scale_c": 0.5, "zero_c": 100}
    for kept in (arguments, dict(list(arguments.items())[:4])):
        c = path.with_name("c.npy")
        operands = [path.with_name(name + suffix) for name in ("a", "b")]
        apply_to_files("quantized", operands, c, arguments=kept, tile=(20, 30), device=device, force=True)
        expected = qmatmul(a, b, **kept, device=device)
        np.testing.assert_array_equal(np.load(c), expected)
        assert np.load(c).dtype == expected.dtype


def stored(path, x):
    if path.suffix == ".npy":
        np.save(path, x)
    else:
        zarr.create_array(store=str(path), data=x, chunks=(16, 16))


def test_expressions_broadcast(device, path):
    row = RNG.standard_normal((1, 47)).astype(np.float32)
    column = RNG.integers(-5, 5, (83, 1), np.int32)
    np.save(path.with_name("row.npy"), row)
    stored(path.with_name("column.zarr"), column)
    operands = [path, path.with_name("row.npy"), path.with_name("column.zarr")]
    y, heard = path.with_name("y.npy"), []
    call = {"expression": "maximum(x, y) * float32(z) + 1"}
    apply_to_files(
        "expression", operands, y, arguments=call, tile=(20, 30), device=device, progress=lambda *_: heard.append(1)
    )
    np.testing.assert_allclose(np.load(y), np.maximum(X, row) * column + 1, rtol=1e-5, atol=1e-6)
    assert len(heard) == 10
    compared = {"expression": "x > y"}
    apply_to_files("expression", operands[:2], y, arguments=compared, device=device, force=True)
    np.testing.assert_array_equal(np.load(y), row < X)
    np.save(path.with_name("row.npy"), row[:, :9])
    with pytest.raises(ProblemError, match="do not broadcast"):
        apply_to_files("expression", operands[:2], y, arguments=compared, device=device, force=True)


def test_pieces_count_what_they_write():
    column, row = np.broadcast_to(np.float32(0), (100_000, 1)), np.broadcast_to(np.float32(0), (1, 100_000))
    op = op_of_files("expression", arguments={"expression": "x * y"})
    rows, columns = op.lengths([column, row], (100_000, 100_000), 0)
    assert columns == 100_000
    assert rows * columns * 4 <= READ < 2 * rows * columns * 4
    wide = np.broadcast_to(np.float32(0), (1, 2**30))
    rows, columns = op.lengths([wide, wide], (1, 2**30), 0)
    assert rows == 1
    assert READ / 2 < 3 * 4 * columns <= READ


def test_quantised_pieces_read_all_of_k():
    a, b = np.broadcast_to(np.int8(0), (200_000, 131_000)), np.broadcast_to(np.int8(0), (131_000, 10_000))
    op = op_of_files("quantized", arguments={"scale_a": 1, "zero_a": 0, "scale_b": 1, "zero_b": 0})
    rows, columns = op.lengths([a, b], (200_000, 10_000), 0)
    assert READ / 4 < (rows + columns) * 131_000 + rows * columns * 4 <= READ


def test_the_axis_of_the_op_stays_whole(device, path):
    y = path.with_name("y.npy")
    for axis, tile in ((1, (20, 10)), (0, (20, 10))):
        apply_to_files("softmax", path, y, axis=axis, tile=tile, device=device, force=True)
        np.testing.assert_allclose(np.load(y), CALLS["normalise:softmax"](X.astype(np.float64), axis), rtol=1e-5)


@pytest.mark.parametrize("tile", [(3,), [3, 2, 1], 2.5, "ab", (3, -2), 0])
def test_wrong_tiles_are_refused(device, path, tile):
    np.save(path.with_name("t.npy"), X.T)
    with pytest.raises(ProblemError, match=r"tile must be a whole number, or two|a piece has at least one row or col"):
        apply_to_files("gemm", [path, path.with_name("t.npy")], path.with_name("y.npy"), tile=tile, device=device)
    assert not path.with_name("y.npy.part").exists()


def test_arguments_are_numbers_and_words(device, path):
    a, scale, zero = webmm.quantize(X)
    np.save(path.with_name("a.npy"), a)
    np.save(path.with_name("b.npy"), np.ascontiguousarray(a.T))
    arguments = {"scale_a": np.float32(scale), "zero_a": zero, "scale_b": scale, "zero_b": np.int64(zero)}
    operands, c = [path.with_name("a.npy"), path.with_name("b.npy")], path.with_name("c.npy")
    apply_to_files("quantized", operands, c, arguments=arguments | {"out_dtype": np.int32}, device=device)
    np.testing.assert_array_equal(np.load(c), (a.astype(int) - zero) @ (a.T.astype(int) - zero))
    with pytest.raises(ConfigError, match="scale_a must be a number or a word, not ndarray"):
        apply_to_files("quantized", operands, c, arguments=arguments | {"scale_a": np.ones(83)}, device=device)
    with pytest.raises(ConfigError, match="an expression takes one to four files"):
        apply_to_files("expression", [], c, arguments={"expression": "1"}, device=device, force=True)


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_a_task_of_an_interrupted_run_does_not_write_to_the_next(device, path, monkeypatch, suffix):
    """Such as one that a worker was computing."""
    y, jobs, compute = path.with_name("y" + suffix), [], files.compute

    def interrupted(job, corner, on):
        jobs.append(job)
        if not len(jobs) % 2:
            raise InterruptedRunError
        return compute(job, corner, on)

    monkeypatch.setattr(files, "compute", interrupted)
    for expression in ("x + 1", "x + 2"):
        with pytest.raises(InterruptedRunError):
            apply_to_files("expression", path, y, arguments={"expression": expression}, tile=40, device=device)
    with pytest.raises(ConfigError, match=r"\.part is that of another run by now"):
        compute(jobs[0], (0, 0), device)
    monkeypatch.setattr(files, "compute", compute)
    apply_to_files("expression", path, y, arguments={"expression": "x + 2"}, tile=40, device=device)
    np.testing.assert_array_equal(files.opened(y)[:], X + 2)


def test_a_changed_plugin_starts_again(device, path, examples, tmp_path, load_plugin):
    for name in ("cumsum.py", "one_by_one.wgsl"):
        (tmp_path / name).write_bytes((examples / name).read_bytes())
    load_plugin(tmp_path / "cumsum.py")
    assert {file.name for file in op_of_files("cumsum").sources} >= {"cumsum.py", "one_by_one.wgsl"}
    y, heard = path.with_name("y.npy"), []

    def stop(done, total):
        raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        apply_to_files("cumsum", path, y, device=device, tile=40, progress=stop)
    (tmp_path / "one_by_one.wgsl").write_text((tmp_path / "one_by_one.wgsl").read_text() + "// another\n")
    apply_to_files("cumsum", path, y, device=device, tile=40, progress=lambda *told: heard.append(told))
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_other_arguments_start_again(device, path):
    y = path.with_name("y.npy")

    def stop(done, total):
        raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        apply_to_files("expression", path, y, arguments={"expression": "x + 1"}, tile=40, device=device, progress=stop)
    apply_to_files("expression", path, y, arguments={"expression": "x + 2"}, tile=40, device=device)
    np.testing.assert_array_equal(np.load(y), X + 2)


def test_commands_with_arguments(path):
    a = np.arange(35 * 20, dtype=np.uint8).reshape(35, 20)
    np.save(path.with_name("a.npy"), a)
    np.save(path.with_name("b.npy"), a.reshape(20, 35).view(np.int8))
    done = command(path, "--op", "quantized", "a.npy", "b.npy", *SCALES, "-o", "c.npy")
    assert done.returncode == 0, done.stderr
    expected = (a.astype(float) - 3) @ (a.reshape(20, 35).view(np.int8).astype(float) + 7) * 0.02 * 0.05
    np.testing.assert_allclose(np.load(path.with_name("c.npy")), expected, rtol=1e-5, atol=1e-3)
    done = command(path, "--expression", "exp(x) * y", "x.npy", "x.npy", "-o", "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(path.with_name("y.npy")), np.exp(X) * X, rtol=1e-5, atol=1e-6)


def test_workers_compute_pieces(path):
    done = command(path, "--op", "reduce:max", "x.npy", "-o", "y.npy", "--workers", "1")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(path.with_name("y.npy")), X.max(1, keepdims=True))
