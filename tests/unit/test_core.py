"""Kernels in JavaScript and Python agree: the same shaders, grids, uniforms, reasons and choices for random cases.

The code that translates constants writes each case as JavaScript; all cases run in one node process.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webmm import choose
from webmm.cases.attention import plain as dense_attention
from webmm.choose import tables, tuned
from webmm.dtypes import BOOL, BYTES, F16, F32, F64, FLOATS, I32, MATRIX_DTYPES
from webmm.errors import WebmmError
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities, Kernel, MatrixShape
from webmm.kernels.gemm.slices import Slices, Software
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.traffic import moved
from webmm.learn.drawings import axes, tiles
from webmm.measure.records import Record
from webmm.page import core, steps
from webmm.page.script.names import is_provided
from webmm.page.script.program import Program
from webmm.page.script.values import value
from webmm.problems import OPS
from webmm.problems.attention import Attention, Heads, dense_heads
from webmm.problems.base import Problem
from webmm.problems.elementwise import Elementwise
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.normalise import NORMALISATIONS, Normalisation
from webmm.problems.product import Operand
from webmm.problems.quantized import Quantized
from webmm.problems.reduce import OPERATIONS, Reduction, Span, operation_of
from webmm.problems.weights import BITS, BLOCKS, WeightOnly
from webmm.wgsl import export
from webmm.wgsl.epilogues import ACTIVATIONS, BIASES
from webmm.wgsl.render import expressible, params_bytes, render

WEB = Path(__file__).parents[2] / "web"
EACH = [  # op, and the number of random cases
    *((op, 25) for op in OPS),
    *(pytest.param(op, 500, marks=pytest.mark.long) for op in OPS),
]
SIZES = (1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 100, 127, 128, 129, 256, 500, 512, 1000, 1024, 4096, 70_000)
LIMITS = {
    "max-compute-invocations-per-workgroup": (64, 128, 256, 1024),
    "max-compute-workgroup-size-x": (64, 256, 1024),
    "max-compute-workgroup-size-y": (8, 256, 1024),
    "max-compute-workgroup-size-z": (64,),
    "max-compute-workgroup-storage-size": (4096, 16_384, 49_152),
    "max-compute-workgroups-per-dimension": (100, 65_535),
    "max-storage-buffer-binding-size": (2**20, 2**27, 2**31),
    "max-buffer-size": (2**20, 2**28, 2**31),
    "max-texture-dimension-2d": (8192,),
    "max-texture-array-layers": (256,),
}
FRAGMENTS = (
    *(MatrixShape("f16", "f32", *sizes) for sizes in ((16, 16, 16), (8, 8, 8), (8, 16, 16))),
    *(MatrixShape(kind, f"{kind[0]}32", 16, 16, 32) for kind in ("i8", "u8")),
)


@pytest.fixture(scope="module")
def program() -> Program:
    return core.program()


@pytest.fixture(scope="module")
def script(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the JavaScript modules needed for rendering."""
    folder: Path = tmp_path_factory.mktemp("core")
    shutil.copytree(WEB / "python", folder / "python")
    for name in ("python.js", "templates.js", "errors.js"):
        shutil.copy(WEB / name, folder / name)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "bundle").mkdir()
    for name, text in core.modules(program).items():
        (folder / "bundle" / name).write_text(text)
    core.write_templates(folder / "bundle" / "templates")
    return folder


