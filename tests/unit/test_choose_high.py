"""When float32 is multiplied on matrix units, and into how many parts k is then divided."""

import dataclasses

import pytest
from test_choose_matrix_units import ABLE

from webmm.choose.gemm import attainable, made_for_matrix_units, runs_for
from webmm.errors import ConfigError
from webmm.kernels.gemm.matrix_unit_high import MatrixUnitHigh
from webmm.problems.gemm import gemm


class Device:
    """As much of a device as a choice looks at."""

    def __init__(self, capabilities):
        self.capabilities = capabilities


def test_large_products_of_float32_take_it_if_asked():
    problem = gemm(4096, 4096, 4096, precision="high")
    assert made_for_matrix_units(problem, ABLE) == [MatrixUnitHigh(runs=3)]
    assert attainable(problem, Device(ABLE)) == problem
    assert not made_for_matrix_units(dataclasses.replace(problem, precision="highest"), ABLE)


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (8, 65536, 512)])
def test_what_would_gain_nothing_stays_at_the_highest(size):
    assert attainable(gemm(*size, precision="high"), Device(ABLE)) == gemm(*size)


def test_without_matrix_units_high_is_highest():
    none = dataclasses.replace(ABLE, matrix_shapes=frozenset())
    assert attainable(gemm(4096, 4096, 4096, precision="high"), Device(none)) == gemm(4096, 4096, 4096)


def test_parts_grow_as_the_root_of_k_and_end_at_a_thousand():
    assert [runs_for(k) for k in (16, 900, 901, 4096, 8192, 8193, 32768, 10**6)] == [1, 1, 2, 3, 4, 16, 32, 64]


def test_the_setting_is_one_of_two(monkeypatch):
    from webmm.config import settings

    monkeypatch.setenv("WEBMM_PRECISION", "high")
    assert settings().precision == "high"
    monkeypatch.setenv("WEBMM_PRECISION", "low")
    with pytest.raises(ConfigError, match="WEBMM_PRECISION: precision is highest or high, not 'low'"):
        settings()
