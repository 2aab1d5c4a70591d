"""The table of calls, run by Python, and by webmm.js in a browser and in node."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webmm
from tests.sampled import fewest
from tests.web.table import JAVASCRIPT_ERRORS, Outcome, as_json, cases, check, faults
from tests.web.table_attention import BINDING, beyond_a_binding
from tests.web.table_case import VIEWS, Case, X
from webmm.cut.arrays import Extents, array_pieces
from webmm.cut.pieces import Limits
from webmm.dtypes import F64

TABLE = cases()
IN_PYTHON = [case for case in TABLE if case.name != "reshaped without a copy"]  # Python makes one
CALLS_JS = Path(__file__).with_name("calls.js")
TRANSPOSES = ("transpose_a", "transpose_b")  # options of webmm.js; Python passes transposed views instead
# Cases of errors with the words of one language: NumPy's, or about the options and types that only one of them has.
OWN_WORDS = {
    *(
        "reshaped without a copy",
        "reshaped to another size",
        "broadcast to another shape",
        "gemm on the host",
        "rms_norm has no bias",
    ),
    *(
        f"unknown {what}{where}"
        for what in ("activation", "out_dtype", "option", "reduction")
        for where in ("", ", resident")
    ),
}
OPTION = re.compile(r"\b(out|scale|value|zero)_(\w)")
WEIGHTS = inspect.signature(webmm.quantize_blocks).parameters


def some(start: int, step: int, table: list[Case] = TABLE) -> list[Case]:
    """Return every so many cases of each call, from the given one on."""
    calls: dict[str, list[Case]] = {}
    for case in table:
        calls.setdefault(case.call, []).append(case)
    return [case for each in calls.values() for case in each[start % len(each) :: step]]


def traits(case: Case) -> set[tuple[object, ...]]:
    """Return what the case is an example of: options with their values, dtypes, operands on the device, errors."""
    found: set[tuple[object, ...]] = {("resident", bool(case.resident), bool(case.error))}
    found |= {("dtype", "", str(x.data.dtype)) for x in case.operands if isinstance(x, X)}
    found |= {("option", name, x if isinstance(x, (str, bool)) else "") for name, x in case.options.items()}
    return {(case.call, *trait) for trait in found}


def covering(table: list[Case]) -> list[Case]:
    """Return few cases that have every trait of `table`, the smallest of those that have as many."""
    return fewest(sorted(table, key=lambda case: sum(x.data.nbytes for x in case.operands if isinstance(x, X))), traits)


def make_call(case: Case, device: webmm.Device) -> Any:
    """Return the result of a case's call in Python; raises the call's errors."""

    def placed(x: Any) -> Any:
        if not isinstance(x, X):
            return x
        if not case.resident or case.call == "qmatmul":
            return x.seen
        array = device.array(x.data)
        for name, arguments in x.views:
            array = VIEWS[name](array, *arguments)
        return array

    operands = [device.array(x.data) if case.call == "qmatmul" and case.resident else placed(x) for x in case.operands]
    options = {name: placed(x) for name, x in case.options.items() if name not in TRANSPOSES}
    for i, name in enumerate(TRANSPOSES):
        if case.options.get(name):
            operands[i] = operands[i].mT if case.resident else operands[i].swapaxes(-1, -2)
    if case.call == "read":
        return operands[0]
    if case.call in ("freed", "matmul_freed"):
        operands[-1].free()
        return operands[0].numpy() if case.call == "freed" else webmm.matmul(*operands)
    if case.call == "gemm":
        return webmm.gemm(*operands, **options)
    if case.call == "qmatmul_weights":
        how = {name: options.pop(name) for name in list(options) if name in WEIGHTS}
        weights = webmm.quantize_blocks(np.asarray(case.operands[1].data), **how)
        operands[1] = weights.to(device) if case.resident else weights
    if case.call == "map":
        given = options["f"] if "f" in options else webmm.Epilogue(options.pop("text"), **options)
        return webmm.map(*operands, given, device=device)
    if case.call == "cached":
        of, layer = options.pop("of"), options.pop("layer", 1)
        cache = webmm.KVCache(device, **options)
        for i in (0, 2):
            cache.append(layer, *operands[i : i + 2])
        return getattr(cache, of)(layer)
    call: Callable[..., Any] = getattr(webmm, case.call)
    return call(*operands, **options, device=device)


@pytest.fixture(scope="module")
def device() -> webmm.Device:
    return webmm.Device()


def python(case: Case, device: webmm.Device) -> Outcome:
    try:
        result = make_call(case, device)
        return Outcome(result.numpy() if isinstance(result, webmm.Array) else np.asarray(result))
    except Exception as error:
        return Outcome(error=type(error).__name__, message=str(error))


def judge(
    outcomes: list[Outcome], features: Collection[str], table: list[Case] = TABLE, *, python: bool = False
) -> None:
    """Assert that every outcome is as expected; calls that need other features than these must be refused."""
    assert faults(outcomes, table, features, python=python) == {}


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(covering(IN_PYTHON)[::3], id="some traits"),  # tests/gpu has the others
        pytest.param(IN_PYTHON, id="all", marks=pytest.mark.long),
    ],
)
def test_python(device: webmm.Device, table: list[Case]) -> None:
    judge([python(case, device) for case in table], device.capabilities.features, table, python=True)


def test_python_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [case for case in TABLE if case.needs & F64.features]
    with webmm.Device() as device:
        features = device.capabilities.features - F64.features
        monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, features=features))
        outcomes = [python(case, device) for case in table]
    assert {outcome.error for outcome in outcomes} == {"UnsupportedError"}
    judge(outcomes, features, table, python=True)


WHOLE = [case for case in TABLE if not (case.resident or case.error)]  # cut into pieces where memory is little


@pytest.mark.parametrize(
    ("memory", "table"),
    [
        pytest.param("", covering(TABLE), id="every trait"),
        pytest.param("65536", some(12, 30, WHOLE), id="some in pieces"),
        pytest.param("", TABLE, id="all", marks=pytest.mark.long),
        pytest.param("65536", WHOLE, id="all in pieces", marks=pytest.mark.long),
    ],
)
def test_node(
    memory: str, table: list[Case], page_folder: Path, node_modules: Path, node: Callable[..., Any], tmp_path: Path
) -> None:
    """With little memory, host operands and results are transferred in pieces."""
    (tmp_path / "cases.json").write_text(json.dumps([as_json(case) for case in table]))
    script, dawn = CALLS_JS.with_name("node_calls.mjs"), node_modules / "webgpu" / "index.js"
    page = page_folder / "webmm.js"
    done = node(str(script), str(page), str(dawn), str(tmp_path / "cases.json"), memory, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    output = json.loads(done.stdout)
    judge([Outcome.of_json(row) for row in output["outcomes"]], output["features"], table)


def test_node_with_keys_beyond_a_binding(
    page_folder: Path, node_modules: Path, node: Callable[..., Any], tmp_path: Path
) -> None:
    table = list(beyond_a_binding())
    (tmp_path / "cases.json").write_text(json.dumps([as_json(case) for case in table]))
    script, dawn = CALLS_JS.with_name("node_calls.mjs"), node_modules / "webgpu" / "index.js"
    paths = (str(each) for each in (script, page_folder / "webmm.js", dawn, tmp_path / "cases.json"))
    done = node(*paths, "", str(BINDING), timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    output = json.loads(done.stdout)
    judge([Outcome.of_json(row) for row in output["outcomes"]], output["features"], table)


def test_errors_have_the_same_messages(
    device: webmm.Device, page_folder: Path, node_modules: Path, node: Callable[..., Any], tmp_path: Path
) -> None:
    """In JavaScript, the names of options are spelled as its users write them."""
    table = [case for case in TABLE if case.error and case.name not in OWN_WORDS]
    expected = [OPTION.sub(lambda found: found[1] + found[2].upper(), python(case, device).message) for case in table]
    (tmp_path / "cases.json").write_text(json.dumps([as_json(case) for case in table]))
    script, dawn = CALLS_JS.with_name("node_calls.mjs"), node_modules / "webgpu" / "index.js"
    done = node(str(script), str(page_folder / "webmm.js"), str(dawn), str(tmp_path / "cases.json"), "", timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    got = [row["message"] for row in json.loads(done.stdout)["outcomes"]]
    assert len(got) > 50
    assert got == [message.replace("not 0.0", "not 0") for message in expected]  # JavaScript has one type of number


def test_chromium(page: Any) -> None:
    """Cases that node leaves out: it runs the same code on the same engine."""
    table = some(1, 16)
    function = CALLS_JS.read_text().replace("export async", "async")
    output = page.evaluate(
        f"""async (cases) => {{ {function}
        const module = await import("./webmm.js"), {{ device }} = webmm;
        const outcomes = await makeCalls(module, device, cases);
        return {{ features: [...device.features], outcomes }}; }}""",
        [as_json(case) for case in table],
    )
    judge([Outcome.of_json(row) for row in output["outcomes"]], output["features"], table)


def test_calls_are_cut_into_the_same_pieces(page_folder: Path, node: Callable[..., Any], tmp_path: Path) -> None:
    """Python and JavaScript cut random calls into the same pieces, or both refuse them."""
    rng = np.random.default_rng(7)
    rows, expected = [], []
    for _ in range(200):
        lengths = {letter: int(2 ** rng.uniform(0, 17)) for letter in "ijk"}
        arrays = [
            (axes, tuple(lengths[letter] for letter in axes), 4, bool(rng.random() < 0.5))
            for axes in rng.choice(["ij", "ik", "kj", "j", "ijk"], size=3)
        ]
        along = "".join(letter for letter in "ij" if any(letter in axes for axes, *_ in arrays))
        largest = max(math.prod(shape) for _, shape, *_ in arrays) * 4
        limits = [int(largest * 2 ** rng.uniform(-5, 1)), 1.0, int(largest * 2 ** rng.uniform(-5, 3))]
        flops = 2 ** rng.uniform(-3, 5)
        rows.append([arrays, along, limits, flops])
        try:
            cut = list(array_pieces([Extents(*one) for one in arrays], along, "", Limits(*limits), flops))
            expected.append([len(cut), *({x: list(at) for x, at in cut[i].at.items()} for i in (0, -1))])
        except webmm.UnsupportedError:
            expected.append(None)
    (tmp_path / "cuts.json").write_text(json.dumps(rows))
    script, core = CALLS_JS.with_name("node_cuts.mjs"), page_folder / "bundle" / "core.js"
    done = node(str(script), str(core), str(tmp_path / "cuts.json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
    assert 10 < sum(one is None for one in expected) < 190


def test_wrong_results_are_detected() -> None:
    """Every case detects a slightly wrong result or a different error."""
    undetected = []
    for case in TABLE:
        if case.error:
            good, bad = (
                Outcome(error=JAVASCRIPT_ERRORS.get(name, name), message="why") for name in (case.error, "OtherError")
            )
        else:
            array = np.asarray(case.expected).astype(case.dtype)
            other = array.copy()
            if not array.size or not np.isfinite(array.flat[0]):
                continue
            other.flat[0] += 1 if array.dtype.kind in "iu" else array.dtype.type(0.02) * (1 + abs(array.flat[0]))
            good, bad = Outcome(array), Outcome(other)
        if check(case, good) or not check(case, bad):
            undetected.append(case.name)
    assert undetected == []