HEAD = """
import * as $ from "./python.js";
import * as core from "./bundle/core.js";
import * as exported from "./bundle/export.js";
import * as drawings from "./bundle/drawings.js";
OF_OPS
import { filledIn } from "./templates.js";
TEMPLATES
$.provide("webmm.wgsl.render.filled_in", filledIn);
const MODELS = PREDICTING;
$.provide("webmm.choose.tables.shipped", () => MODELS);
$.provide("webmm.engine.rates.known", () => null);
$.provide("webmm.choose.adapted.corrected", (device, model) => model);
const RECORDS = SHIPPED;
$.provide("webmm.choose.tuned.shipped", () => RECORDS);
$.provide("webmm.choose.tuned.load", () => []);
const resultOrError = (f) => { try { return f(); } catch (error) { return `${error.name}: ${error.message}`; } };
const says = (f) => console.log(JSON.stringify(resultOrError(f)));
const shaderData = ({ wgsl, bindings, features }) => [wgsl, bindings.map($.repr), [...features].sort()];
const chosen = (problem, info, capabilities) => {
  const device = { info, engine: { name: "dawn" }, capabilities };
  return [...core.candidates(problem, device, "cached")].map(([kernel, why]) => [$.str(kernel), why]);
};
const plain = (x) => x instanceof $.Dict ? Object.fromEntries([...x].map(([key, value]) => [key, plain(value)])) :
  Array.isArray(x) ? x.map(plain) : x;
const stage = (kernel, problem, general, sized) => plain(exported.stage(kernel, problem, "tint", general, sized));
const rendered = (kernel, problem) => [
  $.str(kernel),
  resultOrError(() => shaderData(core.render(kernel, problem, "tint"))),
  resultOrError(() => kernel.dispatch(problem)),
  resultOrError(() => [...core.params_bytes(kernel, problem)]),
  kernel.scratch(problem).map($.repr),
];
"""


def run(node: Callable[..., Any], folder: Path, program: Program, lines: list[str]) -> list[Any]:
    """Return the value that each JavaScript line prints."""
    imports = [
        f'import "./bundle/{path.relative_to(folder / "bundle").as_posix()}";' for path in folder.rglob("*/*/*.js")
    ]
    records = [record for record in tuned.shipped() if tuned.family(record) == "dawn"]
    of_ops = "\n".join(f'import * as {file[:-3]} from "./bundle/{file}";' for file in core.OF_OPS)
    head = (
        HEAD.replace("OF_OPS", of_ops)
        .replace("TEMPLATES", "\n".join(imports))
        .replace("SHIPPED", written(program, records))
    )
    head = head.replace("PREDICTING", written(program, tables.shipped()))
    (folder / "run.js").write_text("\n".join([head, *lines]))
    done = node(str(folder / "run.js"))
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def node() -> Callable[..., Any]:
    def call(*arguments: str) -> Any:
        return subprocess.run(["node", *arguments], capture_output=True, text=True, timeout=600, check=False)

    return call


def written(program: Program, x: Any) -> str:
    return value(x, lambda name: f"{program.homes[str(name)][:-3]}.{program.identifier(name)}", "")


def result_or_error(f: Callable[[], Any]) -> Any:
    try:
        return f()
    except WebmmError as error:
        return f"{type(error).__name__}: {error}"


def plain(x: Any) -> Any:
    return json.loads(json.dumps(x))


def test_translated_packages_and_modules_say_so(program: Program) -> None:
    """Whoever edits one reads in its docstring, or in its package's, that it must stay in the subset."""
    silent = set()
    for module in {name.module for name in program.found if not is_provided(name.module, name.name)}:
        rooms = (module, ".".join(module.split(".")[:2]))
        if not any("in the translated subset" in (importlib.import_module(room).__doc__ or "") for room in rooms):
            silent.add(module)
    assert silent == set()


# Random cases


def operand(rng: random.Random, rows: int, columns: int, dense: bool = False) -> Operand:
    transposed = not dense and rng.random() < 0.4
    outer, inner = (columns, rows) if transposed else (rows, columns)
    ld = inner if dense else inner + rng.choice((0, 0, 0, 1, 4))
    offset = 0 if dense else rng.choice((0, 0, 1, 4, 64))
    return Operand(ld, ld * outer + rng.choice((0, 0, 4)), offset, transposed)


def sizes(rng: random.Random, count: int) -> list[int]:
    return [rng.choice(SIZES) for _ in range(count)]


