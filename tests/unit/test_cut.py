"""Pieces of any call: within the limits, they cover every element once; and cutting has one word."""

from __future__ import annotations

import ast
import itertools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import webmm
from webmm.cut.arrays import Extents, array_pieces
from webmm.cut.files import file_pieces, result_shape
from webmm.cut.pieces import ALIGNED, GRAINS, Limits, elements, fitted, lengths_of
from webmm.problems.base import ALIGNMENT

PACKAGE = Path(webmm.__file__).parent
ROOMS = ("cut", "calls", "dask", "report")  # kernels have tiles, and parts of k
WORDS = re.compile(r"(?:^|_)(?:part|tile|strip|panel|share|chunk|slab|step)s?(?:_|$)", re.IGNORECASE)
# Lists of arrays, one on each of several devices, are panels in public: docs/scaling.md.
PUBLIC = {"is_panels", "panels", "_check_panels"}

# The letters of the operands and the result of each op, with the axes that may be cut and those cut to single elements.
OPS = {
    "elementwise": (["i", "i"], "i", ""),
    "expression": (["ij", "j", "i", "ij"], "ij", ""),
    "reduce": (["ikj", "ij"], "ij", ""),
    "softmax": (["ikj", "ikj"], "ij", ""),
    "qmatmul": (["Amk", "kn", "mt", "nt", "Amn"], "mn", "A"),
    "qmatmul_weights": (["mk", "nw", "nb", "nb", "mn"], "mn", ""),
    "matmul": (["Amk", "kn", "n", "Amn"], "Amn", ""),
    "cumsum": (["ij", "ij"], "i", ""),
}


def drawn(rng: np.random.Generator, op: str) -> tuple[list[Extents], str, str, Limits, float]:
    """Return the extents of a call of random lengths, its axes, random limits, and its operations."""
    axes, along, each = OPS[op]
    lengths = {letter: int(2 ** rng.uniform(0, 2 if letter in "At" else 9)) for letter in set("".join(axes))}
    arrays = [
        Extents(
            each, tuple(lengths[letter] for letter in each), int(rng.choice([1, 2, 4, 8])), bool(rng.random() < 0.5)
        )
        for each in axes
    ]
    largest = max(one.nbytes({}) for one in arrays)
    binding = int(largest * 2 ** rng.uniform(-5, 1)) + 4 * ALIGNMENT
    memory = int(sum(one.nbytes({}) for one in arrays) * 2 ** rng.uniform(-5, 2)) + 1
    return arrays, along, each, Limits(binding, 1.0, memory), 2 ** rng.uniform(-3, 6)


@pytest.mark.parametrize("op", OPS)
def test_pieces_are_within_limits_and_cover_each_element_once(op: str) -> None:
    rng = np.random.default_rng(3)
    cut, refused = 0, 0
    for _ in range(250):
        arrays, along, each, limits, flops = drawn(rng, op)
        try:
            pieces = list(array_pieces(arrays, along, each, limits, flops))
        except webmm.UnsupportedError:
            refused += 1
            continue
        *_, result = arrays
        covered = np.zeros(result.shape, np.int8)
        for piece in pieces:
            covered[elements(piece, result.axes)] += 1
        assert (covered == 1).all()
        cut += len(pieces) > 1
        known = {letter: length for one in arrays for letter, length in zip(one.axes, one.shape, strict=True)}
        lengths = lengths_of(pieces[0]) or {letter: known[letter] for letter in each + along}  # of the longest piece
        assert all(one.nbytes(lengths) <= limits.binding for one in arrays)
        assert all(lengths[letter] == 1 for letter in each)
        moved = [one for one in arrays if one.moved]
        held = (2 if len(pieces) > 1 else 1) * sum(one.nbytes(lengths) for one in moved)
        smallest = not any(lengths.get(letter, 1) > 1 for one in moved for letter in one.axes)
        windowed = any(one.nbytes(lengths) + 2 * ALIGNMENT > limits.binding for one in arrays)  # and cannot be cut
        assert held <= limits.memory or smallest or windowed
    assert cut > 50, "few calls were cut"
    assert cut + refused < 250


def test_lengths_are_halved_at_grains() -> None:
    for grains, length in itertools.product((GRAINS, ALIGNED), range(2, 3000, 7)):
        lengths: list[int] = []

        def demand(of: dict[str, int], lengths: list[int] = lengths) -> str:
            lengths.append(of["x"])
            return "x" if of["x"] > 1 else ""

        fitted({"x": length}, demand, grains)
        assert lengths[-1] == 1
        for before, after in itertools.pairwise(lengths):
            assert before / 2 <= after < before
            grain = next(grain for grain in (*grains, 1) if before > 2 * grain or grain == 1)
            assert after % grain == 0
            assert after < math.ceil(before / 2) + grain


@pytest.mark.parametrize(("op", "shapes"), [("gemm", [(90, 70), (70, 80)]), ("softmax", [(90, 70)])])
def test_pieces_of_files_cover_the_result(op: str, shapes: list[tuple[int, int]]) -> None:
    operands = [SimpleNamespace(shape=shape, dtype="float32", fortran=True) for shape in shapes]
    for axis in (0, 1):
        seen, covered = np.zeros(result_shape(op, axis, operands), int), 0
        for piece in file_pieces(op, axis, operands, Limits(2**20, math.inf, 20_000)):
            rows, columns = piece.reads[0][0], piece.reads[-1][1]
            assert (rows[0], columns[0]) == (piece.row, piece.column)
            seen[slice(*rows), slice(*columns)] += piece.last
            covered += piece.partial
        assert (seen == 1).all()
        assert (covered > 0) == (op == "gemm")


def names() -> list[tuple[str, str]]:
    """Return the modules that may cut something, with their own names and those of their functions and classes."""
    found = []
    for path in sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        found.append((module, path.stem))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append((module, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name)))
    return found


def test_cutting_has_one_word() -> None:
    assert [f"{module}: {name}" for module, name in names() if WORDS.search(name) and name not in PUBLIC] == []


@pytest.mark.parametrize("name", ["StreamStep", "_tile_shape", "tiles", "Share", "strip_of", "_part_length", "Panel"])
def test_other_words_are_found(name: str) -> None:
    assert WORDS.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))
