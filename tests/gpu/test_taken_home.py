"""Shaders in another program: what `webmm shader --json` prints is right in plain wgpu-py (`home.py`) at every size.

A general text is compiled once and run at all sizes, a specialised one at sizes within its `valid_for`.
"""

import dataclasses
import json

import emulation
import home
import numpy as np
import pytest
import test_byte_matrix_unit
import test_float64_matrix_unit
from click.testing import CliRunner

from tests.sampled import sampled
from webmm import cli
from webmm.cases import op_of
from webmm.kernels import STAGES
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.slices_unit import SlicesUnit
from webmm.kernels.sizes import sizes_of
from webmm.problems.gemm import gemm
from webmm.wgsl import export

TILES = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 1}
LANES = {"lanes": 4, "tm": 4, "tn": 4}
UNITS = {"bm": 16, "bn": 16, "bk": 8, "sm": 8, "sn": 16, "fm": 8, "fn": 8, "fk": 8, "lanes": 8}
SHORT = {"lanes": 32, "per_row": 8, "unroll": 3}
SMALL = {  # settings with which software adapters compile quickly
    **{("gemm", name): TILES for name in ("blocked", "pipelined")},
    ("gemm", "persistent"): {**TILES, "workgroups": 2},
    ("gemm", "split_k"): {**TILES, "slices": 1, "splits": 2},
    ("gemm", "gemv"): {"lanes": 8, "groups": 4},
    **{("gemm", name): LANES for name in ("subgroup", "cpu_lanes", "cpu_texture")},
    ("gemm", "matrix_unit"): {**UNITS, "bk": 16},
    ("gemm", "matrix_unit_high"): UNITS,
    ("quantized", "packed"): {**TILES, "splits": 2, "dot": "emulated"},
    ("quantized", "matrix_unit"): {**UNITS, "bm": 32, "bk": 64, "sm": 16, "fn": 16, "fk": 32},
    ("weights", "tiles"): {**TILES, "splits": 2},
    ("weights", "cpu_lanes"): LANES,
    ("weights", "matrix_unit"): UNITS,
    ("reduce", "row_tiles"): SHORT,
    ("normalise", "row_tiles"): SHORT,
    ("normalise", "rows"): {"lanes": 32, "unroll": 2, "splits": 2},
}
MATRICES = ("33x17x65", "100x52x36", "64", "1")
SIZES = {  # of an op, the specialised first
    **dict.fromkeys(("gemm", "weights"), MATRICES),
    "quantized": (*MATRICES[:3], "1x2x1"),  # with a scale per column: a product of one column has none
    **dict.fromkeys(("reduce", "normalise"), ("7x300", "3x33", "2x5x9@1", "64x64", "1")),
    "elementwise": ("1023", "1000", "64", "1"),
}
OTHERS = {"64": "128x64x192", "64x64": "32x128"}  # sizes for which a text for the key may be valid, too
EVERY = [(op, name) for op in SIZES for name in STAGES[op]]


@pytest.fixture(scope="module")
def plain():
    return home.Home()


