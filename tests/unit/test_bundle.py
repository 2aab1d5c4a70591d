"""The page's bundle: its files, the ladders of the other ops, and its prepared cases."""

from __future__ import annotations

import dataclasses
import filecmp
import itertools
import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.web.conftest import missing
from webmm.arguments.quantized import integer_range
from webmm.cases import exact
from webmm.cases.quantized import scheme_of
from webmm.cases.reduce import exactly_reduced
from webmm.choose import tuned
from webmm.dtypes import F16, U8
from webmm.engine import generation
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.kernels.base import Capabilities, Kernel
from webmm.kernels.gemm.naive import Naive
from webmm.measure.records import Record
from webmm.page import bundle, ladders, minify, stages, translated
from webmm.page.index import SCHEMA
from webmm.page.script import templates
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.wgsl import naga
from webmm.wgsl.render import render, shader_folder


@pytest.fixture(scope="module")
def page(page_folder: Path) -> Path:
    return page_folder


@pytest.fixture(scope="module")
def index(page: Path) -> dict[str, Any]:
    return json.loads((page / bundle.MARKER).read_text())


def test_every_configuration_is_valid_and_offered_once() -> None:
    for cls in stages.offered():
        kernels = stages.configurations(cls, ladders.NOTHING)
        assert len(kernels) == len(set(kernels))
        assert kernels[0] == cls()
        assert set(stages.chosen(cls)) <= set(kernels)
        assert [kernel for kernel in kernels if kernel.invalid() is not None] == []


def test_records_are_the_same_as_pythons(index: dict[str, Any]) -> None:
    shipped = [record for record in tuned.shipped() if tuned.family(record) == "dawn"]
    assert [Record(**row) for row in index["tuned"]] == shipped
    assert shipped


def test_every_template_becomes_a_module(page: Path) -> None:
    modules = {path.relative_to(page / "bundle/templates").with_suffix("") for path in page.rglob("templates/**/*.js")}
    assert modules == {Path(name).with_suffix("") for name in templates.names(shader_folder())}
    assert list(page.rglob("*.wgsl")) == []


