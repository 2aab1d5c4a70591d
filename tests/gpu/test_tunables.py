"""Every candidate of every tunable: rendered, validated by naga, and run once; of tiles in registers, every fifth."""

import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import tiles
from products import check, describe, other_stages, runs, small

from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.kernels.reduce.tree import Alone
from webmm.problems.gemm import gemm
from webmm.problems.reduce import reduction
from webmm.wgsl import naga
from webmm.wgsl.render import render

PROBLEM = gemm(128, 128, 64)  # whole tiles for every candidate: guards compile slowly, and have separate tests


def with_candidate(device, cls, name, candidate):
    """Return the stage with the candidate and small tiles or defaults, or the first combination the device can run."""
    starts = (dataclasses.replace(start, **{name: candidate}) for start in (small(cls), cls()))
    kernels = itertools.chain(starts, cls.space())
    valid = (kernel for kernel in kernels if getattr(kernel, name) == candidate and kernel.invalid() is None)
    first = next(valid)
    runnable = (k for k in itertools.chain([first], valid) if k.check(PROBLEM, device.capabilities) is None)
    return next(runnable, first)  # a candidate for other devices only is still rendered and validated


@other_stages(1, 8)  # the others: test_random.py
def test_every_candidate(device, cls):
    kernels = {cls(): None}  # in this order
    for field in dataclasses.fields(cls):
        for candidate in field.metadata["candidates"]:
            kernel = with_candidate(device, cls, field.name, candidate)
            assert getattr(kernel, field.name) == candidate
            kernels[kernel] = None
    for i, kernel in enumerate(kernels):
        naga.translate(render(kernel, PROBLEM).wgsl, describe(kernel, PROBLEM))
        if not (issubclass(cls, RegisterTiled) and i % 5 != 1) and runs(
            device, kernel, PROBLEM
        ):  # the default compiles slowly; tiles.py runs all
            check(device, kernel, PROBLEM)
    assert len(kernels) == 1 or sum(kernel.check(PROBLEM, device.capabilities) is None for kernel in kernels) > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_that_no_device_runs_are_validated(monkeypatch, dtype):
    """The long run's tiles: in both dialects, float64 in naga's only."""
    monkeypatch.setattr(Alone, "check", lambda *_: "beyond a limit")
    outcome = tiles.outcome(
        Alone(64, 2), [reduction(8, 100, "prod", dtype=dtype)], [], SimpleNamespace(capabilities=None)
    )
    assert outcome == (tiles.VALID, "")
