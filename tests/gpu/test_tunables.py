"""Every candidate of every tunable: rendered, validated by naga, and run once (of tiles in registers, every other)."""

import dataclasses
import itertools

from products import check, describe, every_stage, runs, small

from webmm.kernels.gemm.blocked import RegisterTiled
from webmm.problems.gemm import gemm
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


@every_stage
def test_every_candidate(device, cls):
    kernels = {cls(): None}  # in this order
    for field in dataclasses.fields(cls):
        for candidate in field.metadata["candidates"]:
            kernel = with_candidate(device, cls, field.name, candidate)
            assert getattr(kernel, field.name) == candidate
            kernels[kernel] = None
    for i, kernel in enumerate(kernels):
        naga.translate(render(kernel, PROBLEM).wgsl, describe(kernel, PROBLEM))
        if not (issubclass(cls, RegisterTiled) and i % 2) and runs(device, kernel, PROBLEM):  # tiles.py runs all
            check(device, kernel, PROBLEM)
    assert len(kernels) == 1 or sum(kernel.check(PROBLEM, device.capabilities) is None for kernel in kernels) > 1