def printed(op, name, *options):
    """Return the JSON that the command prints; the matrix units' dialect is the one that can be emulated."""
    cls = STAGES[op][name]
    if "naga" in cls.not_in:
        options = (*options, "--dialect", "tint")
    if cls().matrix_shape and op != "quantized" and name != "matrix_unit_high":
        options = (*options, "--dtype", "float16")
    settings = [part for key, value in SMALL.get((op, name), {}).items() for part in ("--set", f"{key}={value}")]
    variant = {"matrix_unit_high": "gemm:high"}.get(name, op)
    done = CliRunner().invoke(cli.main, ["shader", name, "--op", variant, "--json", *settings, *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def emulated(stage):
    """Return the stage without matrix units."""
    for each in stage["dispatches"]:
        text = each["wgsl"]
        if "subgroup_matrix_left<i8" in text or "subgroup_matrix_left<u8" in text:
            words = "a_slices" in text
            each["wgsl"] = (test_float64_matrix_unit.emulated_by_words if words else test_byte_matrix_unit.emulated)(
                text
            )
        elif "coop_mat" in text or "subgroup_matrix" in text:
            each["wgsl"] = emulation.emulated(text)
        else:
            each["wgsl"] = text.replace("enable subgroups;\n", "")
    return stage


def check(plain, stage, problem, kernel):
    """Run a stage on a trial of `problem` and compare the result with NumPy's."""
    needed = set(stage["features"]) & {"shader-f16", "shader-f64"} | ({"subgroup"} if kernel.subgroup else set())
    if not needed <= plain.features:
        pytest.skip(f"the adapter lacks {needed - plain.features}")
    trial = op_of(problem.op).trial(problem)
    uniform = kernel.params.of(problem)
    values = {field.name: getattr(uniform, field.name) for field in dataclasses.fields(uniform)}
    values["batch"] = problem.sizes[3]
    assert home.holds(stage["valid_for"], {**sizes_of(kernel.params, problem)})
    buffers = {extent.name: extent for extent in problem.buffers()}
    contents = {
        name: np.asarray(x).astype(buffers[name].dtype.numpy).tobytes()
        for name, x in trial.buffers.items()
        if name in buffers
    }
    ((name, data),) = plain.run(stage, values, contents).items()
    out = buffers[name]
    got = np.frombuffer(data, out.dtype.numpy, out.end)[out.start :].astype(np.float64)
    if problem.op == "gemm":
        c, got = problem.c, np.frombuffer(data, out.dtype.numpy, out.end).astype(np.float64)
        rows = np.arange(problem.m)[:, None] * c.ld + np.arange(problem.n)[None] + c.offset
        got = got[rows]
    expected = np.asarray(trial.expected, np.float64)
    wrong = ~(np.abs(got.reshape(expected.shape) - expected) <= trial.allowed)
    assert not wrong.any(), (
        f"{stage['kernel']} of {problem}: {wrong.sum()} of {wrong.size} wrong, first {np.argwhere(wrong)[0]}"
    )


def suited(kernel, problem, valid_for):
    return kernel.unsuited(problem) is None and home.holds(valid_for, sizes_of(kernel.params, problem))


def problem_of(op, name, size):
    cls = STAGES[op][name]
    known = op_of("gemm:high" if name == "matrix_unit_high" else op)
    half = cls().matrix_shape and op != "quantized" and name != "matrix_unit_high"
    return known.problem(known.parse(size), "float16" if half else known.dtypes[0].name)


@pytest.mark.parametrize(("op", "name"), sampled(EVERY, 5, 0), ids=str)
def test_the_general_text_is_right_at_every_size(plain, op, name):
    stage = emulated(printed(op, name))
    kernel = STAGES[op][name](**stage["config"])
    problems = [problem_of(op, name, size) for size in SIZES[op]]
    able = [problem for problem in problems if suited(kernel, problem, stage["valid_for"])]
    assert len(able) >= 2
    for problem in able:
        check(plain, stage, problem, kernel)


@pytest.mark.parametrize(("op", "name"), sampled(EVERY, 5, 3), ids=str)
def test_a_specialised_text_is_right_where_it_says(plain, op, name):
    size = {"gemm": "64", "quantized": "64", "weights": "64", "elementwise": "64"}.get(op, "64x64")
    stage = emulated(printed(op, name, "--size", size))
    kernel = STAGES[op][name](**stage["config"])
    for each in (size, OTHERS.get(size, "1000"), *SIZES[op]):
        problem = problem_of(op, name, each)
        if suited(kernel, problem, stage["valid_for"]):
            check(plain, stage, problem, kernel)


@pytest.mark.parametrize("name", ["naive", "vectorized", "pipelined", "gemv"])
def test_strides_and_offsets_may_be_odd(plain, name):
    stage = printed("gemm", name)
    m, n, k, rng = 33, 20, 17, np.random.default_rng(0)
    strides = {"lda": 19, "ldb": 21, "ldc": 23, "a_offset": 3, "b_offset": 5, "c_offset": 7}
    strides |= {"a_batch_stride": 641, "b_batch_stride": 371, "c_batch_stride": 763}
    values = {"m": m, "n": n, "k": k, **strides, "bias_offset": 0, "alpha": 1.0, "beta": 0.0, "batch": 2}
    contents, matrices = {}, {}
    for x, (rows, columns) in {"a": (m, k), "b": (k, n), "c": (m, n)}.items():
        offset, ld, batch = (values[part] for part in (f"{x}_offset", f"ld{x}", f"{x}_batch_stride"))
        data = np.full(offset + batch + (rows - 1) * ld + columns, np.nan, np.float32)
        at = offset + np.arange(2)[:, None, None] * batch + np.arange(rows)[:, None] * ld + np.arange(columns)
        data[at] = rng.integers(-8, 9, at.shape)
        contents[x], matrices[x] = data, at
    a, b = (contents[x][matrices[x]] for x in "ab")
    done = plain.run(stage, values, {x: data.tobytes() for x, data in contents.items()})
    got = np.frombuffer(done["c"], np.float32, contents["c"].size)
    expected = contents["c"].copy()
    expected[matrices["c"]] = a @ b
    assert np.array_equal(got, expected, equal_nan=True), "what lies between the rows is unchanged"


@pytest.mark.parametrize(
    "kernel", [Software(), Slices(), SlicesUnit(lanes=8, **test_float64_matrix_unit.SMALL)], ids=lambda k: k.name
)
def test_float64_by_integers(plain, kernel):
    dialect = "tint" if kernel.matrix_shape else "naga"
    like = gemm(1, 1, 1, dtype="float64")
    stage = emulated(json.loads(json.dumps(export.stage(kernel, like, dialect, general=True, sized=False))))
    for size in ((33, 17, 65), (1, 1, 1)):
        check(plain, stage, gemm(*size, dtype="float64"), kernel)


def test_a_wrong_size_shows(plain):
    """The check notices a text that is used outside its valid_for."""
    stage = printed("gemm", "shared", "--size", "64")
    problem = problem_of("gemm", "shared", "33x17x65")
    kernel = STAGES["gemm"]["shared"](**stage["config"])
    assert not suited(kernel, problem, stage["valid_for"])
    stage["valid_for"] = {}
    with pytest.raises(AssertionError, match="wrong"):
        check(plain, stage, problem, kernel)
