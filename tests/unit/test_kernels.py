"""Kernels as data: tunables, constraints, grids, eligibility."""

import dataclasses
import itertools
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webmm.cases.attention import plain
from webmm.dtypes import F32
from webmm.errors import ConfigError
from webmm.kernels import BEYOND, KERNELS, LADDER, STAGES, configure, kernel_class, ladder
from webmm.kernels.base import LOOP_LIMIT, MAX_WORKGROUPS, Capabilities, tunable
from webmm.kernels.gemm.base import GemmKernel
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.persistent import Persistent
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.product import Grid
from webmm.kernels.traffic import moved
from webmm.problems.gemm import gemm
from webmm.wgsl.render import shader_folder

LIMITS = {
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-size-y": 1024,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroup-storage-size": 32_768,
    "max-storage-buffer-binding-size": 2**27,
    "max-compute-workgroups-per-dimension": 65_535,
    "max-buffer-size": 2**28,
    "max-texture-dimension-2d": 8192,
    "max-texture-array-layers": 256,
}


def engine(features=("shader-f16",), loop_limit=0, subgroup_size=8, **limits):
    changed = {name.replace("_", "-"): value for name, value in limits.items()}
    return Capabilities("this engine", LIMITS | changed, frozenset(features), loop_limit, subgroup_size)


# Tunables


def test_default_must_be_a_candidate():
    with pytest.raises(ConfigError, match=r"the default 3 is not among the candidates \(1, 2\)"):
        tunable(3, (1, 2), "anything")


@pytest.mark.parametrize("cls", LADDER, ids=lambda cls: cls.name)
def test_every_field_is_a_tunable_with_a_doc(cls):
    for field in dataclasses.fields(cls):
        assert field.default in field.metadata["candidates"]
        assert len(set(field.metadata["candidates"])) == len(field.metadata["candidates"]), "duplicate candidates"
        assert field.metadata["doc"]


@pytest.mark.parametrize("cls", LADDER, ids=lambda cls: cls.name)
def test_every_stage_has_a_template_of_its_name_and_valid_defaults(cls):
    assert (shader_folder() / cls().template).stem == cls.name
    assert (shader_folder() / cls().template).is_file()
    assert cls.summary
    assert cls().invalid() is None


@dataclass(frozen=True)
class Odd(GemmKernel):
    name = "odd"
    summary = "for this test"

    x: int = tunable(1, (0, 1, 2, 3), "first")
    y: str = tunable("left", ("left", "right"), "second")

    def constraints(self):
        yield self.x != 2 or self.y != "right", "2 goes left"


def test_space_is_every_combination_that_satisfies_the_constraints():
    found = [(kernel.x, kernel.y) for kernel in Odd.space()]
    assert found == [pair for pair in itertools.product((1, 2, 3), ("left", "right")) if pair != (2, "right")]


@pytest.mark.parametrize("cls", LADDER, ids=lambda cls: cls.name)
def test_space_holds_the_default_and_every_candidate_of_every_tunable(cls):
    space = list(cls.space())
    assert cls() in space
    for field in dataclasses.fields(cls):
        assert {getattr(kernel, field.name) for kernel in space} == set(field.metadata["candidates"]), field.name


def test_invalid_says_why():
    assert Odd().invalid() is None
    assert Odd(x=0).invalid() == "x must be at least 1, not 0"
    assert Odd(y="up").invalid() == "y must be one of left, right, not 'up'"
    assert Odd(2, "right").invalid() == "2 goes left"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tm": 6}, "tm = 6 must be a multiple of 4"),
        ({"tn": 2}, "tn = 2 must be a multiple of 4"),
        ({"bm": 60}, "bm = 60 must be a multiple of tm = 8"),
        ({"bn": 36}, "bn = 36 must be a multiple of tn = 8"),
        ({"bk": 16, "unroll": 3}, "bk = 16 must be a multiple of unroll = 3"),
        ({"bm": 32, "bn": 128, "bk": 4, "unroll": 4, "tm": 4, "tn": 4}, "cannot share evenly"),
    ],
)
@pytest.mark.parametrize("cls", [Blocked, Pipelined, Persistent], ids=lambda cls: cls.name)
def test_invalid_register_tiles_are_refused(cls, settings, words):
    assert words in cls(**settings).invalid()


