"""`files.js`: calls on .npy files in pieces, in node and in a browser, as NumPy computes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

RNG = np.random.default_rng(12)
SCRIPT = Path(__file__).with_name("node_npy_files.mjs")
# Each shader takes a driver a second or two: no product is uneven in all of m, n and k.
MATRICES: dict[str, NDArray[Any]] = {
    "a": RNG.random((190, 130), np.float32),
    "b": RNG.random((130, 160), np.float32),
    "even": RNG.random((192, 128), np.float32),
    "uneven": RNG.random((128, 170), np.float32),
    "half": (RNG.random((130, 170), np.float32) - 0.5).astype(np.float16),
    "square": RNG.random((170, 170), np.float32).astype(np.float16),
    "wide": RNG.random((40, 300)),
    "tall": RNG.random((300, 20)),
    "numbers": RNG.integers(-9, 9, (70, 90), np.int32),
}
MATRICES |= {f"{name}.T": np.asfortranarray(x) for name, x in MATRICES.items()}


def softmax(x: NDArray[Any], axis: int) -> NDArray[Any]:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis, keepdims=True))


def layer_norm(x: NDArray[Any], axis: int) -> NDArray[Any]:
    return np.asarray((x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5))


# Op, operands, options, NumPy's result; "memory" is little, so that all are cut, and gemm along k, too.
CASES: list[tuple[str, list[str], dict[str, Any], Callable[..., NDArray[Any]]]] = [
    ("gemm", ["a.T", "b.T"], {"memory": 60_000, "alpha": 2}, lambda a, b: 2 * a @ b),
    ("gemm", ["even.T", "uneven.T"], {"memory": 60_000}, lambda a, b: a @ b),
    ("gemm", ["a", "b"], {}, lambda a, b: a @ b),
    ("gemm", ["half.T", "square"], {"memory": 20_000}, lambda a, b: a @ b),
    ("gemm", ["wide", "tall"], {"memory": 50_000}, lambda a, b: a @ b),
    ("reduce:sum", ["wide"], {"memory": 9_000}, lambda x: x.sum(1, keepdims=True)),
    ("reduce:max", ["a.T"], {"memory": 9_000, "axis": 0}, lambda x: x.max(0, keepdims=True)),
    ("reduce:argmin", ["b"], {"memory": 9_000}, lambda x: x.argmin(1, keepdims=True)),
    ("softmax", ["b.T"], {"memory": 20_000}, lambda x: softmax(x, 1)),
    ("layer_norm", ["b"], {"memory": 20_000, "axis": 0}, lambda x: layer_norm(x, 0)),
    ("gelu", ["half"], {"memory": 20_000}, lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / 2**0.5))),
]
REFUSED: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("gemm", ["a", "a"], {}, "ProblemError: A has 130 columns, B has 190 rows; they must be equal"),
    ("gemm", ["a"], {}, "ProblemError: gemm takes a list of 2 NpyFile; open a file with await NpyFile.open(blob)"),
    ("gemm", ["a", "half"], {}, "ProblemError: A is float32, B is float16; cast one of them"),
    ("gemm", ["a", "b"], {"bias": [1]}, "ProblemError: unknown option"),
    ("reduce:median", ["a"], {}, "ProblemError: unknown op"),
    ("softmax", ["a"], {"memory": 0}, "ProblemError: memory is a number of bytes, at least 4096, not 0"),
    ("softmax", ["a"], {"memory": "1GB"}, "ProblemError: memory is a number of bytes, at least 4096, not 1GB"),
    ("softmax", ["a"], {"axis": 2}, "ProblemError: axis 2 is out of range for a matrix; choose 0 or 1"),
    ("softmax", ["numbers"], {}, "ProblemError: dtype int32 is not supported by normalisations"),
    (
        "gemm",
        ["cut", "b"],
        {},
        "ProblemError: the .npy file is cut short: 190×130 float32 needs 98928 bytes",
    ),
    ("gemm", ["big", "b"], {}, "ProblemError: the .npy file has dtype >f4; save it as one of f2,f4,f8,i1,u1,i4"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, x in MATRICES.items():
        np.save(tmp_path / f"{name}.npy", x)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    np.save(tmp_path / "big.npy", MATRICES["a"].astype(">f4"))
    return tmp_path


def test_every_op_in_node(page_folder: Path, folder: Path, node: Any, node_modules: Path) -> None:
    """Results are files in memory, or written by a function: of products, of rows, of columns."""
    written = (0, 5, 6)
    cases = [
        [op, [str(folder / f"{name}.npy") for name in names], options, str(folder / f"{i}.npy"), i in written]
        for i, (op, names, options, _) in enumerate([*CASES, *REFUSED])
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    page = [str(page_folder / name) for name in ("files.js", "webmm.js")]
    done = node(str(SCRIPT), *page, str(node_modules / "webgpu" / "index.js"), str(folder / "cases.json"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["left"] == 0, "arrays are left on the device"
    for i, (op, names, options, reference) in enumerate(CASES):
        outcome, operands = told["outcomes"][i], [MATRICES[name] for name in names]
        if "half" in names[0] and "shader-f16" not in told["features"]:
            assert outcome.startswith("UnsupportedError: "), outcome
            continue
        assert isinstance(outcome, int), (op, names, outcome)
        assert (outcome > 3) == ("memory" in options), (op, names, outcome)
        got, expected = np.load(folder / f"{i}.npy"), reference(*(x.astype(np.float64) for x in operands))
        assert got.dtype == ("int32" if "arg" in op else operands[0].dtype)
        assert got.shape == expected.shape
        tolerance = np.abs(expected).max() * {2: 1e-3, 4: 1e-5, 8: 1e-14}[got.itemsize]
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    for i, (op, names, _, words) in enumerate(REFUSED, len(CASES)):
        assert str(told["outcomes"][i]).startswith(words), (op, names, told["outcomes"][i])


def test_a_product_of_files_in_a_browser(page: Any) -> None:
    """A File that was chosen is read in pieces; the result's file is that of the whole product."""
    got = page.evaluate(
        """async () => {
        const { Device, Matrix, parseNpy, toNpy } = await import("./webmm.js");
        const { NpyFile, applyToFiles } = await import("./files.js");
        const gpu = await Device.open();
        const [a, b] = [Matrix.random(200, 150, 1), Matrix.random(150, 180, 2)];
        const files = await Promise.all([a, b].map((x) => NpyFile.open(new File([toNpy(x)], "x.npy"))));
        let pieces = 0;
        const { blob } = await applyToFiles(gpu, "gemm", files, { memory: 100_000, progress: () => pieces++ });
        const [c, whole] = [parseNpy(await blob.arrayBuffer()), await gpu.matmul(a, b)];
        return [pieces, Math.max(...c.floats().map((x, i) => Math.abs(x - whole.floats()[i])))];
        }"""
    )
    pieces, error = got
    assert pieces > 3
    assert error < 1e-5
