"""Shaders from other projects are compared with NumPy; a planted bug is reported with element, expected and actual."""

import dataclasses
import re

import numpy as np
import pytest

from webmm.cases import op_of
from webmm.errors import ProblemError, ShaderError, UnsupportedError
from webmm.foreign import Foreign
from webmm.foreign.bench import measured
from webmm.foreign.check import check, order_unknown
from webmm.foreign.counts import CHECKED, WORKGROUP, Counts
from webmm.foreign.tasks import OfFiles, OfOp
from webmm.foreign.trace import inspect
from webmm.foreign.tune import search
from webmm.measure.roofline import Roofline

RAGGED = (33, 130, 5)
SHAPE = {"workgroup": Counts("16,16", (), WORKGROUP), "grid": Counts("n/16,m/16")}


@pytest.fixture
def tiles(examples):
    """Return a function that creates a Foreign from the example, with a changed text or changed options."""

    def make(old="", new="", **changes):
        text = (examples / "tiles.wgsl").read_text()
        assert old in text
        said = {"bindings": ("a", "b", "c"), "uniform": ("m", "n", "k"), **SHAPE}
        return Foreign("tiles.wgsl", text.replace(old, new), **(said | changes))

    return make


def words(foreign, device, *sizes, dtype="float32"):
    work = OfOp(op_of("gemm"), dtype)
    found = check(foreign, device, device, work, sizes)
    return dict(zip(sizes, (each.words for each in found), strict=True))


def test_the_example_is_correct(device, tiles):
    assert words(tiles(), device, *CHECKED) == dict.fromkeys(CHECKED, "")
    assert order_unknown(tiles(), device) == ""


def test_a_missing_bounds_check_is_reported_with_its_element(device, tiles):
    wrong = tiles(" && k0 + local.y < sizes.k")
    assert re.match(
        r"4,290 of 4,290 elements are wrong, first C\[0, 0\]: expected 1.1875, got nan",
        words(wrong, device, RAGGED)[RAGGED],
    )
    assert words(wrong, device, (32, 32, 32))[32, 32, 32] == "", "the tiles divide this size"
    strays = tiles("at.y < sizes.m && at.x < sizes.n", "at.x < sizes.n")
    assert (
        "elements beyond the end of C were written, first element 4,290 of its buffer: got 0"
        in (words(strays, device, RAGGED)[RAGGED])
    )


def test_a_single_wrong_element_is_found(device, tiles):
    wrong = tiles("= sum;", "= sum + select(0.0, 1.0, at.y == 30u && at.x == 99u);")
    found = words(wrong, device, RAGGED)[RAGGED]
    got = re.fullmatch(r"1 of 4,290 elements is wrong, first C\[30, 99\]: expected ([\d.]+), got ([\d.]+)", found)
    assert float(got[2]) - float(got[1]) == 1


BARRIERS = ["// the tiles are complete", "// all invocations have read"]


@pytest.mark.parametrize("barrier", [f"workgroupBarrier(); {comment}" for comment in BARRIERS])
def test_a_missing_barrier_is_reported(device, tiles, barrier):
    if device.info.kind != "cpu":
        pytest.skip("a GPU may run the lanes of a workgroup in step, so that a missing barrier does not show")
    found = words(tiles(barrier, "//"), device, (64, 64, 64))[64, 64, 64]
    assert "the result depends on the order of invocations (a missing barrier" in found
    assert re.search(r"first C\[\d+, \d+\]: expected [\d.]+, got [\d.]+ in order and [\d.]+ in reverse", found)


def test_sizes_may_be_constants(device, tiles):
    text = "const M = 1u; const N = 1u; const K = 1u;\nstruct Lengths"
    changed = tiles("struct Sizes", text).text
    for length in "mnk":
        changed = changed.replace(f"sizes.{length}", length.upper())
    changed = re.sub(r"@group\(0\) @binding\(0\).*\n", "", changed)
    for number in (1, 2, 3):
        changed = changed.replace(f"@binding({number})", f"@binding({number - 1})")
    made = Foreign("constants.wgsl", changed, ("a", "b", "c"), **SHAPE, constants=("M", "N", "K"))
    assert words(made, device, RAGGED, (7, 9, 11)) == {RAGGED: "", (7, 9, 11): ""}
    fixed = Foreign("fixed.wgsl", made.for_size({"m": 7, "n": 9, "k": 11}), ("a", "b", "c"), **SHAPE)
    assert words(fixed, device, (7, 9, 11)) == {(7, 9, 11): ""}
    with pytest.raises(ProblemError, match=r"fixed\.wgsl has a fixed size"):
        words(fixed, device, RAGGED, (7, 9, 11))


def test_float16_and_other_names(device, tiles):
    half = tiles("array<f32>", "array<f16>").text.replace("const TILE", "enable f16;\nconst TILE", 1)
    half = half.replace("= a[", "= f32(a[").replace("+ local.x];", "+ local.x]);").replace("= b[", "= f32(b[")
    half = half.replace("+ at.x];", "+ at.x]);").replace("= sum;", "= f16(sum);").replace("fn main", "fn product")
    made = Foreign("half.wgsl", half, ("a", "b", "c"), **SHAPE, uniform=("m", "n", "k"), entry="product")
    assert words(made, device, RAGGED, dtype="float16") == {RAGGED: ""}


