"""Every candidate of every tunable: rendered, validated by naga, and run once."""

import dataclasses

from products import check, describe, every_stage

from webmm import naga
from webmm.problem import gemm
from webmm.render import render

PROBLEM = gemm(37, 70, 45)  # several steps along k in every stage, nothing aligned


def with_candidate(device, cls, name, candidate):
    """Return the stage with the candidate, the others at their defaults; else the first combination that works here."""
    kernels = [dataclasses.replace(cls(), **{name: candidate}), *cls.space()]
    return next(
        kernel
        for kernel in kernels
        if getattr(kernel, name) == candidate and kernel.check(PROBLEM, device.capabilities) is None
    )


@every_stage
def test_every_candidate(device, cls):
    seen = set()
    for field in dataclasses.fields(cls):
        for candidate in field.metadata["candidates"]:
            kernel = with_candidate(device, cls, field.name, candidate)
            assert getattr(kernel, field.name) == candidate
            if kernel not in seen:
                seen.add(kernel)
                naga.translate(render(kernel, PROBLEM).wgsl, describe(kernel, PROBLEM))
                check(device, kernel, PROBLEM)