def draw_gemm(rng: random.Random) -> Gemm:
    m, n, k = sizes(rng, 3)
    dtype = rng.choice((F32, F32, F32, F16, *MATRIX_DTYPES, F64))
    batch = rng.choice((1, 1, 1, 3))
    return Gemm(
        *(m, n, k, batch, dtype, dtype if dtype == F64 else rng.choice((dtype, F32))),
        *(operand(rng, m, k), operand(rng, k, n), operand(rng, m, n)),
        bias_offset=rng.choice((0, 4, 5)),
        precision=rng.choice(("highest", "highest", "high")),
        bias=rng.choice(("", "", *(BIASES if batch == 1 else BIASES[:3]))),
        activation=rng.choice(("", "", *ACTIVATIONS)) if dtype != F64 else "",
        alpha=rng.choice((1.0, 1.0, 0.5)),
        beta=rng.choice((0.0, 0.0, -1.5)),
    )


def draw_quantized(rng: random.Random) -> Quantized:
    m, n, k = sizes(rng, 3)
    zeros = [rng.choice((0, 0, 3, None)) for _ in range(2)]
    scaled, starts = (rng.random() < 0.3 for _ in range(2)), ()
    return Quantized(
        *(m, n, k, rng.choice(BYTES), rng.choice(BYTES), rng.choice((*BYTES, I32, F32))),
        *(operand(rng, m, k), operand(rng, k, n), *zeros, rng.choice((0, 7)), (2**30 + 1, 40), *scaled),
        *(rng.random() < 0.3, starts),
    )


def draw_weights(rng: random.Random) -> WeightOnly:
    m, n, k = sizes(rng, 3)
    dtype = rng.choice((F32, F16, F16, *MATRIX_DTYPES))
    return WeightOnly(
        m, n, k, dtype, rng.choice((dtype, F32)), operand(rng, m, k), rng.choice(BITS), rng.choice(BLOCKS)
    )


def spanned(rng: random.Random) -> tuple[int, int, int, Span]:
    outer, length, inner = rng.choice(SIZES), rng.choice(SIZES), rng.choice((1, 1, 4, 7, 128))
    return (
        outer,
        length,
        inner,
        rng.choice(
            (
                Span.dense(length, inner),
                Span(1, outer, outer * length, 0),
                Span(length * inner + 4, inner, 1, rng.choice((0, 3, 4))),
            )
        ),
    )


def draw_reduce(rng: random.Random) -> Reduction:
    outer, length, inner, x = spanned(rng)
    operation = operation_of(rng.choice(tuple(OPERATIONS)))
    dtype = rng.choice((*MATRIX_DTYPES, I32) if operation.integers else MATRIX_DTYPES)
    out = operation.out_dtype(dtype)
    out = out if out == I32 else rng.choice((out, F32))
    return Reduction(operation.name, outer, length, inner, dtype, out, x, rng.choice((0, 4)))


def draw_normalise(rng: random.Random) -> Normalisation:
    outer, length, inner, x = spanned(rng)
    function, dtype = rng.choice(tuple(NORMALISATIONS.values())), rng.choice(MATRIX_DTYPES)
    vectors = function.name != "softmax" and inner == 1
    return Normalisation(
        *(function.operation, outer, length, inner, dtype, dtype, x, 0, function.name),
        *(vectors and rng.random() < 0.5, vectors and rng.random() < 0.5, 1e-5),
    )


def draw_elementwise(rng: random.Random) -> Elementwise:
    return Elementwise(
        rng.choice(tuple(ACTIVATIONS)), rng.choice(SIZES), rng.choice(MATRIX_DTYPES), *rng.choices((0, 1, 4), k=2)
    )


def heads_of(rng: random.Random, heads: int, tokens: int, columns: int) -> Heads:
    offset, row = rng.choice((0, 0, 1, 8)), columns + rng.choice((0, 0, 1, 4))
    return rng.choice(
        (
            dense_heads(heads, tokens, columns, offset),
            Heads(heads * tokens * row, tokens * row, row, 1, offset),
            Heads(tokens * heads * columns, columns, heads * columns, 1),  # a projection's result, split into heads
            Heads(heads * columns * tokens, columns * tokens, 1, tokens, offset),
        )
    )


