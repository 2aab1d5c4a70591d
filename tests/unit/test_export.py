"""What leaves the house: `valid_for` is exact, rules give what Python computes, and headers say it."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_core import DRAWN, draw_kernel
from webmm.cases import OPS as CASES
from webmm.errors import ConfigError
from webmm.kernels.base import Kernel, Texture, features
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.sizes import Condition, sizes_of, valid_for
from webmm.problems import OPS
from webmm.problems.base import Problem
from webmm.problems.gemm import gemm
from webmm.wgsl import export
from webmm.wgsl.render import _render, render

DRAWS = 150  # of each op


def evaluated(formula: str, sizes: dict[str, int]) -> int:
    vectors = {name.split(".")[0] for name in sizes if "." in name}
    axes = {
        x: SimpleNamespace(**{axis: sizes[f"{x}.{axis}"] for axis in "xyzw" if f"{x}.{axis}" in sizes}) for x in vectors
    }
    return int(eval(formula, {"ceil": math.ceil, "min": min}, {**sizes, **axes}))


def holds(rules: dict[str, dict[str, Any]], sizes: dict[str, int]) -> bool:
    """Tell whether sizes meet `valid_for`, read as a host does."""

    def met(name: str, rule: dict[str, Any]) -> bool:
        size, equal = sizes[name], rule.get("equals", sizes[name])
        if "where" in rule and not eval(rule["where"], {}, dict(sizes)):
            return True
        return (
            size % rule.get("multiple_of", 1) == 0
            and rule.get("at_least", 0) <= size <= rule.get("at_most", size)
            and size == (sizes[equal] if isinstance(equal, str) else equal)
        )

    return all(met(name, rule) for name, rule in rules.items())


def as_special(general: Any, one: Any, other: Any) -> bool:
    """Tell whether `one` makes every choice that `other` makes beyond the general ones, or a more special one."""
    for field in dataclasses.fields(general):
        a, b, none = (getattr(spec, field.name) for spec in (one, other, general))
        if a == b or b == none:
            continue
        if isinstance(b, bool) or not (a > b if field.name.startswith("align") else a < b):
            return False
    return True


@functools.cache
def drawn(op: str) -> list[tuple[Kernel[Any], Problem]]:
    """Return the dispatches of random kernels with random problems that suit them."""
    rng, found = random.Random(op), []
    for _ in range(DRAWS):
        kernel, problem = draw_kernel(rng, op), draw(rng, op)
        if kernel.invalid() is None and kernel.unsuited(problem) is None:
            found += [(each, problem) for each in kernel.dispatches]
    return found


def draw(rng: random.Random, op: str) -> Problem:
    """Return a random problem; C is row-major."""
    problem = DRAWN[op](rng)
    return (
        dataclasses.replace(problem, c=dataclasses.replace(problem.c, ld=problem.n, transposed=False))
        if op == "gemm"
        else problem
    )  # type: ignore[attr-defined, type-var]


SIZED = (
    "m",
    "n",
    "k",
    "batch",
    "a",
    "b",
    "c",
    "bias_offset",
    "outer",
    "length",
    "inner",
    "x",
    "y_offset",
    "size",
    "x_offset",
    *("queries", "keys", "width", "value_width", "q", "v", "o"),  # and k, of attention a layout
)


def resized(rng: random.Random, op: str, problem: Any) -> Any:
    """Return `problem` with other sizes, strides and offsets, half of them multiples of large powers of two."""
    other: Any = draw(rng, op)
    changes = {f.name: getattr(other, f.name) for f in dataclasses.fields(problem) if f.init and f.name in SIZED}
    if op in ("gemm", "quantized", "weights"):
        whole = rng.random() < 0.5
        for name in ("m", "n", "k"):
            changes[name] = rng.choice((128, 256, 384, 512, 1024)) if whole else changes[name]
        for x in {"a", "b", "c"} & set(changes):
            like = getattr(problem, x)
            changes[x] = dataclasses.replace(like, ld=512, batch_stride=1024, offset=0) if whole else like
    elif rng.random() < 0.5:
        changes = {name: changes[name] for name in rng.sample(sorted(changes), 1)}
    if problem.op == "gemm" and problem.bias == "matrix":
        changes["batch"] = 1
    return dataclasses.replace(problem, **changes)


@pytest.mark.parametrize("op", OPS)
def test_a_problem_is_within_valid_for_exactly_if_it_allows_the_same_choices(op: str) -> None:
    rng, counts = random.Random(op), {False: 0, True: 0}
    for kernel, problem in drawn(op):
        spec, general = kernel.specialise(problem), kernel.general(problem)
        rules = valid_for(kernel.conditions(spec))
        assert all(condition.size in sizes_of(kernel.params, problem) for condition in kernel.conditions(spec))
        for _ in range(8):
            other = resized(rng, op, problem)
            if kernel.unsuited(other) is None and kernel.choices(other) == kernel.choices(problem):
                sizes = sizes_of(kernel.params, other)
                needed = all(each.holds(sizes) for each in kernel.needs())
                expected = needed and as_special(general, kernel.specialise(other), spec)
                assert holds(rules, sizes) == expected, f"{kernel}: {other!r} for {rules}"
                counts[expected] += 1
    assert min(counts.values()) > 5, counts


@pytest.mark.parametrize("op", OPS)
def test_the_general_choices_are_those_of_no_size(op: str) -> None:
    for kernel, problem in drawn(op):
        needs = valid_for(kernel.needs())
        assert valid_for(kernel.conditions(kernel.general(problem))) == needs
        assert as_special(kernel.general(problem), kernel.specialise(problem), kernel.general(problem))


@pytest.mark.parametrize("op", OPS)
def test_rules_give_workgroups_buffers_and_scratch(op: str) -> None:
    rng = random.Random(op)
    for _ in range(DRAWS):
        kernel, problem = draw_kernel(rng, op), draw(rng, op)
        if kernel.invalid() or kernel.unsuited(problem):
            continue
        for each in (*kernel.before, *kernel.after, kernel):
            sizes, grid = dict(sizes_of(each.params, problem)), each.grid_rule(each.specialise(problem))
            assert grid is not None
            for name in ("count", "y", "x", "z"):
                if name in grid:
                    sizes[name] = evaluated(grid[name].replace("m*n", "m * n"), sizes)
            assert (sizes["x"], sizes["y"], sizes["z"]) == each.dispatch(problem), f"{each} of {problem!r}"
        places = kernel.places(problem)
        offsets = {extent.name: extent for extent in problem.buffers()}
        for name, extent in offsets.items():
            assert evaluated(places[name][1], sizes) == extent.end, f"{name} of {problem!r}"
        rules = kernel.scratch_rule(problem)
        assert list(rules) == [each.name for each in kernel.scratch(problem)]
        for left in kernel.scratch(problem):
            rule = rules[left.name]
            if isinstance(left, Texture):
                assert {side: evaluated(rule[side], sizes) for side in rule} == {
                    side: getattr(left, side) for side in ("width", "height", "layers")
                }
            else:  # buffers of partial sums may be larger, so that products share them
                assert evaluated(rule, sizes) <= left.nbytes <= max(2**20, 2 * evaluated(rule, sizes))


@pytest.mark.parametrize("op", OPS)
def test_every_condition_matters(op: str) -> None:
    """A text that does not assume what one of its conditions says is another text."""
    seen = set()
    for _, kernel, problem in CASES[op].shaders():
        for step in kernel.dispatches:
            dialect = "tint" if "naga" in step.not_in else "naga"
            spec, plain = step.specialise(problem), step.choices(problem)
            if (step, spec) in seen or sum(type(step) is type(other) for other, _ in seen) == 8:
                continue
            seen.add((step, spec))
            text = render(step, problem, dialect).wgsl  # type: ignore[arg-type]
            made = [each for each in step.assumptions(spec) if getattr(spec, each.choice) == each.value]
            for conditions in {each.conditions for each in made if each.conditions}:
                undone = {each.choice: getattr(plain, each.choice) for each in made if each.conditions == conditions}
                other = dataclasses.replace(spec, **undone)
                assert _render(step, other, features(step, problem), 0, dialect, None).wgsl != text, (step, undone)  # type: ignore[arg-type]


def test_a_text_is_what_runs_below_its_contract() -> None:
    problem, kernel = gemm(1024, 1024, 1024), Blocked()
    for general in (False, True):
        text, runs = (
            export.stage(kernel, problem, "naga", general=general)["wgsl"],
            render(kernel, problem, general=general),
        )
        head, code = re.match(r"((?://.*\n)+)((?s:.*))", runs.wgsl).groups()  # type: ignore[union-attr]
        assert text.startswith(head)
        assert text.endswith("\n" + code)
        assert all(line.startswith("//") for line in text[len(head) : -len(code)].splitlines())
        assert max(map(len, text.splitlines()[:25])) <= 120


def test_a_header_says_what_follows_from_the_specialisation() -> None:
    special = export.stage(Blocked(), gemm(1024, 1024, 1024), "naga")
    words = " ".join(special["wgsl"].replace("//", "").split())
    assert "Shapes: only k a multiple of 16; lda, a_offset" in words
    assert "n a multiple of 128; m a multiple of 64." in words
    assert special["valid_for"]["m"] == {"multiple_of": 64}
    assert special["valid_for"]["lda"] == {"multiple_of": 4}
    general = export.stage(Blocked(), gemm(1, 1, 1), "naga", general=True, sized=False)
    assert "// Shapes: any sizes, strides and offsets.\n" in general["wgsl"]
    assert general["valid_for"] == {}
    assert "vec4<f32>>" not in re.sub(r"var<workgroup>.*", "", general["wgsl"]).split("fn ")[0]
    assert not {"uniform", "workgroups"} & set(general["dispatches"][0])


def test_the_smallest_k_of_a_division_is_said() -> None:
    data = export.stage(SplitK(slices=1, splits=4), gemm(64, 64, 64), "naga", general=True)
    assert data["valid_for"] == {"k": {"at_least": 49}}
    assert [each["kernel"] for each in data["dispatches"]] == ["split_k", "sum_splits"]
    assert "Shapes: only k at least 49." in data["dispatches"][0]["wgsl"]


def test_conditions_are_merged() -> None:
    merged = valid_for((Condition("k", 4), Condition("k", 6), Condition("k", at_least=3), Condition("k", at_most=9)))
    assert merged == {"k": {"multiple_of": 12, "at_least": 3, "at_most": 9}}
    with pytest.raises(ConfigError):
        export.stage(Blocked(tm=6), gemm(1, 1, 1), "naga")
