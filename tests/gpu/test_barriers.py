"""Every barrier of every stage of every op is needed: without it, a result is wrong.

Each shader runs with its invocations in both orders: `webmm.foreign.lanes` explains why that exposes a missing barrier
on lavapipe.
"""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest

from tests.sampled import sampled
from webmm.cases import OPS, op_of
from webmm.cases.base import Op
from webmm.engine.timing import submit
from webmm.errors import ConfigError
from webmm.foreign.lanes import in_reverse
from webmm.wgsl.render import render

BARRIER = re.compile(r"(?:workgroup|storage|texture|subgroup)Barrier\(\);(?: // (.+))?")
SMALL = {
    "bm": 32,
    "bn": 32,
    "bk": 8,
    "tm": 4,
    "tn": 4,
    "unroll": 1,
}  # compile quickly; for stages with all of these tunables
PERSISTENT = {"workgroups": 1}  # one workgroup for all tiles
# As many parts as a workgroup has invocations, none of them empty: empty parts would hide a missing barrier.
PARTS = {
    "reduce": {"lanes": 64, "splits": 64, "unroll": 1},
    "normalise": {"lanes": 32, "unroll": 1},  # a tree of five levels, which is compiled sooner than one of eight
    "attention": {
        "columns": 32,
        "values": 64,
        "bq": 8,
        "bk": 64,
        "tm": 1,
        "wx": 16,
        "size": 64,
        "splits": 2,
        "teams": 2,
        "unroll": 1,
    },
}
LANES = {"lanes": 8}  # of lavapipe's subgroups, for kernels that need exactly so many
# Sizes per op. For ops not listed: several tiles in both dimensions, and several steps of k.
SIZES = {
    "reduce": (3, 64 * 1024, 1),
    "normalise": (3, 4096, 16),
    "elementwise": (1024, 1, 1),
    "attention": (11, 140, 20, 2),
}
# The variants to test for ops whose variants have different barriers.
VARIANTS = {"normalise": ("normalise:softmax", "normalise:layer_norm")}

# By the comment of a barrier: why lavapipe may not need it, and how many such barriers a shader may have.
ONLY_ON_GPUS = {
    **{
        f"{halves} are merged before anyone reads them": (
            "the last halves are merged by lanes of one subgroup, which run in lockstep",
            lambda device: math.log2(device.capabilities.subgroup_size),
        )
        for halves in ("the halves", "the halves of top", "the halves of sum")
    },
    "the result is written before it is read": ("only the invocation that merged it uses it", lambda device: 1),
    **{
        f"the subgroup {words}": ("the workgroup is one subgroup, which runs in lockstep", lambda device: 1)
        for words in ("has all weights before it reads them", "is done with the weights before it overwrites them")
    },
}


# Refused without matrix units: test_matrix_unit.py, test_fragments.py and others test these with emulation.
ELSEWHERE = {"matrix_unit", "matrix_unit_f32"}


def problem_of(op, kernel):
    size = SIZES.get(op.name, (130, 140, 5 * getattr(kernel, "inner_step", 8)))
    problems = (op.problem(size, dtype.name, "nn") for dtype in op.dtypes)
    return next((problem for problem in problems if not kernel.unsuited(problem)), None)


def cases_of(device, op, problem):
    """Return cases with the same shader, of which one at least is wrong if a barrier is missing."""
    # Scores far from each other: weights become infinite if their maximum is not the largest one.
    far = [dataclasses.replace(problem, scale=256.0)] if op.name == "attention" else []
    return [op.case(device, each) for each in (problem, *far)]