def draw_attention(rng: random.Random) -> Attention:
    queries, keys = (rng.choice((1, 2, 5, 8, 16, 33, 64, 100, 512, 1024, 4096)) for _ in range(2))
    width = rng.choice((1, 4, 30, 61, 64, 64, 80, 128, 256, 300))
    value_width = rng.choice((width, width, 8, 96))
    batch, kv_heads, group = rng.choice((1, 3)), rng.choice((1, 2, 3)), rng.choice((1, 1, 4))
    heads, dtype, lengths = kv_heads * group, rng.choice((F32, F16, *MATRIX_DTYPES)), rng.random() < 0.3
    masks = None, Heads(0, 0, keys, 1), dense_heads(heads, queries, keys)
    mask = rng.choice((None, *masks))
    return Attention(
        *(batch, heads, kv_heads, queries, keys, width, value_width, dtype, rng.choice((dtype, F32))),
        *(heads_of(rng, heads, queries, width), heads_of(rng, kv_heads, keys, width)),
        *(heads_of(rng, kv_heads, keys, value_width), heads_of(rng, heads, queries, value_width)),
        scale=rng.choice((0.125, width**-0.5)),
        softcap=rng.choice((0.0, 0.0, 30.0)),
        **dict(zip(("left", "right"), rng.choices((-1, -1, 0, 7), k=2), strict=True)),
        shift=rng.choice((0, 5, keys - queries)),
        from_end=lengths and rng.random() < 0.5,
        mask=mask,
        mask_dtype=None if mask is None else rng.choice((BOOL, *MATRIX_DTYPES)),
        lengths=lengths,
        lengths_offset=rng.choice((0, 3)) if lengths else 0,
        first_key=rng.choice((0, 5)) if lengths else 0,
    )


DRAWN: dict[str, Callable[[random.Random], Problem]] = {
    **{"gemm": draw_gemm, "quantized": draw_quantized, "weights": draw_weights},
    **{"reduce": draw_reduce, "normalise": draw_normalise, "elementwise": draw_elementwise},
    **{"attention": draw_attention},
}


def draw_kernel(rng: random.Random, op: str) -> Kernel[Any]:
    """Return a stage with random candidates for its tunables; almost always a valid one."""
    cls = rng.choice([*STAGES[op].values(), *((Slices, Software) if op == "gemm" else ())])
    candidates = {f.name: f.metadata["candidates"] for f in dataclasses.fields(cls)}
    if cls is STAGES["gemm"]["matrix_unit"]:
        candidates["splits"] = (1, 2, 5)
    for _ in range(30):
        drawn: Kernel[Any] = cls(**{name: rng.choice(values) for name, values in candidates.items()})
        if drawn.invalid() is None or rng.random() < 0.05:
            return drawn
    return cls()


def draw_device(rng: random.Random) -> Capabilities:
    features = [name for name in ("shader-f16", "subgroups", "subgroup", "shader-f64") if rng.random() < 0.7]
    return Capabilities(
        "a device",
        {name: rng.choice(values) for name, values in LIMITS.items()},
        frozenset(features),
        rng.choice((0, 0, 65_535)),
        rng.choice((0, 4, 8, 32, 32)),
        frozenset(rng.sample(FRAGMENTS, rng.choice((0, 1, 3)))),
        rng.choice(("", "nobody knows")),
    )


# Comparisons


@pytest.mark.parametrize(("op", "cases"), EACH)
def test_shaders_grids_uniforms_and_scratch_agree(
    op: str, cases: int, program: Program, script: Path, node: Callable[..., Any]
) -> None:
    rng = random.Random(op)
    pairs = []
    for _ in range(cases):
        kernel, problem = draw_kernel(rng, op), DRAWN[op](rng)
        pairs += [(each, problem) for each in (kernel.dispatches if kernel.invalid() is None else (kernel,))]
    lines = [
        f"says(() => rendered({written(program, kernel)}, {written(program, problem)}));" for kernel, problem in pairs
    ]
    texts = 0
    for (kernel, problem), found in zip(pairs, run(node, script, program, lines), strict=True):
        expected = plain(rendered(kernel, problem))
        assert found == expected, f"{kernel} of {problem!r}"
        texts += isinstance(expected[1], list)
    assert texts > cases / 4, "too few cases can be rendered"