def test_shaders_that_cannot_run_are_refused(device, tiles):
    for grid, error, why in (
        ("m-m", ProblemError, "has no workgroups for m=33, n=130, k=5"),
        ("m*n*1000", UnsupportedError, "4,290,000 workgroups along an axis; the limit is 65,535"),
    ):
        with pytest.raises(error, match=why):
            words(tiles(grid=Counts(grid)), device, RAGGED)
    with pytest.raises(ShaderError, match=r"tiles\.wgsl was refused by the engine"):
        words(tiles("var sum = 0.0", "var sum = nonsense"), device, RAGGED)
    large = tiles(
        "@workgroup_size(TILE, TILE)", "@workgroup_size(640, 640)", workgroup=Counts("640,640", (), WORKGROUP)
    )
    with pytest.raises(UnsupportedError, match="a workgroup of 409600 invocations"):
        words(large, device, RAGGED)


def test_shaders_with_subgroups_run_in_one_order(device, tiles):
    made = tiles("struct Sizes", "// subgroupAdd\nstruct Sizes")
    assert order_unknown(made, device) == "the order of invocations cannot be reversed: the text uses subgroups"
    assert order_unknown(made, None) == "there is no CPU adapter, which a test for missing barriers needs"
    assert words(made, device, RAGGED) == {RAGGED: ""}


def test_only_correct_shaders_are_timed(device, tiles):
    ceiling, size, work = Roofline(100.0, 10.0), (64, 64, 64), OfOp(op_of("gemm"), "float32")
    (record,) = measured(tiles(), device, work, [size], ceiling)
    assert (record.status, record.kernel, record.config) == ("ok", "tiles.wgsl", {})
    assert record.median_us > 0
    assert np.isclose(record.peak_fraction, record.gflops / 100)
    (record,) = measured(tiles("= sum;", "= 2.0 * sum;"), device, work, [size], ceiling)
    assert record.status == "incorrect"
    assert record.median_us is None
    (record,) = measured(tiles("var sum = 0.0", "var sum = nonsense"), device, work, [size], ceiling)
    assert record.status == "compile"
    (record,) = measured(tiles(grid=Counts("0")), device, work, [size], ceiling)
    assert record.status == "unsupported"


def traced(tiles):
    """Return the example with its tile as a tunable."""
    return dataclasses.replace(
        tiles(),
        workgroup=Counts("TILE,TILE", ("TILE",), WORKGROUP),
        grid=Counts("n/TILE,m/TILE", ("m", "n", "k", "TILE")),
        tunables={"TILE": (8, 4, 64)},
    )


def test_tunables_are_searched_and_failures_have_reasons(device, tiles):
    work, made = OfOp(op_of("gemm"), ""), []
    work.case = lambda *given: made.append(given) or OfOp.case(work, *given)
    records = {r.config["TILE"]: r for r in search(traced(tiles), device, work, (16, 16, 16), 60)}
    assert len(made) == 1, "the operands of all combinations are the same"
    assert {tile: record.status for tile, record in records.items()} == {8: "ok", 4: "ok", 64: "unsupported"}
    assert "a workgroup of 4096 invocations is too large" in records[64].reason
    wrong = traced(tiles)
    wrong = dataclasses.replace(
        wrong, text=wrong.text.replace(" && at.x < sizes.n) {\n            b_reg", ") {\n b_reg")
    )
    wrong = dataclasses.replace(wrong, text=wrong.text.replace("at.y < sizes.m && ", ""), tunables={"TILE": (8,)})
    (record,) = search(wrong, device, OfOp(op_of("gemm"), ""), (16, 16, 16), 60)
    assert (record.status, record.reason[:9]) == ("incorrect", "65x67x63:"), "the tiles divide the size itself"


def test_debug_lines_find_the_first_wrong_step(device, tiles):
    text, work = traced(tiles), OfOp(op_of("gemm"), "")
    (found,) = inspect(text, device, work, (9, 10, 11), [(3, 5)])
    assert found.right
    assert {"SHARED_A", "SHARED_B", "ACC"} == {tag for step in found.steps for tag in step.values}
    wrong = dataclasses.replace(text, text=text.text.replace("sizes.k + k0 + local.x]", "sizes.k + local.x]"))
    (found,) = inspect(wrong, device, work, (9, 10, 11), [(3, 5)])
    assert (found.wrong[0][0].k, found.wrong[0][1]) == (8, "SHARED_A")


SUMS = """
@group(0) @binding(0) var<uniform> size: vec2u;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3u) {
    if (at.x >= size.x) { return; }
    var sum = 0.0;
    for (var k = 0u; k < size.y; k++) { sum += x[at.x * size.y + k]; }
    y[at.x] = sum;
}
"""


def test_other_problems_come_from_the_ops_row_or_from_files(device, tmp_path):
    work, how = OfOp(op_of("reduce:sum"), ""), (Counts("64", (), WORKGROUP), Counts("m/64"))
    made = Foreign("sums.wgsl", SUMS, ("x", "y"), *how, ("m", "n"), signature=work.signature)
    assert [found.words for found in check(made, device, device, work, [(65, 33, 1)])] == [""]
    x = np.random.default_rng(0).standard_normal((65, 33), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    for name, wrong in (("right", 0.0), ("wrong", 0.1)):
        np.save(tmp_path / f"{name}.npy", x.sum(1) + np.float32(wrong) * (np.arange(65) == 7))
        files = OfFiles([tmp_path / "x.npy"], tmp_path / f"{name}.npy")
        grid = Counts("a0/64", files.signature.lengths)
        text = Foreign("sums.wgsl", SUMS, ("a", "b"), how[0], grid, ("a0", "a1"), signature=files.signature)
        (record,) = measured(text, device, files, files.sizes, warm_up=0.0)
        assert (record.op, record.kernel, record.m) == ("files", "sums.wgsl", 65)
        assert record.status == ("incorrect" if wrong else "ok")
        (found,) = check(text, device, None, files, files.sizes)
        assert found.words.partition(":")[0] == ("1 of 65 elements is wrong, first b[7]" if wrong else "")
