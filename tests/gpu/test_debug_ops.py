"""Debug shaders of every op: loaded values, partial sums and results are recorded, right and complete."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.sampled import sampled
from webmm.cases import OPS, op_of
from webmm.debug import inspect, inspect_each
from webmm.dtypes import BF16, BOOL, F64
from webmm.errors import ConfigError, ProblemError
from webmm.kernels import STAGES, configure
from webmm.kernels.attention.blocked import Blocked
from webmm.kernels.attention.cpu_lanes import CpuLanes as AttentionLanes
from webmm.kernels.attention.decode import Decode
from webmm.kernels.attention.online import Online
from webmm.kernels.attention.pipelined import Pipelined
from webmm.kernels.attention.three_calls import ThreeCalls
from webmm.kernels.elementwise.map import Map
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.normalise.row_tiles import RowTiles as NormalisedRowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.per_row import PerRow
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.serial import Serial
from webmm.kernels.reduce.tree import Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.kernels.reduce.vectorized import Vectorized
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure.diagnosis import debug_command
from webmm.problems.attention import dense_heads
from webmm.problems.gemm import gemm
from webmm.report.debug import pages
from webmm.wgsl import naga, tint
from webmm.wgsl.render import render, tags_of

SMALL = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 1}
WEIGHED = {"SCORE", "TOP", "WEIGHT", "SUM", "ACC"}
FACTORS, SHARED = {"LOADED_A", "LOADED_B", "ACC"}, {"SHARED_A", "SHARED_B"}

# op, kernel, size, recorded tags, elements: an inner one and the last one
CASES = [
    ("quantized", Unpacked(wy=4, wx=4), (9, 22, 19), FACTORS, [(2, 5), (8, 21)]),
    ("quantized", Packed(**SMALL), (37, 40, 70), FACTORS | SHARED, [(2, 5), (36, 39)]),
    ("quantized", Packed(**SMALL, splits=3), (37, 40, 150), FACTORS | SHARED, [(2, 5), (36, 39)]),
    ("weights", Vector(lanes=8, tm=2), (3, 9, 70), FACTORS, [(1, 2), (2, 8)]),
    ("weights", Tiles(**SMALL), (37, 40, 70), FACTORS | SHARED, [(2, 5), (36, 39)]),
    ("weights", Tiles(**SMALL, splits=4), (37, 40, 70), FACTORS | SHARED, [(2, 5), (36, 39)]),
    ("weights", CpuLanes(4, 4, 8), (9, 22, 70), FACTORS | {"SHARED_A"}, [(2, 5), (8, 21)]),
    ("reduce:sum", Serial(), (3, 40, 1), {"LOADED", "ACC"}, [(1, 0), (2, 0)]),
    ("reduce:argmax", Serial(), (3, 40, 1), {"LOADED", "ACC"}, [(1, 0), (2, 0)]),
    ("reduce:mean", PerRow(size=8), (3, 300, 5), {"LOADED", "ACC"}, [(7, 0), (14, 0)]),
    ("reduce:logsumexp", Vectorized(size=8), (3, 45, 1), {"LOADED", "ACC"}, [(0, 0), (2, 0)]),
    *(
        (f"reduce:{name}", Tree(lanes=32, unroll=2), size, {"LOADED", "ACC"}, [(1, 0), (2, 0)])
        for name in ("sum", "prod", "min", "argmin", "logsumexp")
        for size in ((3, 520, 1), (3, 333, 1))
    ),
    ("reduce:sum", TwoPass(lanes=32, unroll=1, splits=2), (2, 600, 1), {"LOADED", "ACC"}, [(1, 0)]),
    ("reduce:max", Columns(wx=8, wy=4, unroll=2), (2, 50, 41), {"LOADED", "ACC"}, [(40, 0), (81, 0)]),
    ("reduce:sum", ColumnsTwoPass(wx=8, wy=2, splits=2), (2, 50, 40), {"LOADED", "ACC"}, [(40, 0), (79, 0)]),
    ("normalise:softmax", Rows(lanes=32, unroll=2), (3, 520, 1), {"LOADED", "ACC", "RESULT"}, [(1, 7), (2, 519)]),
    (
        *("normalise:layer_norm", Rows(lanes=32, unroll=1), (3, 77, 1)),
        *({"LOADED", "ACC", "SQUARED", "SQUARES", "RESULT"}, [(1, 7), (2, 76)]),
    ),
    ("normalise:rms_norm", Rows(lanes=32, unroll=1), (3, 300, 1), {"SQUARED", "SQUARES", "RESULT"}, [(1, 7)]),
    ("normalise:softmax", Strips(wx=8, wy=4), (2, 30, 37), {"LOADED", "ACC", "RESULT"}, [(36, 7), (73, 29)]),
    ("normalise:softmax", Rows(32, 1, splits=2), (2, 300, 1), {"LOADED", "ACC", "RESULT"}, [(1, 7), (1, 299)]),
    ("normalise:softmax", Strips(8, 4, 2, 2), (1, 50, 37), {"LOADED", "ACC", "RESULT"}, [(36, 7), (20, 49)]),
    *(
        (
            "normalise:softmax",
            NormalisedRowTiles(64, 4, load=load),
            (33, 21, 1),
            {"LOADED", "ACC", "RESULT"},
            [(32, 20)],
        )
        for load in ("direct", "tile")
    ),
    (
        *("normalise:layer_norm", NormalisedRowTiles(64, 2), (33, 9, 1)),
        *({"LOADED", "ACC", "SQUARED", "SQUARES", "RESULT"}, [(1, 7), (32, 8)]),
    ),
    ("reduce:sum", RowTiles(64, 4), (33, 21, 1), {"LOADED", "ACC"}, [(1, 0), (32, 0)]),
    ("reduce:logsumexp", RowTiles(64, 4), (33, 21, 1), {"LOADED", "ACC"}, [(1, 0), (32, 0)]),
    ("attention:causal", Online(8, 8, 8), (9, 9, 7, 2), WEIGHED, [(0, 8, 0), (1, 8, 6)]),
    ("attention:causal", Blocked(16, 16, 8, 16, 4, 4), (21, 21, 14, 2), WEIGHED, [(0, 20, 5), (1, 16, 13)]),
    *(
        ("attention:causal", kernel, (45, 45, 14, 2), WEIGHED, [(0, 44, 5), (1, 40, 13)])
        for kernel in (
            Pipelined(16, 16, 8, 16, 4, 4, teams=2),
            Pipelined(16, 16, 8, 16, 2, 4, combine="shuffle", direct="none"),
        )
    ),
    *(
        ("attention:causal", kernel, (45, 45, 14, 2), WEIGHED, [(0, 44, 5), (1, query, 13)])
        for kernel, query in (
            (ThreeCalls(), 44),
            (AttentionLanes(tm=4, tk=4, tn=4), 41),
            (AttentionLanes(tm=1, tk=8, tn=4, load="buffer"), 43),
            (Decode(32, 32, 64, 8, 4, 4, 1), 40),
            (Decode(32, 32, 64, 8, 2, 2, 2, splits=4), 44),
        )
    ),
    ("elementwise:gelu", Map(size=8), (1, 64, 1), {"LOADED", "RESULT"}, [(0, 0), (63, 0)]),
    ("elementwise:relu", Map(size=8, unroll=2), (1, 63, 1), {"LOADED", "RESULT"}, [(5, 0), (62, 0)]),
]


def shown(x):
    return str(sorted(x) if isinstance(x, set) else x)


EACH = pytest.mark.parametrize(("op", "kernel", "size", "tags", "elements"), CASES, ids=shown)


def test_every_op_has_a_case():
    assert {op.partition(":")[0] for op, *_ in CASES} | {"gemm"} == set(OPS)


@pytest.mark.parametrize(("op", "kernel", "size", "tags", "elements"), sampled(CASES, 3), ids=shown)
def test_every_op_records_its_values(device, op, kernel, size, tags, elements):
    known = op_of(op)
    first, *others = (dtype for dtype in known.dtypes if dtype not in (BF16, F64))  # debug shaders record float32
    turn = [case[1] for case in CASES].index(kernel)
    dtype = first if turn % 2 or not others else others[turn // 2 % len(others)]
    problem = known.problem(size, dtype.name)
    for step in kernel.dispatches:
        naga.translate(render(step, problem, debug=True).wgsl, str(step))
    for found in inspect_each(device, kernel, problem, elements):
        assert found.right, found.notes()
        for step in found.steps[: found.reference.length]:
            missing = tags - set(step.values)
            assert missing <= {"TOP", "SUM", "ACC", "SQUARES"}, (step.k, missing)
        assert {tag for step in found.steps for tag in step.values} == tags
        json.dumps(found.to_json(), allow_nan=False)


# Edits of a template: op, kernel, file, old text, new text, tag of the first wrong value, its origin
EDITS = [
    ("reduce:sum", Serial(), "reduce/serial.wgsl", "loads.element()", "first", "LOADED", "x[1, 0]"),
    ("reduce:max", PerRow(size=8), "reduce/per_row.wgsl", "merge(acc0, ", "(", "ACC", ""),
    ("quantized", Unpacked(wy=4, wx=4), "quantized/unpacked.wgsl", "sums += a", "sums = a", "ACC", ""),
    ("weights", Vector(lanes=8, tm=2), "common/weights.wgsl", "<< BITS) - 1u", "<< BITS) - 2u", "LOADED_B", ""),
    ("normalise:softmax", Rows(lanes=32), "common/normalise.wgsl", "* scale", "", "RESULT", ""),
    ("attention:full", Online(8, 8), "attention/online.wgsl", "fma(sum, shrink, ", "(sum + ", "SUM", ""),
    (
        "attention:full",
        Decode(32, 32, 64, 8, 4),
        "attention/decode.wgsl",
        "sum{{ o }} *= shrink{{ o }};",
        "",
        "SUM",
        "",
    ),
    ("attention:full", ThreeCalls(), "attention/softmax.wgsl", "let weight = exp2(", "let weight = exp(", "WEIGHT", ""),
    (
        "attention:full",
        AttentionLanes(8, 4, 4, 4),
        "attention/cpu_lanes.wgsl",
        "{ j }} *= shrink;",
        "{ j }} *= 1.0;",
        "ACC",
        "",
    ),
    ("elementwise:gelu", Map(size=8), "epilogues/gelu.wgsl", "0.5 * tail", "0.6 * tail", "RESULT", ""),
]


@pytest.mark.parametrize(("op", "kernel", "file", "old", "new", "tag", "origin"), EDITS)
def test_the_first_wrong_value_of_a_broken_op_is_found(device, templates, op, kernel, file, old, new, tag, origin):
    text = (templates / file).read_text()
    assert old in text
    first = '{% import "common/matrix.wgsl" as matrix with context %}\n{% set first = matrix.element("x", "base") %}\n'
    (templates / file).write_text(first * (new == "first") + text.replace(old, new))
    known = op_of(op)
    size = (3, 70, 1) if ":" in op else (3, 9, 70)
    at = (1, 1, 0) if known.indices == 3 else (1,)
    found = inspect(device, kernel, known.problem(size, known.dtypes[0].name), *at)
    assert not found.right
    _, first, value = found.wrong[0]
    assert first == tag, found.notes()
    assert value.origin == origin


def test_steps_of_attention_have_a_command(device):
    problem = op_of("attention").problem((3, 9, 7, 2), "float32")
    command = debug_command(Online(), problem, device, (1, 2, 6))
    assert command.startswith("webmm debug online 2 3 9 7 --at 1,2,6 --op attention"), command
    masked = replace(problem, mask=dense_heads(2, 3, 9), mask_dtype=BOOL)
    with pytest.raises(ProblemError, match="without a mask or lengths"):
        inspect(device, Online(), masked, 1, 2, 6)


def test_a_custom_tag_has_its_own_column(device, templates):
    path = templates / "gemm/naive.wgsl"
    doubled = "        dbg(DOUBLED, row, col, k, 2.0 * sum);\n"
    path.write_text(path.read_text().replace("        dbg(ACC", doubled + "        dbg(ACC"))
    problem = gemm(3, 4, 5)
    assert tags_of(Naive(), problem) == ("LOADED_A", "LOADED_B", "DOUBLED", "ACC")
    found = inspect(device, Naive(), problem, 2, 1)
    assert found.right
    for step in found.steps:
        assert step.values["DOUBLED"].value == 2 * step.values["ACC"].value
    heads = [str(column.header) for column in found.table().columns]
    assert heads == ["k", "A loaded", "NumPy", "B loaded", "NumPy", "sum", "NumPy", "DOUBLED"]
    assert "dbg" not in render(Naive(), problem).wgsl


def test_plugins_can_be_debugged(device, examples, load_plugin):
    load_plugin(examples / "columns.py")
    found = inspect(device, configure("columns", {}), gemm(9, 70, 19), 8, 69)
    assert found.right
    assert all(set(step.values) >= FACTORS for step in found.steps)
    load_plugin(examples / "cumsum.py")
    found = inspect(device, STAGES["cumsum"]["one_by_one"](), op_of("cumsum").problem((3, 20, 1), "float32"), 2)
    x = op_of("cumsum").case(device, found.problem).x[2].astype(np.float64)
    np.testing.assert_allclose([step.values["ACC"].value for step in found.steps], x.cumsum(), rtol=1e-6)
    assert found.right
    assert found.stored.value < 1e-6
    assert inspect(device, found.kernel, found.problem, 2, 5).steps == found.steps  # a row's, whatever the column
    text = examples / "columns.wgsl"
    text.write_text(text.read_text().replace("dbg(", "// "))
    load_plugin(examples / "columns.py")


@pytest.mark.skipif(not tint.installed(), reason="Tint comes with wgpudawn")
@EACH
def test_debug_shaders_are_valid_for_tint(op, kernel, size, tags, elements):
    problem = op_of(op).problem(size, op_of(op).dtypes[0].name)
    for step in kernel.dispatches:
        tint.validate(render(step, problem, "tint", debug=True).wgsl, str(step))


@pytest.mark.parametrize(
    ("answers", "starts"),
    [(["", "", "", ""], [0, 8, 16, 24, 32]), (["33"], [0, 33]), (["q"], [0]), (["", "99"], [0, 8, 39])],
)
def test_stepping_follows_the_users_answers(device, answers, starts):
    found = inspect(device, Naive(), gemm(2, 2, 40), 0, 0)
    typed = iter([*answers, "q"])
    assert [steps.start for steps in pages(found, lambda: next(typed))] == starts


def test_stepping_in_a_terminal():
    command = [sys.executable, "-m", "webmm", "debug", "naive", "2", "2", "20", "--steps", "--adapter", "cpu"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, b"\n\n")
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0, shown
    assert shown.count("… ".encode()) == 2
    assert b" 19 " in shown


def test_float64_is_refused(device):
    with pytest.raises(ConfigError, match="debug shaders record float32"):
        inspect(device, Naive(), gemm(3, 4, 5, dtype="float64"), 0, 0)