def test_register_tiles_load_every_vec4_of_a_tile():
    # The template's divisions must be exact, or part of a tile would never be loaded.
    for kernel in Blocked.space():
        assert kernel.a_loads * kernel.invocations * 4 == kernel.bm * kernel.bk
        assert kernel.b_loads * kernel.invocations * 4 == kernel.bn * kernel.bk
        assert kernel.wx * kernel.tn == kernel.bn
        assert kernel.wy * kernel.tm == kernel.bm


def test_double_buffering_takes_twice_the_memory():
    one, two = Pipelined(prefetch="registers"), Pipelined(prefetch="workgroup")
    assert two.workgroup_bytes == 2 * one.workgroup_bytes == 2 * (64 + 128 + 8) * 16 * 4


# The ladders


@pytest.mark.parametrize("op", STAGES)
def test_a_stage_comes_after_the_stage_it_follows(op):
    names = list(STAGES[op])
    assert STAGES[op][names[0]].follows == ""
    for name, cls in STAGES[op].items():
        assert (cls.name, cls.op) == (name, op)
        assert (shader_folder() / cls().template).is_file()
        assert cls.follows == "" or names.index(cls.follows) < names.index(name)


def stage(called, follows, like=Naive):
    return type(called, (like,), {"name": called, "follows": follows})


def test_ladder_orders_stages_by_follows():
    chain = [stage("one", ""), stage("two", "one"), stage("three", "two"), stage("four", "three")]
    more = [stage("last", "two"), stage("all", "two"), stage("unit", "one", MatrixUnit)]
    found = [cls.name for cls in ladder({cls.name: cls for cls in (*reversed(chain), *more)})]
    assert found == ["one", "two", "all", "last", "three", "four", "unit"]
    with pytest.raises(ConfigError, match="lost of gemm follows 'nope', which is not a stage"):
        list(ladder({"one": chain[0], "lost": stage("lost", "nope")}))


def test_helper_kernels_are_not_stages():
    names = {name for stages in STAGES.values() for name in stages}
    assert not names & {"pack_b", "sum_splits", "row_parts", "column_parts"}


# By name


def test_configure_sets_tunables_from_text():
    kernel = configure("pipelined", {"bm": "32", "prefetch": "workgroup"})
    assert kernel == Pipelined(bm=32, prefetch="workgroup")
    assert configure("naive", {}) == Naive()
    assert kernel_class("shared") is Shared
    assert str(configure("shared", {"tile": "8"})) == "shared(tile=8)"
    assert list(KERNELS) == [cls.name for cls in (*LADDER, *BEYOND)]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("nope", {}, r"unknown kernel 'nope'; choose from naive, workgroup_1d"),
        ("shared", {"bm": "1"}, r"shared has no tunable 'bm'; its tunables: tile"),
        ("naive", {"tile": "1"}, r"naive has no tunable 'tile'; its tunables: it has none"),
        ("shared", {"tile": "big"}, r"shared\.tile takes an integer, not 'big'"),
        ("shared", {"tile": "8.5"}, r"shared\.tile takes an integer, not '8.5'"),
    ],
)
def test_configure_lists_the_known_names(name, settings, words):
    with pytest.raises(ConfigError, match=words):
        configure(name, settings)


# Grids


@pytest.mark.parametrize(
    ("m", "n", "tiles"), [(1, 1, 1), (8, 4, 1), (9, 4, 2), (8, 5, 2), (9, 5, 4), (7, 3, 1), (16, 8, 4), (17, 9, 9)]
)
def test_partial_tiles_are_counted(m, n, tiles):
    assert Grid(8, 4).tiles(gemm(m, n, 1)) == tiles
    assert Grid(8, 4).dispatch(gemm(m, n, 1)) == (tiles, 1, 1)


@pytest.mark.parametrize(("m", "n", "groups"), [(5, 51, 1), (16, 16, 1), (1, 257, 2), (16, 32, 2), (27, 19, 3)])
def test_partial_runs_of_elements_are_counted(m, n, groups):
    assert Grid(elements=256).dispatch(gemm(m, n, 1)) == (groups, 1, 1)


def test_batch_is_z():
    assert Grid(8, 8).dispatch(gemm(9, 8, 1, batch=3)) == (2, 1, 3)


