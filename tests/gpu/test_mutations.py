"""Mutation tests: shaders without one guard or with a changed uniform must fail the checks."""

import dataclasses
import re

import numpy as np
import pytest
from products import exact, multiply, named, other_stages, small, smallest, view, whole_numbers

from tests.sampled import crossed
from webmm.engine.timing import submit
from webmm.kernels import LADDER
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.persistent import Persistent
from webmm.wgsl.render import params_bytes, render


def right(device, kernel, problem, wgsl):
    """Return whether `wgsl`, in place of the kernel's own shader, passes the exact check."""

    def dispatch(a, b, c):
        launch = device.launch(kernel, problem, a, b, c)
        pipeline = device.compile(wgsl, "mutated", render(kernel, problem).bindings)
        submit(device, dataclasses.replace(launch, pipeline=pipeline))

    a, b = whole_numbers(problem)
    got, strays = multiply(device, kernel, problem, a, b, dispatch)
    return np.array_equal(got, exact(problem, a, b)) and not strays


def without(text, found, replacement=""):
    """Return `text` with the match `found` replaced."""
    return text[: found.start()] + replacement + text[found.end() :]


# Guards


GUARDS = {  # pattern: replacement
    r"\w+(?: \+ \d+u)? >= params\.(\w+)": "false",
    r"\w+(?: \+ \d+u)? < params\.(k)(?=\))": "true",
    r"vec4u\([^()]*\) < vec4u\(params\.(k)\)": "vec4<bool>(true)",
}


def guards(text):
    """Return (function, axis, match, replacement) of each comparison with a size."""
    found = []
    for pattern, replacement in GUARDS.items():
        for match in re.finditer(pattern, text):
            function = re.findall(r"^fn (\w+)", text[: match.start()], re.MULTILINE)[-1]
            found.append((function, match[1], match, replacement))
    return found


@pytest.mark.parametrize(("cls", "aligned"), crossed(LADDER, [True, False]), ids=named)
def test_every_boundary_guard_is_needed(device, cls, aligned):
    # With aligned rows, vec4 are loaded and stored, which may still reach beyond the edges. A gap of NaN after each row
    # of A and B exposes loads beyond them.
    sizes, pads = ((36, 44, 28), (4, 4, 4)) if aligned else ((37, 41, 27), (3, 2, 1))
    kernel, problem = small(cls), view(*sizes, pads=pads)
    text = render(kernel, problem).wgsl
    assert right(device, kernel, problem, text)
    found = guards(text)
    if cls is not Blocked:  # tests all guards of the macros that it shares; for other stages, the last of each kind
        # An invocation returns at the first row beyond the edge: that guard is needed, and hides those after it.
        hidden = re.compile(rf"row0 \+ (?!{sizes[0] % kernel.grid.tile_m}u )")
        found = {each[:2]: each for each in found if not hidden.match(each[2][0])}.values()
    axes = set()
    for function, axis, guard, replacement in found:
        if guard[0].startswith(("row0 >=", "j0")) or cls is Naive:
            continue  # surplus workgroups: see below
        missed = not right(device, kernel, problem, without(text, guard, replacement))
        # Loading a row or column beyond the edge has no effect on the result, as it is not stored: that guard only
        # saves a load. All others are needed.
        spared = function.startswith("load_") and axis in "mn"
        assert missed is not spared, f"{guard[0]} in {function} of {kernel}"
        axes.add(axis)
    assert "k" in axes or not kernel.specialise(problem).edge_k, "no guard along k was found"
    assert axes >= {"m", "n"} or kernel.grid.tile_m == 1, "no guard along m or n was found"


@other_stages(1)  # the others: test_limits.py
def test_surplus_workgroups_must_leave(device, cls):
    kernel = smallest(cls)
    # Whole tiles, so that no other guard hides the effect of a folded grid's surplus workgroup.
    shape = (257 * kernel.grid.tile_m, 257 * kernel.grid.tile_n)
    if cls is Gemv:
        shape = (65_537 * kernel.tile_i(along_k=True), 1)
    problem = view(*shape, 3, pads=(0, 0, 4))
    text = render(kernel, problem).wgsl
    assert right(device, kernel, problem, text)
    leave = re.search(r"(row0?|j0|tile) (>= params\.[mn]|>= tiles_m \* tiles_n)", text)
    if cls is Persistent:  # its loop over tiles ends by itself
        assert leave is None
    else:
        assert not right(device, kernel, problem, without(text, leave, "false")), kernel


def test_steps_beyond_a_long_k_are_guarded(device):
    kernel, problem = Naive(), view(2, 3, 100_003, pads=(1, 1, 1))
    text = render(kernel, problem).wgsl
    found = list(re.finditer(r"k0 \+ \d+u < params\.k", text))
    assert len(found) == 16
    for i in (3, 15):  # 100,003 = 6,250·16 + 3: the last iteration takes steps 0, 1 and 2
        assert not right(device, kernel, problem, without(text, found[i], "true")), f"step {i}"


# The uniform

LENGTHS = 12  # sizes, row lengths, offsets and batch strides; what follows them only serves epilogues


def test_every_length_in_the_uniform_is_used(device):
    # Host and shader disagree about two adjacent members: with twelve different lengths, every swap changes the result.
    problem = view(5, 7, 3, batch=2, ta=True, pads=(4, 3, 4), offsets=(2, 8, 13))
    lengths = np.frombuffer(params_bytes(Naive(), problem), np.uint32)[:LENGTHS]
    assert len(set(lengths)) == LENGTHS, "two of the lengths are equal"
    text = render(Naive(), problem).wgsl
    assert right(device, Naive(), problem, text)
    members = re.search(r"(?<=struct Params \{\n)(.+?\n)(?=\})", text, re.DOTALL)
    lines = members[0].splitlines(keepends=True)
    assert "c_batch_stride" in lines[LENGTHS - 1], "the lengths come first"
    for i in range(LENGTHS - 1):
        swapped = [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]
        assert not right(device, Naive(), problem, without(text, members, "".join(swapped))), lines[i : i + 2]
