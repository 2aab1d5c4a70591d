"""Reductions without a GPU: problems, shaders, limits, and the choice of a stage."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from test_choose_fields import LIMITS

from webmm.cases import op_of
from webmm.choose import candidates
from webmm.dtypes import F16, F32, F64, I32
from webmm.errors import ConfigError, ProblemError
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Capabilities
from webmm.kernels.elementwise.map import Map
from webmm.kernels.normalise.row_tiles import RowTiles as NormalisedRowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.kernels.reduce.columns import Columns
from webmm.kernels.reduce.row_tiles import RowTiles
from webmm.kernels.reduce.tree import Alone, Tree
from webmm.kernels.reduce.two_pass import ColumnsTwoPass, TwoPass
from webmm.measure.verify import sum_bound
from webmm.problems.reduce import OPERATIONS, Reduction, Span, reduction
from webmm.wgsl import export
from webmm.wgsl.render import render

REDUCTIONS = list(STAGES["reduce"].values())
stages = pytest.mark.parametrize("cls", REDUCTIONS, ids=lambda cls: cls.name)
DEFINED = [
    (name, dtype.name)
    for name, operation in OPERATIONS.items()
    for dtype in operation.dtypes
    if dtype in (F32, I32, F64)
]


def length_for(cls):
    """Return a row length that takes several steps, or a short one for the stage for short rows."""
    return 31 if cls is RowTiles else 1001


def test_a_problem_knows_its_buffers_work_and_features():
    problem = reduction(5, 8, dtype="f16")
    x, y = problem.buffers()
    assert (x.end, y.end, y.written, problem.flops, problem.bytes) == (40, 5, True, 40, 90)
    assert problem.features == {"shader-f16"}
    assert reduction(5, 8, "argmax", dtype="f16").out_dtype == I32
    assert problem.sizes == (5, 8, 1, 1)
    window = Reduction("sum", 2, 3, 4, F32, F32, Span(20, 5, 1, offset=130), y_offset=70)
    x, y = window.buffers()
    assert (x.start, x.end, x.first) == (130, 130 + 20 + 10 + 3 + 1, 128)
    moved = window.within((x.first, y.first))
    assert (moved.x.offset, moved.y_offset) == (2, 6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 8), "outer must be at least 1"),
        ((8, 0), "length must be at least 1"),
        ((8, 8, "median"), "unknown reduction 'median'"),
    ],
)
def test_invalid_problems_are_refused(arguments, words):
    with pytest.raises(ProblemError, match=words):
        reduction(*arguments)
    with pytest.raises(ProblemError, match="cast to one of float32, float16, bfloat16"):
        reduction(8, 8, dtype="uint8")
    with pytest.raises(ProblemError, match=r"mean is of floats, not of int32; cast its operand"):
        reduction(8, 8, "mean", dtype="int32")
    with pytest.raises(ProblemError, match="argmax of float32 results in int32, not in float32"):
        reduction(8, 8, "argmax", out_dtype="float32")
    with pytest.raises(ProblemError, match="sum of int32 results in int32, not in float32"):
        reduction(8, 8, "sum", dtype="int32", out_dtype="float32")
    with pytest.raises(ProblemError, match="dtype int32 is not supported by reductions"):
        reduction(8, 8, "sum", out_dtype="int32")


@stages
@pytest.mark.parametrize("dialect", ["naga", "tint"])
def test_to_json_holds_everything_another_host_needs(cls, dialect):
    for step in (*cls().before, cls()):
        shader = render(step, reduction(33, length_for(cls), "logsumexp", dtype="f16"), dialect)
        data = shader.to_json()
        assert data["wgsl"] == shader.wgsl
        assert data["dialect"] == dialect
        assert "ceil(count / 65535)" in data["grid"]["rule"]
        assert len(data["bindings"]) == 3
        x, y, z = data["workgroup_size"]
        assert x * y * z == step.invocations == data["limits"]["maxComputeInvocationsPerWorkgroup"]
        subgroups = {"naga": "subgroup", "tint": "subgroups"}[dialect]
        assert set(data["features"]) == {"shader-f16"} | ({subgroups} if step.subgroup else set())
        assert ("enable subgroups;" in data["wgsl"]) == (dialect == "tint" and step.subgroup > 0)


@stages
def test_header_states_changes_and_requirements(cls):
    text = export.stage(cls(), reduction(5, 7), "naga")["wgsl"]
    assert text.startswith(f"// {cls.name}: y = sum ")
    header = text.split("\nconst")[0].split("\n\n")[0]
    for part in ("Storage:", "Shapes:", "Workgroup memory:"):
        assert part in header
    if cls is not REDUCTIONS[0]:
        before = re.search(r"Changed from (\w+):", header)
        assert before
        assert before[1] in [other.name for other in REDUCTIONS]


@stages
@pytest.mark.parametrize(("operation", "dtype"), DEFINED)
def test_workgroup_memory_is_at_most_what_the_kernel_declares(cls, operation, dtype):
    problem = reduction(33, length_for(cls), operation, dtype=dtype)
    words = 2  # of a part
    if dtype == "float64":
        words = 4 if operation == "logsumexp" else 2 + operation.startswith("arg")
    for step in (*cls().before, cls()):
        text = render(step, problem).wgsl
        constants = {name: int(value) for name, value in re.findall(r"const (\w+): u32 = (\d+)u;", text)}
        total = 0
        for kind in re.findall(r"var<workgroup> \w+: (.+);", text):
            element = re.search(r"array<(\w+(?:<f64>)?), ", kind)[1]
            scalars, vectors = dict.fromkeys(("f32", "u32", "i32"), 4), dict.fromkeys(("vec4f", "vec4u", "vec4i"), 16)
            doubles = {"f64": 8, "vec2u": 8, "vec4<f64>": 32}
            size = {**scalars, **vectors, **doubles, "Part": 4 * words, "Part4": 16 * words}[element]
            for length in re.findall(r", (\w+)>", kind):
                size *= constants.get(length) or int(length)
            total += size
        assert total <= step.workgroup_bytes_for(problem)
        assert (total > 0) == (step.workgroup_bytes > 0)


def test_vec4_loads_are_used_for_every_aligned_problem():
    def bound(kernel, problem):
        return "var<storage, read> x: array<vec4<" in render(kernel, problem).wgsl

    assert bound(Tree(), reduction(3, 64))
    assert not bound(Tree(), reduction(3, 65))
    assert not bound(Tree(), Reduction("sum", 3, 64, 1, F32, F32, Span(65, 1, 1)))
    assert not bound(Tree(), Reduction("sum", 3, 64, 1, F32, F32, Span(64, 1, 1, offset=2)))
    assert bound(
        Tree(), Reduction("sum", 1, 64, 1, F32, F32, Span(65, 1, 1))
    )  # with a single row, the row stride does not matter
    assert bound(Columns(), Reduction("sum", 3, 5, 64, F16, F16, Span.dense(5, 64)))
    assert not bound(Columns(), Reduction("sum", 3, 5, 63, F16, F16, Span.dense(5, 63)))
    assert not bound(Columns(), reduction(3, 64))


def test_guards_appear_only_if_needed():
    assert "params.outside)" not in render(Tree(64, 2), reduction(3, 4 * 64 * 2)).wgsl
    assert "params.outside)" in render(Tree(64, 2), reduction(3, 4 * 64 * 2 - 4)).wgsl
    assert "acc1" not in render(Tree(64, 2), reduction(3, 16 * 4 * 64 * 2)).wgsl
    assert "acc1" in render(Tree(64, 2), reduction(3, 16 * 4 * 64 * 2 + 1)).wgsl
    assert "acc1" not in render(Tree(64, 2), reduction(3, 2**20, "max")).wgsl


def test_invalid_settings_are_refused():
    with pytest.raises(ConfigError, match="power of two"):
        render(Tree(96), reduction(1, 1))
    with pytest.raises(ConfigError, match="power of two"):
        render(ColumnsTwoPass(wy=3), reduction(1, 1))
    with pytest.raises(ConfigError, match="combine must be one of tree, subgroup, alone"):
        render(TwoPass(combine="magic"), reduction(1, 1))
    with pytest.raises(ConfigError, match="choose from serial"):
        configure("naive", {}, "reduce")
    few = Capabilities("few", {}, frozenset(), subgroup_size=8)
    assert Alone(32).check(reduction(1, 1), few) == "needs subgroups of 32 lanes, few has 8"


# The choice


def device_of(kind, lanes):
    able = Capabilities("able", LIMITS, frozenset(), subgroup_size=lanes)
    return SimpleNamespace(capabilities=able, info=SimpleNamespace(kind=kind))


def chosen(shape, kind="discrete", lanes=32):
    outer, length, inner = shape
    problem = Reduction("sum", outer, length, inner, F32, F32, Span.dense(length, inner))
    return next(iter(candidates(problem, device_of(kind, lanes), "off")))


def test_the_choice_by_shape_and_device():
    for lanes in (0, 8, 32, 64):
        assert (chosen((8192, 32768, 1), lanes=lanes).combine == "tree") == (lanes == 0)
        assert isinstance(chosen((2**20, 64, 1), lanes=lanes), RowTiles)
        assert isinstance(chosen((99, 5, 1), lanes=lanes), RowTiles)
        long = chosen((1, 2**28, 1), lanes=lanes)
        assert isinstance(long, TwoPass)
        assert long.splits >= 64
        assert long.combine == ("subgroup" if lanes else "tree")
        assert isinstance(chosen((64, 256, 1024), lanes=lanes), Columns)
        assert chosen((52_860, 21, 65), lanes=lanes).splits == 1
    short = chosen((99, 384, 1), lanes=8)
    assert short.combine == "tree" or short.subgroup <= 8, "more lanes share a row than a subgroup has"
    for shape in ((512, 8192, 1), (1, 2**22, 1), (64, 256, 1024), (1, 2**18, 16)):
        for lanes in (0, 4, 8):
            kernel = chosen(shape, "cpu", lanes)
            for step in (*kernel.before, kernel):
                assert step.workgroup_bytes == 0 or not lanes, "barriers are slow on a CPU"


def test_the_choice_for_normalisations_and_maps():
    def built(function, shape, kind="discrete", lanes=32, dtype="float32"):
        return next(iter(candidates(op_of(function).problem(shape, dtype), device_of(kind, lanes), "off")))

    for length in (257, 1000, 1024, 4096, 8192, 32768):
        kernel = built("normalise:layer_norm", (999, length, 1))
        assert kernel.step - kernel.block < length <= kernel.step, "rows stay in registers"
    assert built("normalise:softmax", (9, 32769, 1)).step < 32768
    assert built("normalise:softmax", (9, 4096, 1), lanes=0).combine == "tree"
    assert built("normalise:softmax", (9, 4096, 1), "cpu", 8).combine == "alone"
    for length in (1, 9, 60, 120):
        kernel = built("normalise:rms_norm", (9999, length, 1))
        assert isinstance(kernel, NormalisedRowTiles)
        assert length <= kernel.step <= max(2 * length, 8)
    long = built("normalise:softmax", (2, 2**24, 1))
    assert isinstance(long, Rows)
    assert long.splits >= 16
    assert isinstance(built("normalise:softmax", (64, 256, 1024)), Strips)
    assert built("normalise:softmax", (1, 2**20, 8)).splits >= 8, "too few strips"
    assert built("normalise:softmax", (1, 256, 64), "cpu") == Strips(8, 1, 4)
    assert isinstance(built("normalise:layer_norm", (64, 256, 1024)), Rows)
    assert built("elementwise:gelu", (9, 9, 9)) == Map()
    assert built("elementwise:gelu", (9, 9, 9), dtype="float16").unroll > 1


# Benchmarks


def test_parsing_of_sizes():
    op = op_of("reduce")
    assert op.parse("512x8192") == (512, 8192, 1)
    assert op.parse("64x256x1024") == (16384, 1024, 1)
    assert op.parse("64x256x1024@1") == (64, 256, 1024)
    assert op.parse("64x256x1024@0") == (1, 64, 256 * 1024)
    assert op.parse("100") == (100, 100, 1)
    assert op.problem(op.parse("4x5x6@1"), "float32").results == 24
    for text in ("", "0x5", "axb", "4x5@2", "4x5@", "4x5@-1", "@0"):
        with pytest.raises(ProblemError, match="ROWSxCOLUMNS"):
            op.parse(text)


def test_the_bound_grows_with_the_logarithm():
    assert sum_bound(2**24) < 2 * sum_bound(2**12)
    x = np.full(2**20, 0.1, np.float32)
    chain = np.add.accumulate(x)[-1]
    assert abs(chain - x.sum(dtype=np.float64)) / x.sum(dtype=np.float64) > 10 * sum_bound(2**20)


def test_normalisations_and_maps_have_benchmarks():
    for name, bytes_each in (("reduce:max", 4), ("normalise:layer_norm", 8), ("elementwise:gelu", 8)):
        op = op_of(name)
        problem = op.problem((100, 2000, 1), "float32")
        assert problem.variant == name.partition(":")[2]
        assert problem.bytes == pytest.approx(200_000 * bytes_each, rel=1e-3)
        with pytest.raises(ConfigError, match="no layout 'tt'"):
            op.problem((3, 3, 1), "float32", "tt")
    assert op_of("normalise").variant == "softmax"
    with pytest.raises(ConfigError, match="choose from softmax, layer_norm, rms_norm"):
        op_of("normalise:batch_norm")
    with pytest.raises(ConfigError, match="choose from high"):
        op_of("gemm:max")