def test_at_most_caps_the_grid():
    assert Grid(1, 1, at_most=100).dispatch(gemm(10, 9, 1)) == (90, 1, 1)
    assert Grid(1, 1, at_most=100).dispatch(gemm(10, 11, 1)) == (100, 1, 1)


@given(st.integers(1, 65_535), st.integers(1, 65_535))
@example(65_535, 1)
@example(32_768, 2)
@example(257, 257)
@example(65_535, 65_535)
def test_folding_covers_every_tile_within_the_limit(m, n):
    x, y, z = Grid().dispatch(gemm(m, n, 1))
    assert x <= MAX_WORKGROUPS
    assert y <= MAX_WORKGROUPS
    assert z == 1
    # All tiles are covered, with fewer than y surplus workgroups.
    assert m * n <= x * y < m * n + y


def test_a_grid_beyond_folding_is_refused():
    assert Naive().check(gemm(65_535, 65_535, 1), engine(max_storage_buffer_binding_size=2**40)) is None
    reason = Naive().check(gemm(65_536, 65_535, 1), engine(max_storage_buffer_binding_size=2**40))
    assert reason == "needs 65,536 workgroups in one dimension, this engine has 65,535"


# Eligibility: the reason states the need and the limit


@pytest.mark.parametrize(
    ("kernel", "problem", "device", "reason"),
    [
        (Shared(32), gemm(1, 1, 1), engine(), None),
        (
            Pipelined(bm=128, bn=128, bk=32, unroll=16, prefetch="workgroup"),
            gemm(1, 1, 1),
            engine(),
            "needs 67,584 bytes of workgroup memory, this engine has 32,768",
        ),
        (
            Shared(32),
            gemm(1, 1, 1),
            engine(max_compute_invocations_per_workgroup=256),
            "needs 1,024 invocations per workgroup, this engine has 256",
        ),
        (
            Shared(32),
            gemm(1, 1, 1),
            engine(max_compute_workgroup_size_x=16),
            "needs 32 invocations along x, this engine has 16",
        ),
        (
            Shared(32),
            gemm(1, 1, 1),
            engine(max_compute_workgroup_size_y=16),
            "needs 32 invocations along y, this engine has 16",
        ),
        (
            Naive(),
            gemm(1, 2**15, 2**11),
            engine(),
            "needs 268,435,456 bytes in one binding, this engine has 134,217,728",
        ),
        (Naive(), gemm(1, 2**15, 2**11, dtype="f16"), engine(), None),
        (
            Naive(),
            gemm(1, 2**15, 2**11, dtype="f16"),
            engine(features=()),
            "needs the feature shader-f16, which this engine does not have",
        ),
        (
            Naive(),
            gemm(1, 1, 1, batch=65_536),
            engine(),
            "needs 65,536 workgroups in one dimension, this engine has 65,535",
        ),
        (
            Blocked(bk=8, unroll=1),
            gemm(1, 1, 100_003),
            engine(loop_limit=LOOP_LIMIT),
            "needs 125,010 loop iterations, this engine stops at 65,535",
        ),
        (Blocked(bk=8, unroll=1), gemm(1, 1, 100_003), engine(), None),
        (Blocked(), gemm(1, 1, 100_003), engine(loop_limit=LOOP_LIMIT), None),
        (CpuLanes(), gemm(1, 1, 1), engine(), None),
        (CpuLanes(lanes=4), gemm(1, 1, 1), engine(subgroup_size=4), None),
        (CpuLanes(), gemm(1, 1, 1), engine(subgroup_size=4), "needs subgroups of 8 lanes, this engine has 4"),
        (CpuLanes(), gemm(1, 1, 1), engine(subgroup_size=0), "needs subgroups of 8 lanes, this engine has none"),
        (Blocked(tm=6), gemm(1, 1, 1), engine(), "tm = 6 must be a multiple of 4: fragments are vec4"),
    ],
)
def test_reason_names_the_need_and_the_limit(kernel, problem, device, reason):
    assert kernel.check(problem, device) == reason


def test_limits_are_inclusive():
    exact = engine(max_compute_workgroup_storage_size=2 * 16 * 16 * 4, max_compute_invocations_per_workgroup=256)
    assert Shared(16).check(gemm(1, 1, 1), exact) is None
    assert Naive().check(gemm(1, 2**14, 2**11), engine()) is None  # 2^27 bytes in one binding
    assert Naive().check(gemm(1, 1, 1, batch=65_535), engine()) is None


