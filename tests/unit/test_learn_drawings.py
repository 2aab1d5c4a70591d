"""The drawings of the concepts: what they show agrees with a count that does not read the shaders."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from webmm.errors import ConfigError
from webmm.learn import concepts
from webmm.learn.addresses import evaluate, names_for, tile_of
from webmm.learn.drawings import access, charts, find, hardware, order
from webmm.learn.kernels import problem_for, stage_of
from webmm.wgsl.render import render

CONCEPTS = {
    "hierarchy": ("gemm/workgroup_2d",),
    "lines": ("gemm/workgroup_1d", "gemm/workgroup_2d"),
    "bank_reads": ("gemm/blocked",),
    "bank_stores": ("gemm/pipelined",),
    "memories": (),
    "occupancy": ("gemm/workgroup_2d", "gemm/blocked"),
    "latency": ("gemm/blocked",),
    "roofline": ("gemm/workgroup_1d", "gemm/tile_2d", "gemm/pipelined"),
    "tile_order": ("gemm/pipelined",),
    "barriers": ("gemm/shared",),
    "rounding": (),
}


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_drawing_is_well_formed_within_its_frame_and_told(name):
    svg = find()[name](*(stage_of(stage) for stage in CONCEPTS[name]))
    root = ElementTree.fromstring(str(svg))
    assert svg.width <= 340
    assert len(svg.alt) > 50
    assert len(str(svg)) < 10_000
    for each in root.iter():
        if each.tag.endswith("rect"):
            x, y, w, h = (float(each.attrib[side]) for side in ("x", "y", "width", "height"))
            assert x >= 0 <= y
            assert w > 0 < h
            assert x + w <= svg.width + 0.5
            assert y + h <= svg.height + 0.5
        elif each.tag.endswith("text"):
            assert 0 <= float(each.attrib["x"]) <= svg.width
            assert 0 < float(each.attrib["y"]) <= svg.height


@pytest.mark.parametrize(
    ("expression", "value"),
    [("lx + 2u * WX", 37), ("(lx) ^ ((lx) / 4u % 4u * 2u)", 7), ("min(lx, WX) - 1u", 4), ("params.n % WX", 4)],
)
def test_expressions_of_wgsl_are_those_of_u32(expression, value):
    assert evaluate(expression, {"lx": 5, "WX": 16, "params_n": 100}) == value


@pytest.mark.parametrize("expression", ["lx + unknown", "load(1u)", "1.5", "lx +", "a[0]", "-lx"])
def test_other_expressions_are_refused(expression):
    with pytest.raises(ConfigError, match="no expression of known whole numbers"):
        evaluate(expression, {"lx": 5})


def test_an_unknown_tile_is_refused():
    with pytest.raises(ConfigError, match="no array d_tile"):
        tile_of(render(stage_of("gemm/shared"), problem_for("gemm", "64")).wgsl, "d_tile")


def test_lines_of_a_subgroup_are_those_of_its_elements():
    size, n = 256, access.COLUMNS
    cells = [divmod(index, n) for index in range(access.LANES)]
    at = access.read_by_lanes(stage_of("gemm/workgroup_1d", size=size))
    assert at == {"A": [4 * r * n for r, _ in cells], "B": [4 * c for _, c in cells], "C": [4 * i for i in range(32)]}
    assert {x: concepts.touched("gemm/workgroup_2d", x) for x in "ABC"} == {"A": "2", "B": "1", "C": "2"}
    assert {x: concepts.touched("gemm/workgroup_1d", x, "turned") for x in "ABC"} == {"A": "32", "B": "1", "C": "32"}


def conflicts(words):
    """Return the most different words that one of 32 banks must deliver."""
    by_bank = itertools.groupby(sorted(set(words), key=lambda word: word % 32), key=lambda word: word % 32)
    return max(len(list(group)) for _, group in by_bank)


@pytest.mark.parametrize("tn", [4, 8, 16])
def test_conflicts_of_reads_are_those_of_the_layout_in_words(tn):
    kernel = stage_of("gemm/blocked", tn=tn)
    adjacent = [lane * tn + word for lane in range(8) for word in range(4)]
    assert access.cycles(access.read_addresses(kernel, adjacent=True), 16) == conflicts(adjacent) == tn // 4
    assert access.cycles(access.read_addresses(kernel), 16) == 1


@pytest.mark.parametrize(
    ("dtype", "swizzled", "expected"), [("float32", False, 4), ("float64", False, 8), ("float64", True, 2)]
)
def test_conflicts_of_stores_are_those_of_the_layout_in_words(dtype, swizzled, expected):
    kernel, words = stage_of("gemm/pipelined"), []
    for lane in range(32):
        row, kk = lane // (kernel.bk // 4), lane % (kernel.bk // 4) * 4
        if dtype == "float32":
            words.append(kk * kernel.bm + row)
            continue
        four = row // 4 ^ (kk // 4 % 4 * 2 if swizzled else 0)
        pair = kk * kernel.bm // 2 + row % 4 // 2 * (kernel.bm // 4) + four  # two doubles, four words
        words += [4 * pair + row % 2 * 2, 4 * pair + row % 2 * 2 + 1]
    assert access.cycles(*access.store_addresses(kernel, dtype, swizzled)) == conflicts(words) == expected


def test_swizzled_reads_find_what_was_stored():
    kernel = stage_of("gemm/pipelined", unroll=1)
    wgsl = render(kernel, problem_for("gemm", "1024", "float64")).wgsl
    tile, stores = tile_of(wgsl, "a_tile"), list(access.accesses(wgsl, "a_tile", stores=True))
    stored = {}
    for lane in range(kernel.invocations):
        names = names_for(wgsl, local_index=lane)
        for number, indices in enumerate(stores[: 4 * kernel.a_loads]):
            load, j = divmod(number, 4)
            place = names[f"a_kk{load}"] + j, names[f"a_row{load}"]
            stored[place] = tile.address(indices, names)
    assert len(set(stored.values())) == len(stored) == kernel.bm * kernel.bk
    read = next(access.accesses(wgsl, "a_tile", stores=False))
    for lane, kk in itertools.product(range(0, kernel.invocations, 7), range(kernel.bk)):
        names = names_for(wgsl, local_index=lane, kk=kk)
        assert tile.address(read, names) == stored[kk, 4 * names["ly"]]


def test_tiles_are_in_the_order_that_groups_say():
    kernel, side = stage_of("gemm/pipelined", group=8), 4096
    rows, columns = side // kernel.bm, side // kernel.bn
    expected = [(g + r, c) for g in range(0, rows, 8) for c in range(columns) for r in range(8)]
    assert order.tiles_of(kernel, side, 300) == expected[:300]
    plain = stage_of("gemm/pipelined", group=1)
    assert order.tiles_of(plain, side, 300) == [divmod(i, columns) for i in range(300)]
    assert order.needed(plain, [(0, 0), (0, 1), (1, 1)]) == 2 * plain.bm + 2 * plain.bn


def test_barriers_of_shared_leave_no_race_and_each_of_them_is_needed():
    phases = order.phases_of(stage_of("gemm/shared"))
    assert phases == ["store", "barrier", "read", "barrier"]
    assert not order.early(order.timeline(phases))
    assert order.early(order.timeline(["store", "barrier", "read"]))
    assert order.early(order.timeline(["store", "read", "barrier"]))


def test_a_scheduler_is_busy_for_work_over_work_and_wait_until_it_is_full():
    for subgroups, share in ((1, 0.25), (2, 0.5), (4, 1.0), (8, 1.0)):
        spans = hardware.schedule(subgroups, 300, 100, 80_000)
        assert hardware.busy(spans, 4_000, 44_000) == pytest.approx(share, abs=0.01)


def test_what_fits_on_a_multiprocessor_is_limited_by_what_runs_out_first():
    count = hardware.traffic_of(stage_of("gemm/blocked"))
    assert hardware.resident(count) == (65_536 // (count.registers * 128) * 128, "its registers")
    assert hardware.resident(count._replace(workgroup_bytes=100_000)) == (256, "workgroup memory")
    assert hardware.resident(count._replace(registers=1, invocations=32, workgroup_bytes=0)) == (1024, "workgroups")


def test_memories_are_faster_the_nearer_they_are():
    rates = [memory.gbytes for memory in hardware.memories_of()]
    assert rates == sorted(rates, reverse=True)
    assert hardware.amount(hardware.memories_of()[0].nbytes) == "34.6 MB"


def test_points_under_the_roofline_are_recorded_and_counted():
    intensity, gflops = charts.point(stage_of("gemm/tile_2d"))
    assert (intensity, round(gflops)) == (1.0, 11_787)


def test_recorded_errors_keep_the_bound():
    for data in ("signed", "positive"):
        assert all(error < 2 * k for k, error in charts.errors(data))
    assert concepts.largest_error("positive", "4096") == "33"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: concepts.setting("gemm/pipelined", "h200-ablation", "4096", bm=256), "no record of gemm/pipelined"),
        (lambda: concepts.largest_error("positive", "100"), "no record of the errors"),
    ],
)
def test_figures_without_a_record_are_refused(call, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        call()
