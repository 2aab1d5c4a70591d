"""When float32 products use matrix units (precision "high"), and how k is then divided."""

import dataclasses

import pytest
from test_choose_fields import UNITS as ABLE

from webmm.choose.gemm import asked, attainable, made_for_precision
from webmm.cut.dispatches import dispatches
from webmm.cut.pieces import Limits
from webmm.errors import ConfigError
from webmm.kernels.gemm.matrix_unit_high import MatrixUnitHigh
from webmm.problems.gemm import gemm

UNLIMITED = Limits(2**40, 2.0**80)


class Device:
    """The only member of a device that a choice reads."""

    def __init__(self, capabilities):
        self.capabilities = capabilities


def test_large_float32_products_use_matrix_units_on_request():
    problem = gemm(4096, 4096, 4096, precision="high")
    assert made_for_precision(problem, ABLE) == [MatrixUnitHigh(bk=32, sm=32, phases=2), MatrixUnitHigh(phases=2)]
    assert attainable(problem, Device(ABLE)) == problem
    assert not made_for_precision(dataclasses.replace(problem, precision="highest"), ABLE)


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (8, 65536, 512), (4096, 4096, 31)])
def test_small_or_narrow_products_stay_at_highest(size):
    assert attainable(gemm(*size, precision="high"), Device(ABLE)) == gemm(*size)


def test_without_matrix_units_high_becomes_highest():
    none = dataclasses.replace(ABLE, matrix_shapes=frozenset())
    assert attainable(gemm(4096, 4096, 4096, precision="high"), Device(none)) == gemm(4096, 4096, 4096)


def test_long_sums_have_two_phases():
    made = [made_for_precision(gemm(4096, 4096, k, precision="high"), ABLE) for k in (32, 1024, 1025, 8192)]
    assert [kernels[0].phases for kernels in made] == [1, 1, 2, 2]


def test_two_tiles_per_multiprocessor_run_at_once():
    """Of HIGH_TILES, the second has smaller workgroups, of which a multiprocessor runs two."""
    first = [made_for_precision(gemm(n, n, n, precision="high"), ABLE)[0] for n in (1536, 2048, 4096)]
    assert [kernel.invocations for kernel in first] == [128, 128, 256]


def test_precision_setting_is_high_or_highest(monkeypatch):
    from webmm.config import settings

    monkeypatch.setenv("WEBMM_PRECISION", "high")
    assert settings().precision == "high"
    monkeypatch.setenv("WEBMM_PRECISION", "low")
    with pytest.raises(ConfigError, match="WEBMM_PRECISION: precision must be highest or high, not 'low'"):
        settings()


def test_long_k_is_split_into_short_pieces():
    for (m, n, k), sums in (((4096, 4096, 32768), 8192), ((16384, 16384, 16384), 8192), ((512, 4096, 8192), 8192)):
        whole = gemm(m, n, k, precision="high")
        assert {piece.problem.k for piece in dispatches(whole, UNLIMITED, asked)} == {sums}
        assert len(dispatches(dataclasses.replace(whole, precision="highest"), UNLIMITED, asked)) == 1


def test_batches_with_long_k_are_not_split_and_use_highest():
    whole = gemm(256, 256, 16384, batch=100, precision="high")
    assert attainable(whole, Device(ABLE)) == dataclasses.replace(whole, precision="highest")
    assert len(dispatches(whole, UNLIMITED, asked)) == 1
    short = dataclasses.replace(whole, k=4096, a=dataclasses.replace(whole.a, ld=4096))
    assert attainable(short, Device(ABLE)) == short


def test_too_little_workgroup_memory_falls_back_to_highest():
    problem = gemm(4096, 4096, 4096, precision="high")
    small = dataclasses.replace(ABLE, limits={**ABLE.limits, "max-compute-workgroup-storage-size": 16384})
    assert attainable(problem, Device(small)).precision == "highest"


def test_sums_of_the_first_phase_fit_a_binding():
    problem = gemm(4000, 4000, 4096, precision="high")  # with whole tiles, C has 4096²
    for binding, rows in ((2**26 - 4, 2048), (2**26, 4000)):
        cut = [piece.problem for piece in dispatches(problem, Limits(binding, 2.0**80), asked)]
        assert ({piece.m for piece in cut} | {rows}, {piece.k for piece in cut}) == ({rows, 4000 - rows} - {0}, {4096})
