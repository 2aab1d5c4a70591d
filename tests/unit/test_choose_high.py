"""When float32 is multiplied on matrix units, and into how many parts k is then divided."""

import dataclasses

import pytest
from test_choose_matrix_units import ABLE

from webmm.calls.parts import Limits, parts
from webmm.choose.gemm import attainable, made_for_matrix_units, runs_for
from webmm.errors import ConfigError
from webmm.kernels.gemm.matrix_unit_high import MatrixUnitHigh
from webmm.problems.gemm import gemm

ENDLESS = Limits(2**40, 2.0**80)


class Device:
    """As much of a device as a choice looks at."""

    def __init__(self, capabilities):
        self.capabilities = capabilities


def test_large_products_of_float32_take_it_if_asked():
    problem = gemm(4096, 4096, 4096, precision="high")
    assert made_for_matrix_units(problem, ABLE) == [MatrixUnitHigh(bk=32, sm=32, runs=4), MatrixUnitHigh(runs=4)]
    assert attainable(problem, Device(ABLE)) == problem
    assert not made_for_matrix_units(dataclasses.replace(problem, precision="highest"), ABLE)


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (8, 65536, 512)])
def test_what_would_gain_nothing_stays_at_the_highest(size):
    assert attainable(gemm(*size, precision="high"), Device(ABLE)) == gemm(*size)


def test_without_matrix_units_high_is_highest():
    none = dataclasses.replace(ABLE, matrix_shapes=frozenset())
    assert attainable(gemm(4096, 4096, 4096, precision="high"), Device(none)) == gemm(4096, 4096, 4096)


def test_parts_grow_as_the_root_of_k_and_end_at_a_thousand():
    assert [runs_for(k) for k in (16, 900, 901, 4096, 5000, 8192, 10**6)] == [1, 1, 2, 4, 6, 8, 8]


def test_the_setting_is_one_of_two(monkeypatch):
    from webmm.config import settings

    monkeypatch.setenv("WEBMM_PRECISION", "high")
    assert settings().precision == "high"
    monkeypatch.setenv("WEBMM_PRECISION", "low")
    with pytest.raises(ConfigError, match="WEBMM_PRECISION: precision must be highest or high, not 'low'"):
        settings()


def test_long_sums_are_cut_so_that_parts_stay_short_and_what_waits_in_storage_small():
    for (m, n, k), sums in (((4096, 4096, 32768), 8192), ((16384, 16384, 16384), 2048), ((512, 4096, 8192), 8192)):
        whole = gemm(m, n, k, precision="high")
        assert {part.problem.k for part in parts(whole, ENDLESS)} == {sums}
        assert len(parts(dataclasses.replace(whole, precision="highest"), ENDLESS)) == 1


def test_batches_of_long_sums_stay_whole_at_the_highest():
    whole = gemm(256, 256, 16384, batch=100, precision="high")
    assert attainable(whole, Device(ABLE)) == dataclasses.replace(whole, precision="highest")
    assert len(parts(whole, ENDLESS)) == 1
    short = dataclasses.replace(whole, k=4096, a=dataclasses.replace(whole.a, ld=4096))
    assert attainable(short, Device(ABLE)) == short


def test_a_device_without_room_for_its_tiles_stays_at_the_highest():
    problem = gemm(4096, 4096, 4096, precision="high")
    small = dataclasses.replace(ABLE, limits={**ABLE.limits, "max-compute-workgroup-storage-size": 16384})
    assert attainable(problem, Device(small)).precision == "highest"


def test_sums_that_wait_fit_a_binding():
    problem, binding = gemm(4096, 4096, 4096, precision="high"), 2**27
    assert {part.problem.k for part in parts(problem, Limits(binding, 2.0**80))} == {2048}
    assert {part.problem.k for part in parts(problem, Limits(2**31, 2.0**80))} == {4096}