def test_page_is_below_4_mb(page: Path) -> None:
    files = [path for path in page.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4_000_000


LAID_OUT = r"""
// a comment, and "a text" in it
const half = (x) => x / 2 / 1; /* not a pattern */
const words = `a  // ${[1, 2].map((x) => `<${{ x }.x}  >`).join(" ")}  b`; /* of one line */
const pattern = /[/"'`]  \/\/ ?/g;
let i = 1
let j = i++ + ++i
const text = 'it\'s  "so"' + "\"  //";
class Pair { #a = 1
  get both() { return [this.#a, - -this.#a] }
  static of() { return new Pair }
}
const found = typeof /x  y/ in {}
const missing = (x) => x === undefined
if (i) /=/.test("=") && (j += 1)
console.log(missing(undefined), missing(0))
console.log(JSON.stringify([half(8), words, pattern.source, i, j, text, Pair.of().both, found, 6 / 2 / 3, (4) / 2 / 1]))
"""


def test_minified_scripts_behave_the_same(tmp_path: Path) -> None:
    if minify.library() is None:
        missing("tdewolff-minify")
    script, style = tmp_path / "some" / "script.mjs", tmp_path / "style.css"
    script.parent.mkdir()
    script.write_text(LAID_OUT)
    style.write_text("/* x */\n.a :hover, .b > p {\n  margin: 0 auto;\n}\n")
    told = [subprocess.run(["node", script], capture_output=True, text=True, check=True).stdout]
    script.rename(script.with_suffix(".js"))
    minify.minify_folder(tmp_path)
    script.with_suffix(".js").rename(script)
    told += [subprocess.run(["node", script], capture_output=True, text=True, check=True).stdout]
    assert told[0] == told[1]
    assert "comment" not in script.read_text()
    assert "0[0]" not in script.read_text()
    assert len(script.read_text()) < len(LAID_OUT) - 60
    assert style.read_text() == ".a :hover,.b>p{margin:0 auto}"


def test_without_the_library_scripts_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minify", None)
    (tmp_path / "script.js").write_text(LAID_OUT)
    minify.minify_folder(tmp_path)
    assert (tmp_path / "script.js").read_text() == LAID_OUT


def test_service_worker_caches_every_file_of_the_page(page: Path) -> None:
    kept = set(re.findall(r'"([\w./-]+)"', (page / "sw.js").read_text().split("SHELL = [")[1].split("];")[0]))
    kept = {"index.html" if name == "./" else name for name in kept}
    lazy = ("bundle/templates/", "bundle/models/", "bundle/translated/", "bundle/cases/", "bundle/learn/")
    present = {path.relative_to(page).as_posix() for path in page.rglob("*") if path.is_file()}
    assert {name for name in present if not name.startswith(lazy)} - {"sw.js"} == kept


def test_cases_hold_the_products_of_numpy(page: Path, index: dict[str, Any]) -> None:
    for case in index["cases"]:
        files = [page / "bundle" / "cases" / f"{case['m']}x{case['n']}x{case['k']}.{x}.npy" for x in "abc"]
        a, b, c = (np.load(file, allow_pickle=False) for file in files)
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


# Ladders of the other ops

ANY_DEVICE = Capabilities(
    "any", defaultdict(lambda: 2**31), frozenset({"subgroup", "subgroups", "shader-f16"}), subgroup_size=128
)


def ladder_rows() -> Iterator[tuple[exact.Ladder, Problem, list[Kernel[Any]]]]:
    """Yield each problem of each ladder for each kind of device, with the kernels on it."""
    for ladder, kind in itertools.product(ladders.every(), ("gpu", "cpu")):
        for dtype, size in itertools.product(ladder.dtypes, ladder.sizes[kind]):
            problem = ladder.case(size, dtype).problem
            yield ladder, problem, ladders.stages(ladder, kind, problem)


def test_ladder_stages_can_run_and_have_their_inputs() -> None:
    for ladder, problem, kernels in ladder_rows():
        inputs = {each.name for each in ladder.case(problem.sizes[: len(ladder.sizes["cpu"][0])], problem.dtype).inputs}
        assert inputs == {extent.name for extent in problem.buffers() if not extent.written}
        for kernel in kernels:
            shape = kernel.matrix_shape
            made_for = {"subgroup_size": kernel.subgroup, "matrix_shapes": frozenset({shape})} if shape else {}
            assert kernel.check(problem, dataclasses.replace(ANY_DEVICE, **made_for)) is None


def test_every_stage_is_in_a_ladder() -> None:
    for _, problem, kernels in ladder_rows():
        if problem.op != "gemm":  # gemm's stages have a separate ladder
            halves = {"matrix_unit"} if problem.op == "weights" else set()  # needs float16; the ladder uses float32
            present = {kernel.name for kernel in kernels}
            assert set(STAGES[problem.op]) - present <= {"columns", "columns_two_pass", "row_tiles", *halves}
        assert len(kernels) == len(set(kernels))


def test_the_page_has_the_same_ladders(page: Path) -> None:
    text = (page / "bundle/ladders.js").read_text()
    assert re.findall(r'title:"([^"]+)"', text) == [ladder.title for ladder in ladders.every()]
    prints = [
        str(ladder.fingerprint(size, dtype))
        for ladder in ladders.every()
        for kind in ("gpu", "cpu")
        for dtype, size in itertools.product(ladder.dtypes, ladder.sizes[kind])
    ]
    assert sorted(re.findall(r"fingerprint:(\d+)", text)) == sorted(prints)


@pytest.mark.parametrize("ladder", ladders.every(), ids=lambda ladder: ladder.title)
def test_gpu_ladders_use_the_settings_chosen_by_python(ladder: exact.Ladder) -> None:
    settings = set()
    for size in ladder.sizes["gpu"]:
        problem = ladder.case(size, ladder.dtypes[0]).problem
        stages = ladders.stages(ladder, "gpu", problem)
        names = {stage.name for stage in stages}
        best = next(kernel for kernel in ladders.made_for_gpus(problem) if kernel.name in names)
        assert best in stages
        assert [stage.name for stage in stages] == [kernel.name for kernel in ladder.kernels["gpu"]]
        settings.add(tuple(stages))
        assert ladders.stages(ladder, "cpu", problem) == list(ladder.kernels["cpu"])
    assert len(settings) > 1, "the settings do not depend on the shape"


def test_prepared_inputs_follow_the_documented_hash() -> None:
    drawn = exact.Input("x", U8, 6, 1, 0, 255)
    assert drawn.start == drawn.to_json()["start"] == exact.SEED_STEP
    assert exact.mix(np.arange(3, dtype=np.uint32)).tolist() == [0, 1753845952, 3507691905]
    values = []
    for i in range(6):  # computed with Python integers
        x = (i + drawn.start) % 2**32
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        values.append((x ^ x >> 16) % 256)
    assert drawn.integers.tolist() == values


@pytest.mark.parametrize("ladder", ladders.every(), ids=lambda ladder: ladder.title)
def test_prepared_results_agree_with_numpy(ladder: exact.Ladder) -> None:
    for dtype in ladder.dtypes:
        size = ladder.sizes["cpu"][0]
        case = ladder.case(size, dtype)
        if case.problem.op == "reduce":
            x = case.inputs[0].integers.reshape(size).astype(np.float64)
            expected = {"sum": x.sum(1), "max": x.max(1), "argmax": x.argmax(1)}[case.problem.operation]
        elif case.problem.op == "gemm":
            (m, n, k), (a, b) = size, (each.integers.astype(np.int64) for each in case.inputs)
            expected = np.einsum("ik,kj->ij", a.reshape(m, k), b.reshape(k, n))
        elif case.problem.op == "weights":
            expected = product_with_weights(size, *(each.integers for each in case.inputs))
        else:
            a, b = (each.integers.reshape(size * 2).astype(np.int64) for each in case.inputs)
            scheme = scheme_of(1, size[0], dtype, dtype, dtype)
            sums = (a - int(scheme.zero_a)) @ (b - int(scheme.zero_b))
            real = sums / scheme.scale_c + scheme.zero_c
            expected = np.clip(np.floor(real + 0.5), *integer_range(dtype))
            assert np.ptp(expected) > 100, "the scale rounds all results to the same value"
        np.testing.assert_array_equal(case.expected, expected)
        assert ladder.fingerprint(size, dtype) == exact.fingerprint(case.expected)


def product_with_weights(size: tuple[int, int, int], *parts: Any) -> Any:
    """Return the product as `WeightOnly` defines it: blocks of 32 along a column, the first of two nibbles lowest."""
    (m, n, k), (a, b, _, zeros) = size, parts
    whole = -(-k // 32) * 32
    q = np.stack([b % 16, b // 16], axis=-1).reshape(n, whole) - np.repeat(zeros.reshape(n, -1), 32, axis=1)
    return a.reshape(m, k) @ q[:, :k].T


def test_fingerprints_depend_on_values_and_positions() -> None:
    result = np.arange(100, dtype=np.float32)
    swapped, off = result.copy(), result.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    off[99] += 1
    assert len({exact.fingerprint(x) for x in (result, swapped, off, result[:99])}) == 4


def test_inexact_expected_results_are_refused() -> None:
    case = exactly_reduced("sum", (1, 2**20), F16)
    with pytest.raises(ConfigError, match="is not exact in float16"):
        _ = replace(case, compute=lambda x: np.array([4097])).expected


def test_building_again_gives_the_same_files(page: Path, tmp_path: Path) -> None:
    """Over an earlier bundle, whose files are replaced; in a process in which something was registered or tuned."""
    generation.advance()
    shutil.copytree(page, tmp_path / "page")
    files = ("bundle/core.js", "bundle/ladders.js")
    for path in files:
        (tmp_path / "page" / path).write_text("// old")
    bundle.build(tmp_path / "page")
    for path in (bundle.MARKER, *files):
        assert filecmp.cmp(tmp_path / "page" / path, page / path, shallow=False), path  # pytest compares for minutes


def small_page(out: Path) -> None:
    with bundle.written(out, force=True) as page:
        (page / "main.js").write_text("new")
        (page / "bundle").mkdir()
        (page / bundle.MARKER).write_text(json.dumps({"schema": SCHEMA}))


@pytest.mark.parametrize(
    ("name", "text"),
    [("bundle/thesis.txt", "x"), ("bundle/index.json", "{}"), ("main.js/thesis.txt", "x"), ("bundle", "x")],
)
def test_force_deletes_nothing_of_others(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match="is in the way; move it away"):
        small_page(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize("name", ["main.js", "bundle"])
def test_links_in_the_folder_of_a_page_are_kept(tmp_path: Path, name: str) -> None:
    small_page(tmp_path / "page")
    (tmp_path / "page" / name).rename(tmp_path / "precious")
    (tmp_path / "page" / name).symlink_to("../precious")
    with pytest.raises(ConfigError, match="is in the way; move it away"):
        small_page(tmp_path / "page")
    assert (tmp_path / "page" / name).is_symlink()
    assert (tmp_path / "precious").exists()


def test_force_replaces_a_page_and_keeps_other_files(tmp_path: Path) -> None:
    (tmp_path / "main.js").write_text("old")
    (tmp_path / "thesis.txt").write_text("mine")
    small_page(tmp_path)
    (tmp_path / "bundle" / "left over").touch()
    small_page(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(names) == [bundle.MARKER, "main.js", "thesis.txt"]


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="has other files"):
        bundle.build(tmp_path)
    with pytest.raises(ConfigError, match="is a file"):
        bundle.build(tmp_path / "thesis.txt")


@pytest.mark.parametrize("largest", [1_000, 100_000])  # bytes per file: less than the index, or than another file
def test_a_failed_build_leaves_the_folder_unchanged(tmp_path: Path, page: Path, largest: int) -> None:
    resource = pytest.importorskip("resource")
    empty, earlier = tmp_path / "empty", tmp_path / "earlier"
    empty.mkdir()
    shutil.copytree(page, earlier)
    (earlier / "mine.txt").write_text("mine")
    before = {path: path.is_file() and path.read_bytes() for path in earlier.rglob("*")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        for out in (tmp_path / "new", empty, earlier) if largest == 1_000 else (earlier,):
            with pytest.raises(ConfigError, match=r"^cannot write the page to .*: [^\n]*too large[^\n]*$"):
                bundle.build(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "new").exists()
    assert list(empty.iterdir()) == []
    assert {path: path.is_file() and path.read_bytes() for path in earlier.rglob("*")} == before


# Translations by naga


def test_translations_are_those_of_naga(page: Path, index: dict[str, Any]) -> None:
    if not index["translated"]:
        pytest.skip("this page was built without naga")
    files = {path.stem for path in (page / "bundle" / "translated").iterdir()}
    assert files == set(index["translated"]) >= {"gemm-naive", "reduce-two_pass", "normalise-rows", "elementwise-map"}
    found = json.loads(zlib.decompress((page / "bundle/translated/gemm-naive.deflate").read_bytes(), wbits=-15))
    (dispatch,) = found["dispatches"]
    made = naga.translate(render(Naive(), gemm(512, 512, 512)).wgsl, "naive")
    assert (dispatch["MSL"], dispatch["HLSL"]) == (made["MSL"].decode(), made["HLSL"].decode())
    assert found["problem"] == "512x512x512 float32"


def test_page_built_without_naga_has_no_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise ConfigError("naga-cli is needed")

    monkeypatch.setattr(naga, "find", absent)
    assert translated.write(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