def test_texts_that_are_too_long_and_absurd_records_are_refused_alike(
    program: Program, script: Path, node: Callable[..., Any]
) -> None:
    problem = gemm(64, 64, 64)
    kernels = [Tile2D(tm=tm) for tm in (2000, 20_000, 10**9)]
    records = [
        Record(*("gemm", "tile_2d", *[8] * 4, *[""] * 6), config=kernel.config) for kernel in (*kernels, Tile2D())
    ]
    lines = [f"says(() => rendered({written(program, each)}, {written(program, problem)})[1]);" for each in kernels]
    lines += [f"says(() => core.refusal({written(program, record)}));" for record in records]
    found = run(node, script, program, lines)
    assert found == [*(rendered(each, problem)[1] for each in kernels), *map(tuned.refusal, records)]
    assert [words.split(": its text ")[1][:7] for words in found[:3]] == ["has 729", "would b", "would b"]
    assert [words is None for words in found[3:]] == [False, False, False, True]


@pytest.mark.parametrize(("op", "cases"), EACH)
def test_stages_as_data_agree(op: str, cases: int, program: Program, script: Path, node: Callable[..., Any]) -> None:
    rng = random.Random(op)
    drawn = [(draw_kernel(rng, op), DRAWN[op](rng), rng.random() < 0.5, rng.random() < 0.5) for _ in range(cases // 6)]
    lines = [
        f"says(() => stage({written(program, kernel)}, {written(program, problem)}, {json.dumps(general)}, "
        f"{json.dumps(sized)}));"
        for kernel, problem, general, sized in drawn
    ]
    for (kernel, problem, general, sized), found in zip(drawn, run(node, script, program, lines), strict=True):
        expected = result_or_error(
            functools.partial(export.stage, kernel, problem, "tint", general=general, sized=sized)
        )
        assert found == plain(expected), f"{kernel} of {problem!r}"


def rendered(kernel: Kernel[Any], problem: Problem) -> list[Any]:
    def text() -> list[Any]:
        shader = render(kernel, problem, "tint")
        return [shader.wgsl, [repr(binding) for binding in shader.bindings], sorted(shader.features)]

    return [
        str(kernel),
        result_or_error(text),
        result_or_error(lambda: kernel.dispatch(problem)),
        result_or_error(lambda: list(params_bytes(kernel, problem))),
        [repr(left) for left in kernel.scratch(problem)],
    ]


@pytest.mark.parametrize(("op", "cases"), EACH)
def test_reasons_agree(op: str, cases: int, program: Program, script: Path, node: Callable[..., Any]) -> None:
    rng = random.Random(f"{op} reasons")
    triples = [(draw_kernel(rng, op), DRAWN[op](rng), draw_device(rng)) for _ in range(2 * cases)]
    lines = [
        f"says(() => {written(program, kernel)}.check({written(program, problem)}, {written(program, device)}));"
        for kernel, problem, device in triples
    ]
    expected = [kernel.check(problem, device) for kernel, problem, device in triples]
    assert run(node, script, program, lines) == expected
    kinds = {reason and reason.split()[0] for reason in expected}
    assert len(kinds) > 1, "all reasons are the same"


@pytest.mark.parametrize(("op", "cases"), EACH)
def test_choices_agree(
    op: str, cases: int, program: Program, script: Path, node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{op} choices")
    records = tuple(record for record in tuned.shipped() if tuned.family(record) == "dawn")
    monkeypatch.setattr(tuned, "load", list)
    monkeypatch.setattr(tuned, "shipped", lambda: records)
    triples = list(problems_and_devices(rng, op, cases // 2))
    lines = [
        f"says(() => chosen({written(program, problem)}, {json.dumps(info)}, {written(program, device)}));"
        for problem, info, device in triples
    ]
    found = run(node, script, program, lines)
    for (problem, info, device), chosen in zip(triples, found, strict=True):
        where: Any = SimpleNamespace(
            info=SimpleNamespace(**info), engine=SimpleNamespace(name="dawn"), capabilities=device
        )
        expected = [[str(kernel), why] for kernel, why in choose.candidates(problem, where).items()]
        assert chosen == expected, f"{problem!r} on {info}"
    assert len({str(chosen) for chosen in found}) > 1 or op == "elementwise"
    sources = {why.split()[0] for chosen in found for _, why in chosen}
    assert op != "gemm" or sources >= {"predicted", "shipped", "known", "portable", "runs"}


def problems_and_devices(
    rng: random.Random, op: str, cases: int
) -> Iterator[tuple[Problem, dict[str, str], Capabilities]]:
    """Yield problems, and adapters as Python's choice reads them."""
    names = ("NVIDIA H200", "nvidia hopper", "SwiftShader", "Apple M2")
    near = [record for record in tuned.shipped() if record.op == op == "gemm"]
    for _ in range(cases):
        problem, device = DRAWN[op](rng), draw_device(rng)
        if near and rng.random() < 0.5:  # a size with a record, or close to one
            record = rng.choice(near)
            problem = gemm(record.m, record.n + rng.choice((0, 0, 4, 100)), record.k, dtype=record.dtype)
        yield problem, {"kind": rng.choice(("cpu", "other")), "name": rng.choice(names), "driver": ""}, device


def test_float64_is_refused_alike(program: Program, script: Path, node: Callable[..., Any]) -> None:
    problem = dataclasses.replace(draw_gemm(random.Random(1)), dtype=F64, out_dtype=F64, activation="")
    kernel = STAGES["gemm"]["naive"]()
    assert not expressible(kernel, problem, "tint")
    line = f"says(() => rendered({written(program, kernel)}, {written(program, problem)}));"
    assert run(node, script, program, [line]) == [plain(rendered(kernel, problem))]
    assert {dtype.name for dtype in FLOATS} == {"float32", "float16"}


def test_drawings_and_counts_agree(program: Program, script: Path, node: Callable[..., Any]) -> None:
    """No coordinate and no word of a drawing depends on the language; only ties of rounding may, which these lack."""
    shown = [STAGES["gemm"][name]() for name in ("naive", "tile_2d", "matrix_unit", "pipelined")]
    points = ("a<b", 0.51, 17.3, "slow & right"), ("tile", 30.0, 2345.6, "fast")
    problem = gemm(100, 50, 30)
    expected: list[Any] = [axes.roofline(1234.6, 67.8, [axes.Point(*each) for each in points]).plain()]
    made = ", ".join(f"new drawings.Point({json.dumps(each)[1:-1]})" for each in points)
    lines = [f"says(() => drawings.roofline(1234.6, 67.8, [{made}]).plain());"]
    for kernel in shown:
        text = written(program, kernel)
        expected.append([tiles.pictured(kernel, True).plain(), tiles.legend(kernel, 4, 7.5), moved(kernel, problem)])
        parts = "drawings.pictured(k, true).plain(), drawings.legend(k, 4, 7.5), [...core.moved(k, p)]"
        lines.append(f"says(() => {{ const [k, p] = [{text}, {written(program, problem)}]; return [{parts}]; }});")
    windowed = dataclasses.replace(dense_attention((2, 4, 45, 70, 24), F32, True), kv_heads=2, left=20, shift=9)
    for kernel in (stage() for stage in STAGES["attention"].values()):
        expected.append(list(moved(kernel, windowed)))
        lines.append(f"says(() => [...core.moved({written(program, kernel)}, {written(program, windowed)})]);")
    for name, at, who in (("tile_1d", 7, 9), ("shared", 9, 200), ("shared", 17, 9)):
        walk = steps.walked("gemm", name)
        assert walk
        expected.append([walk.title, walk.words(at, who), walk.picture(at, who).plain()])
        parts = f"w.title, w.words({at}, {who}), w.picture({at}, {who}).plain()"
        lines.append(f"says(() => {{ const w = drawings.walked('gemm', '{name}'); return [{parts}]; }});")
    assert run(node, script, program, lines) == plain(expected)