def test_loops_over_a_long_k_are_unrolled():
    assert not Naive().specialise(gemm(1, 1, LOOP_LIMIT)).long_k
    assert Naive().specialise(gemm(1, 1, LOOP_LIMIT + 1)).long_k
    assert not Shared().specialise(gemm(1, 1, LOOP_LIMIT + 1)).long_k
    assert Naive().iterations(gemm(1, 1, LOOP_LIMIT)) == LOOP_LIMIT
    assert Naive().iterations(gemm(1, 1, LOOP_LIMIT + 1)) == 4096


@pytest.mark.parametrize("cls", LADDER, ids=lambda cls: cls.name)
def test_long_k_is_within_the_loop_limit_of_every_default(cls):
    assert cls().check(gemm(3, 5, 100_003), engine(loop_limit=LOOP_LIMIT)) is None


@pytest.mark.parametrize("tile", [1, 3, 8, 100])
@pytest.mark.parametrize(("left", "right", "shift"), [(-1, -1, 0), (-1, 0, 0), (-1, 0, 5), (4, 2, -7), (0, 3, -40)])
def test_the_keys_of_tiles_of_queries(tile, left, right, shift):
    problem = dataclasses.replace(plain((1, 1, 29, 33, 8), F32), left=left, right=right, shift=shift)
    seen = [
        {j for j in range(33) if (left < 0 or j >= i + shift - left) and (right < 0 or j <= i + shift + right)}
        for i in range(29)
    ]
    tiles = [set().union(*seen[first : first + tile]) for first in range(0, 29, tile)]
    assert problem.tile_pairs(tile) == max(1, sum(map(len, tiles)))
    assert problem.tile_pairs(1) == problem.pairs


def test_the_bytes_that_attention_moves():
    """4 heads, 128 queries, 256 keys, width 64 in float32: q and o of a head are 32 KiB each, k and v 64 KiB each."""
    problem, kib = plain((1, 4, 128, 256, 64), F32), 1024
    stages = STAGES["attention"]
    made = {
        stages["online"](64, 64): 32 + 32 + 128 * 128,  # each query reads k and v
        stages["blocked"](64, 64, bq=64): 32 + 32 + 2 * 128,  # each of two tiles does
        stages["blocked"](64, 64, bq=64, bk=32, span=32): 32 + 2 * 128 + 2 * 8 * 16,  # q again in each of eight steps
        stages["pipelined"](64, 64, bq=64, bk=32, tm=4, span=64, direct="v"): 32 + 32 + 2 * 64 + 2 * 16 * 64,
        # q has no tile: each of four invocations reads its rows in each of 32 steps
        stages["pipelined"](64, 64, bq=64, bk=16, tm=4, wx=4, span=16, direct="kv"): 32 + 2 * 16 * 128 + 4 * 32 * 16,
        stages["cpu_lanes"](tm=16, tn=8, load="buffer"): 32 + 32 + 8 * 128,
        stages["cpu_lanes"](tm=16, tn=8): 32 + 32 + 8 * 128 + 2 * 128,  # k and v are copied
        stages["decode"](64, 64, tm=4, splits=1): 32 + 32 + 32 * 128,
        stages["decode"](64, 64, tm=4, splits=2): 2 * 32 + 32 * 128 + 2 * 68 + 32,  # partial results, twice
        # 16 × 16 × 32 fragments read four rows of q and k, 16 × 16 · 32 four weights and v; scores are moved five times
        stages["three_calls"](): 32 * 64 * 2 + 5 * 128 + 32 * 16 * 256 * 32 / kib + 32,
    }
    for kernel, each in made.items():
        assert kernel.moves(problem) == 4 * kib * each, kernel
        assert moved(kernel, problem).storage == 4 * kib * each
    half = dataclasses.replace(problem, queries=256, right=0)  # causal: half of the keys, and those of half a tile
    assert moved(stages["blocked"](64, 64, bq=64), half).storage == 4 * kib * (64 + 64 + (64 + 128 + 192 + 256) / 2)


def test_the_page_shows_what_attention_moves_for_every_stage():
    problem = plain((2, 8, 1000, 1000, 64), F32, True)
    for stage in STAGES["attention"].values():
        assert moved(stage(), problem).storage > 1.3 * problem.bytes
