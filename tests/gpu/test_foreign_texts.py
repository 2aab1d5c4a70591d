"""Shaders from other projects are compared with NumPy; a planted bug is reported with element, expected and actual."""

import re

import numpy as np
import pytest

from webmm.dtypes import F16, F32
from webmm.errors import ProblemError, ShaderError, UnsupportedError
from webmm.foreign import Foreign
from webmm.foreign.bench import measured
from webmm.foreign.check import SIZES, check, order_unknown
from webmm.foreign.counts import Counts
from webmm.measure.roofline import Roofline

RAGGED = (33, 130, 5)
SHAPE = {"workgroup": (16, 16, 1), "grid": Counts("n/16,m/16")}


@pytest.fixture
def tiles(examples):
    """Return a function that creates a Foreign from the example, with a changed text or changed options."""

    def make(old="", new="", **changes):
        text = (examples / "tiles.wgsl").read_text()
        assert old in text
        said = {"bindings": ("a", "b", "c"), "uniform": ("m", "n", "k"), **SHAPE}
        return Foreign("tiles.wgsl", text.replace(old, new), **(said | changes))

    return make


def words(foreign, device, *sizes, dtype=F32):
    return {found.size: found.words for found in check(foreign, device, device, sizes, dtype)}


def test_the_example_is_correct(device, tiles):
    assert words(tiles(), device, *SIZES) == dict.fromkeys(SIZES, "")
    assert order_unknown(tiles(), device) == ""


def test_a_missing_bounds_check_is_reported_with_its_element(device, tiles):
    wrong = tiles(" && k0 + local.y < sizes.k")
    assert re.match(
        r"4,290 of 4,290 elements are wrong, first C\[0, 0\]: expected 1, got nan", words(wrong, device, RAGGED)[RAGGED]
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
    got = re.fullmatch(r"1 of 4,290 elements is wrong, first C\[30, 99\]: expected (-?\d+), got (-?\d+)", found)
    assert int(got[2]) - int(got[1]) == 1


BARRIERS = ["// the tiles are complete", "// all invocations have read"]


@pytest.mark.parametrize("barrier", [f"workgroupBarrier(); {comment}" for comment in BARRIERS])
def test_a_missing_barrier_is_reported(device, tiles, barrier):
    if device.info.kind != "cpu":
        pytest.skip("a GPU may run the lanes of a workgroup in step, so that a missing barrier does not show")
    found = words(tiles(barrier, "//"), device, (64, 64, 64))[64, 64, 64]
    assert "the result depends on the order of invocations (a missing barrier" in found
    assert re.search(r"first C\[\d+, \d+\]: expected -?\d+, got -?\d+ in order and -?\d+ in reverse", found)


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
    fixed = Foreign("fixed.wgsl", made.for_size((7, 9, 11)), ("a", "b", "c"), **SHAPE)
    assert words(fixed, device, (7, 9, 11)) == {(7, 9, 11): ""}
    with pytest.raises(ProblemError, match=r"fixed\.wgsl has a fixed size"):
        words(fixed, device, RAGGED, (7, 9, 11))


def test_float16_and_other_names(device, tiles):
    half = tiles("array<f32>", "array<f16>").text.replace("struct Sizes", "enable f16;\nstruct Sizes", 1)
    half = half.replace("= a[", "= f32(a[").replace("+ local.x];", "+ local.x]);").replace("= b[", "= f32(b[")
    half = half.replace("+ at.x];", "+ at.x]);").replace("= sum;", "= f16(sum);").replace("fn main", "fn product")
    made = Foreign("half.wgsl", half, ("a", "b", "c"), **SHAPE, uniform=("m", "n", "k"), entry="product")
    assert words(made, device, RAGGED, dtype=F16) == {RAGGED: ""}


def test_shaders_that_cannot_run_are_refused(device, tiles):
    for grid, error, why in (
        ("m-m", ProblemError, "has no workgroups for 33x130x5"),
        ("m*n*1000", UnsupportedError, "4,290,000 workgroups along an axis; the limit is 65,535"),
    ):
        with pytest.raises(error, match=why):
            words(tiles(grid=Counts(grid)), device, RAGGED)
    with pytest.raises(ShaderError, match=r"tiles\.wgsl was refused by the engine"):
        words(tiles("var sum = 0.0", "var sum = nonsense"), device, RAGGED)
    large = tiles("@workgroup_size(16, 16)", "@workgroup_size(640, 640)", workgroup=(640, 640, 1))
    with pytest.raises(UnsupportedError, match="a workgroup of 409600 invocations"):
        words(large, device, RAGGED)


def test_shaders_with_subgroups_run_in_one_order(device, tiles):
    made = tiles("struct Sizes", "// subgroupAdd\nstruct Sizes")
    assert order_unknown(made, device) == "the order of invocations cannot be reversed: the text uses subgroups"
    assert order_unknown(made, None) == "there is no CPU adapter, which a test for missing barriers needs"
    assert words(made, device, RAGGED) == {RAGGED: ""}


def test_only_correct_shaders_are_timed(device, tiles):
    ceiling, size = Roofline(100.0, 10.0), (64, 64, 64)
    (record,) = measured(tiles(), device, [size], "float32", ceiling)
    assert (record.status, record.kernel, record.config) == ("ok", "tiles.wgsl", {})
    assert record.median_us > 0
    assert np.isclose(record.peak_fraction, record.gflops / 100)
    (record,) = measured(tiles("= sum;", "= 2.0 * sum;"), device, [size], "float32", ceiling)
    assert record.status == "incorrect"
    assert record.median_us is None
    (record,) = measured(tiles("var sum = 0.0", "var sum = nonsense"), device, [size], "float32", ceiling)
    assert record.status == "compile"
    (record,) = measured(tiles(grid=Counts("0")), device, [size], "float32", ceiling)
    assert record.status == "unsupported"
