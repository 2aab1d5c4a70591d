"""Fit the costs of `webmm.choose.divided` to measured times.

    python bench/fit_divided.py --op quantized bench/results/h200-divided-collected.json.gz

Prints the costs fitted to all problems, and the regret of the choice by them: best time ÷ time of the chosen kernel.
The last line is for problems held out: each half is judged by costs fitted to the other.
"""

from __future__ import annotations

import gzip
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
from shapes_report import geometric, grouped, tenth

from webmm.cases import op_of
from webmm.choose import quantized, weights
from webmm.choose.divided import Costs, predicted
from webmm.kernels import configure
from webmm.measure.records import from_json

TILES: dict[str, tuple[Any, ...]] = {"quantized": quantized.GPU, "weights": weights.TILES}
START = {"latency": 0.03, "product": 1e-5, "load": 1e-4, "workgroup": 0.1, "sums": 2.0, "partial": 0.5}
LAUNCH = 3.0  # µs, to start with; it does not affect the choice


class Timed(NamedTuple):
    """A problem with its kernels and their times, and the best time of any kernel, in µs."""

    problem: Any
    times: dict[Any, float]
    best: float


def load(file: Path, op: str) -> list[Timed]:
    """Return the problems of `op` that tiles are chosen for, with the times of those that the choice selects from."""
    found = []
    for key, records in grouped(from_json(gzip.decompress(file.read_bytes()).decode())).items():
        _, variant, dtype, m, n, k, batch, layout = key
        if key[0] == op and (op == "quantized" or m > weights.FEW_ROWS):
            problem = op_of(op, variant).dense((m, n, k, batch), dtype, layout)
            made = [
                (configure(r.kernel, {x: str(y) for x, y in r.config.items()}, op), r.median_us or math.inf)
                for r in records
            ]
            tiles = {
                kernel: us
                for kernel, us in made
                if "splits" in kernel.config and replace(kernel, splits=1) in TILES[op]
            }
            if tiles:
                found.append(Timed(problem, tiles, min(us for _, us in made)))
    return found


def loss(launch: float, costs: Costs, problems: list[Timed]) -> float:
    """Return the root mean square error of log times; fast kernels weigh more, and all problems the same."""
    total = 0.0
    for problem, times, best in problems:
        errors = [
            ((best / us) ** 2, math.log((launch + predicted(kernel, problem, costs)) / us) ** 2)
            for kernel, us in times.items()
        ]
        total += sum(weight * error for weight, error in errors) / len(errors)
    return math.sqrt(total / len(problems))


def fit(problems: list[Timed], steps: int) -> Costs:
    """Return the costs with the smallest loss that a random search finds."""
    source, launch, costs, width = random.Random(0), LAUNCH, Costs(**START), 0.5
    least = loss(launch, costs, problems)
    for step in range(steps):
        name = source.choice(("launch", *START))
        factor = math.exp(source.gauss(0, width))
        tried = launch * factor if name == "launch" else launch
        other = costs if name == "launch" else replace(costs, **{name: getattr(costs, name) * factor})
        if (now := loss(tried, other, problems)) < least:
            launch, costs, least = tried, other, now
        width = 0.5 * 0.1 ** (step / steps)
    return costs


def regrets(costs: Costs, problems: list[Timed]) -> list[float]:
    """Return best time ÷ time of the kernel with the shortest predicted time, of each problem."""
    return [p.best / p.times[min(p.times, key=lambda kernel: predicted(kernel, p.problem, costs))] for p in problems]


@click.command()
@click.option("--op", type=click.Choice(list(TILES)), default="quantized", show_default=True)
@click.option("--steps", default=1500, show_default=True, help="Steps of the search.")
@click.argument("file", type=click.Path(path_type=Path, exists=True))
def main(op: str, steps: int, file: Path) -> None:
    """Fit costs to the records in FILE."""
    problems = load(file, op)
    halves = problems[::2], problems[1::2]
    costs = fit(problems, steps)
    held_out = [x for ours, other in (halves, halves[::-1]) for x in regrets(fit(other, steps), ours)]
    print(costs)
    for words, found in (("fitted", regrets(costs, problems)), ("held out", held_out)):
        print(f"{words}: mean {geometric(found):.3f}, tenth percentile {tenth(found):.3f}, worst {min(found):.2f}")


if __name__ == "__main__":
    main()