def kernels_of(op, cls):
    """Yield the stage with small tiles, for every combination of its text-valued tunables."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    wanted = (SMALL if SMALL.keys() <= fields.keys() else {}) | PERSISTENT | PARTS.get(op.name, {})
    wanted |= LANES if cls.exact else {}
    settings = {name: value for name, value in wanted.items() if name in fields}
    choices = {name: field.metadata["candidates"] for name, field in fields.items() if isinstance(field.default, str)}
    for values in itertools.product(*choices.values()):
        yield cls(**settings, **dict(zip(choices, values, strict=True)))


def with_barriers():
    """Yield (op, kernel) for each stage with barriers, once per distinct sequence of barriers."""
    ops = [op_of(variant) for name in OPS for variant in VARIANTS.get(name, (name,))]
    for op, cls in [(each, cls) for each in ops for cls in each.stages]:
        seen = set()
        for kernel in (each for each in kernels_of(op, cls) if "naga" not in each.not_in and problem_of(op, each)):
            texts = [render(part, problem_of(op, kernel)).wgsl for part in kernel.dispatches]
            barriers = tuple(tuple(BARRIER.findall(text)) for text in texts)
            assert all("Barrier" in text or "var<workgroup>" not in text for text in texts), kernel
            if any(barriers) and barriers not in seen:
                seen.add(barriers)
                yield op, kernel


def reversed_order(kernel, text):
    """Return `text` with the invocations of a workgroup in reverse order, or unchanged if that is not possible."""
    try:
        return in_reverse(text, kernel.workgroup_size)
    except ConfigError:
        return text


def right(device, cases, kernel, part, wgsl):
    """Return whether all results are right with `wgsl` as the shader of `part`, one of the kernel's dispatches."""
    pipeline = device.compile(wgsl, "mutated", render(part, cases[0].problem).bindings)
    return all(right_with(pipeline, device, case, kernel, part) for case in cases)


def right_with(pipeline, device, case, kernel, part):
    """Return whether the result is right after one of zeros: workgroup memory may still have this case's values."""
    extents = case.problem.buffers()
    blank = [device.array(np.zeros(extent.end, extent.dtype.numpy)) for extent in extents]
    submit(device, device.launch(kernel, case.problem, *blank))
    (written,) = (extent for extent in extents if extent.written)
    with device.array(np.zeros(written.end, written.dtype.numpy)) as result:
        arrays = [result if extent.written else case.inputs[extent.name] for extent in extents]
        steps = list(device.launch(kernel, case.problem, *arrays).steps())
        i = kernel.dispatches.index(part)
        steps[i] = dataclasses.replace(steps[i], pipeline=pipeline)
        submit(device, dataclasses.replace(steps[-1], before=tuple(steps[:-1])))
        return case.error(result.numpy()) <= case.bound


@pytest.mark.parametrize(
    ("op", "kernel"), sampled(with_barriers(), 3, 1), ids=lambda x: x.name if isinstance(x, Op) else str(x)
)
def test_every_barrier_is_needed(device, op, kernel):
    if device.info.kind != "cpu":
        pytest.skip("a GPU may run the lanes of a workgroup in step, so that a missing barrier does not show")
    problem = problem_of(op, kernel)
    if reason := kernel.check(problem, device.capabilities):
        lacking = reason.startswith("needs subgroups of")
        assert kernel.name in ELSEWHERE or lacking, f"{kernel} is refused: {reason}"
        return
    cases = cases_of(device, op, problem)
    for part in kernel.dispatches:
        text = render(part, problem).wgsl
        assert right(device, cases, kernel, part, text)
        # The reverse order gives wrong results if lanes are also numbered by subgroup: skip it there.
        orders = [text] + [t for t in (reversed_order(part, text),) if right(device, cases, kernel, part, t)]
        unneeded = []
        for i, barrier in enumerate(BARRIER.finditer(text)):
            assert barrier[1], f"a barrier of {part.name} does not say what it protects"
            if all(right(device, cases, kernel, part, without(order, i)) for order in orders):
                assert barrier[1] in ONLY_ON_GPUS, f"{part.name} does not need {barrier[0]}"
                unneeded.append(barrier[1])
        for purpose in unneeded:
            _, most = ONLY_ON_GPUS[purpose]
            assert unneeded.count(purpose) <= most(device), f"{part.name} does not need {purpose}"


def without(text, i):
    """Return `text` without its i-th barrier."""
    barrier = list(BARRIER.finditer(text))[i]
    return text[: barrier.start()] + text[barrier.end() :]
