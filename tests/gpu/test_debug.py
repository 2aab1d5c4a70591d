"""Debug shaders of float products: every stage records its values for an element; the first wrong value is found."""

import io
import json

import numpy as np
import pytest
from products import other_stages, small
from rich.console import Console

from webmm.debug import inspect
from webmm.errors import ConfigError, ProblemError
from webmm.kernels import LADDER
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.persistent import Persistent
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.split_k import SplitK
from webmm.problems.gemm import gemm
from webmm.wgsl import naga
from webmm.wgsl.render import render


def stage(cls):
    """Return the stage with small tiles, so that its debug shader compiles quickly."""
    if issubclass(cls, CpuLanes):
        return cls(tm=4, tn=4)
    return small(cls, workgroups=2) if cls is Persistent else small(cls)


def check(found, kernel, problem):
    """Assert that all recorded values are right and none is missing."""
    assert found.right, found.notes()
    recorded = {tag for step in found.steps for tag in step.values}
    assert recorded >= {"LOADED_A", "LOADED_B", "ACC"}
    assert "a_tile" not in render(kernel, problem).wgsl or recorded >= {"SHARED_A", "SHARED_B"}
    for step in found.steps[: problem.k]:
        assert recorded - set(step.values) <= {"ACC"}, step.k
    sums = [step for step in found.steps if "ACC" in step.values]
    assert sums[-1].k >= problem.k - 1
    if not any(step.part for step in found.steps):
        assert problem.out_dtype.numpy.type(sums[-1].values["ACC"].value) == found.stored.value


PROBLEMS = [gemm(37, 70, 19), gemm(36, 72, 16, transpose_a=True, transpose_b=True)]  # each for half of the stages


@other_stages(1)
def test_every_stage_records_its_values(device, cls):
    kernel, problem = stage(cls), PROBLEMS[LADDER.index(cls) % 2]
    for step in kernel.dispatches:
        naga.translate(render(step, problem, debug=True).wgsl, str(step))
    for at in ((0, 0), (problem.m - 1, problem.n - 1), (9, 42)):  # in the first, the last and an inner tile
        check(inspect(device, kernel, problem, *at), kernel, problem)


def test_two_buffers_and_float16(device):
    kernel, problem = small(Pipelined, prefetch="workgroup"), gemm(37, 35, 21, dtype="float16")
    check(inspect(device, kernel, problem, 33, 4), kernel, problem)


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (small(SplitK, slices=2, splits=2), gemm(33, 36, 70)),
        (small(SplitK, slices=1, splits=3), gemm(33, 36, 64, transpose_a=True)),
        (Gemv(lanes=8, groups=4), gemm(70, 3, 45)),
        (Gemv(lanes=8, groups=4, ti=2, tj=4), gemm(2, 70, 45)),
        (Gemv(lanes=8, groups=4, ti=2, tj=4), gemm(70, 6, 45, transpose_a=True)),
        (Gemv(lanes=8, groups=4, ti=2, tj=2), gemm(3, 70, 44, transpose_b=True)),
        (Gemv(lanes=8, groups=4, ti=2, tj=4), gemm(70, 5, 45)),
    ],
    ids=str,
)
def test_partial_sums_are_shown_by_part(device, kernel, problem):
    for at in ((0, 0), (problem.m - 1, problem.n - 1)):
        found = inspect(device, kernel, problem, *at)
        check(found, kernel, problem)
        assert len({step.part for step in found.steps}) > 1
        sums = {step.part: step.values["ACC"].value for step in found.steps if "ACC" in step.values}
        assert sum(sums.values()) == pytest.approx(found.stored.value, rel=1e-4, abs=1e-4)


def test_recorded_values_are_those_of_the_operands(device):
    found = inspect(device, Naive(), gemm(3, 5, 4), 2, 1)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 5)))
    for k, step in enumerate(found.steps):
        assert [step.values[tag].value for tag in ("LOADED_A", "LOADED_B")] == [a[2, k], b[k, 1]]
        assert step.numpy["sum"] == pytest.approx(a[2, : k + 1].astype(float) @ b[: k + 1, 1].astype(float))


# Edits of a template: (stage, old text, new text, tag of the first wrong value, its step, its origin)
EDITS = [
    (Naive(), "load_b(b_base, k, col)", "load_b(b_base, k, col - col % 2u)", "LOADED_B", 0, "B[0, 4]"),
    (Shared(tile=8), "[local.x] = load_a(a_base, row,", "[local.x] = load_a(a_base, row + k0 / 8u,", "LOADED_A", 8, ""),
    (Shared(tile=8), "sum = fma(a_tile[local.y][kk],", "sum = fma(a_tile[local.y][kk / 7u * 6u],", "ACC", 1, ""),
]


@pytest.mark.parametrize(("kernel", "old", "new", "tag", "k", "origin"), EDITS)
def test_the_first_wrong_value_of_a_broken_stage_is_found(device, templates, kernel, old, new, tag, k, origin):
    path = templates / kernel.template
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    found = inspect(device, kernel, gemm(20, 20, 20), 3, 5)
    assert not found.right
    step, first, value = found.wrong[0]
    assert (first, step.k) == (tag, k)
    assert value.origin.startswith(origin)
    assert step in found.steps[found.window()]
    assert "✗" in str(value)
    shown = Console(file=io.StringIO(), width=200, markup=False)
    shown.print(found.table())
    assert "✗" in shown.file.getvalue()
    assert "[" not in shown.file.getvalue(), "markup"
    assert f"first at k = {k}" in "\n".join(found.notes())
    json.dumps(found.to_json(), allow_nan=False)


def test_a_missing_barrier_shows_in_the_tile(device, templates):
    if device.info.kind != "cpu":
        pytest.skip("a GPU may run the lanes of a workgroup in step, so that a missing barrier does not show")
    path = templates / "gemm/shared.wgsl"
    path.write_text(path.read_text().replace("workgroupBarrier(); // the tiles are complete", "// the tiles are"))
    found = inspect(device, Shared(), gemm(16, 16, 32), 3, 5)
    wrong = {tag for _, tag, _ in found.wrong}
    assert "SHARED_B" in wrong, "rows of B are read before they are loaded"
    assert not wrong & {"LOADED_A", "LOADED_B"}


def test_a_skipped_step_is_reported_missing(device, templates):
    path = templates / "gemm/naive.wgsl"
    path.write_text(path.read_text().replace("let a_reg", "if (k == 7u) { continue; }\nlet a_reg"))
    found = inspect(device, Naive(), gemm(4, 4, 12), 1, 2)
    assert [(step.k, tag, value.value) for step, tag, value in found.wrong[:2]] == [
        (7, "LOADED_A", None),
        (7, "LOADED_B", None),
    ]
    assert found.stored.wrong


def test_unrecorded_elements_are_refused(device, templates):
    with pytest.raises(ProblemError, match=r"C is 3x4: it has no element \(3, 0\)"):
        inspect(device, Naive(), gemm(3, 4, 5), 3, 0)
    path = templates / "gemm/naive.wgsl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "dbg" not in line))
    with pytest.raises(ConfigError, match=r"naive recorded nothing for C\[0, 0\]"):
        inspect(device, Naive(), gemm(3, 4, 5), 0, 0)
