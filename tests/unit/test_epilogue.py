"""Epilogues as values: their formula, the terms that reach the shader, and the terms of each part when k is split."""

import dataclasses

import numpy as np
import pytest

from webmm.errors import ProblemError
from webmm.kernels.gemm.base import GemmParams
from webmm.problems.gemm import gemm
from webmm.wgsl.epilogues import OF_WHOLE_SUMS, EpilogueParams, Terms
from webmm.wgsl.params import layout

PRODUCT, HELD, BIAS = np.array([[-3.0, 1.0]]), np.array([[4.0, 8.0]]), np.array([1.0, -2.0])


@pytest.mark.parametrize(
    ("epilogue", "expected"),
    [
        (Terms(), [-2, -1]),
        (Terms(alpha=2), [-5, 0]),
        (Terms(alpha=-2, activation="relu"), [7, 0]),
        (Terms(beta=0.5, activation="relu"), [2, 4]),
    ],
    ids=["bias", "alpha before the bias", "activation after it", "beta last"],
)
def test_reference_follows_the_formula(epilogue, expected):
    assert epilogue.reference(PRODUCT, HELD, BIAS).tolist() == [expected]


def test_only_terms_with_an_effect_reach_the_shader():
    assert Terms().terms == frozenset()
    assert Terms(alpha=0.0, beta=3.0, bias="row", activation="silu").terms == {"alpha", "beta"}
    trial = Terms(alpha=3.0).trial
    assert (trial["alpha"], trial["beta"]) == (0.5, 0.0)


def test_every_number_is_in_the_uniform():
    names = [number.name for number in dataclasses.fields(EpilogueParams)]
    values = {name: 3.0 + i for i, name in enumerate(names)}
    assert [member.name for member in layout(GemmParams).members][-len(names) :] == names
    params = GemmParams.of(dataclasses.replace(gemm(2, 3, 4), **values))
    assert {name: getattr(params, name) for name in names} == values


def test_parts_of_k_omit_terms_that_need_the_whole_sum():
    whole = Terms(alpha=2.0, bias="row", activation="gelu")
    assert whole.needs_whole_sum
    part = dataclasses.replace(whole, **OF_WHOLE_SUMS)
    assert part == Terms(alpha=2.0, bias="row")
    assert not part.needs_whole_sum


@pytest.mark.parametrize("wrong", [{"bias": "diagonal"}, {"activation": "nope"}])
def test_unknown_bias_or_activation_is_refused(wrong):
    with pytest.raises(ProblemError, match=r"bias must be one of|unknown activation"):
        Terms(**wrong)
