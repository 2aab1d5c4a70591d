"""Fit the times in `webmm/choose/matrix_units.py` to records of `matrix_unit` with many tiles and parts of k.

    python bench/fit_matrix_units.py bench/results/h200-dawn-matrix-unit-collected.json.gz

Each number is decreased or increased as long as the predictions improve, first by large factors, then by small ones.
A record weighs more the closer it is to the best of its problem. Prints the numbers, and the regret: the best time of a
problem divided by that of the kernel with the shortest predicted time.
"""

from __future__ import annotations

import dataclasses
import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from shapes_report import geometric, grouped, tenth

from webmm.choose import matrix_units
from webmm.choose.divided import MULTIPROCESSORS
from webmm.choose.matrix_units import TILES, Times
from webmm.kernels.gemm.matrix_unit import MatrixUnit
from webmm.measure.records import Record, from_json
from webmm.problems.gemm import Gemm, gemm
from webmm.problems.product import transposes

FACTORS = (1.3, 1.1, 1.03, 1.01)
COMMON = ("LAUNCH", "SECOND", "BYTES", "PARTIAL_BYTES", "UNALIGNED", "SINGLE")


@dataclass
class Case:
    """A measured kernel, its time in µs, and the weight of its record."""

    problem: Gemm
    kernel: MatrixUnit
    us: float
    weight: float

    def predicted(self, times: Times) -> float:
        """Return the predicted time in µs."""
        return matrix_units.predicted(self.kernel, times, self.problem, MULTIPROCESSORS)


class Fit:
    """The cases of each tile, and the times found so far."""

    def __init__(self, records: list[Record]) -> None:
        stages = [MatrixUnit(**tiles) for tiles, _ in TILES]
        self.times = [times for _, times in TILES]
        self.cases: list[list[Case]] = [[] for _ in TILES]
        self.problems: list[list[tuple[int, Case]]] = []
        usable = [r for r in records if r.kernel == MatrixUnit.name and r.status == "ok" and r.median_us]
        for found in grouped(usable).values():
            r, best = found[0], min(r.median_us or math.inf for r in found)
            problem = gemm(r.m, r.n, r.k, batch=r.batch, dtype="f16", **transposes(r.layout))
            self.problems.append([])
            for record in found:
                kernel = MatrixUnit(**record.config)
                whole, us = dataclasses.replace(kernel, splits=1), record.median_us or math.inf
                if whole in stages:
                    case, tile = Case(problem, kernel, us, (best / us) ** 4), stages.index(whole)
                    self.cases[tile].append(case)
                    self.problems[-1].append((tile, case))

    def error(self, tile: int, times: Times) -> float:
        """Return the weighted sum of squared logarithms of predicted ÷ measured time for one tile."""
        return sum(case.weight * math.log(case.predicted(times) / case.us) ** 2 for case in self.cases[tile])

    def improve_common(self, factor: float) -> None:
        """Change the numbers that all tiles share."""

        def error(name: str, value: float) -> float:
            setattr(matrix_units, name, value)
            return sum(self.error(i, times) for i, times in enumerate(self.times))

        for name in COMMON:
            value = getattr(matrix_units, name)
            best = min((value, value * factor, value / factor), key=lambda x: error(name, x))
            setattr(matrix_units, name, best)

    def improve_tile(self, tile: int, factor: float) -> None:
        """Change the times of a tile, and the number of workgroups that a multiprocessor runs at once."""
        for field in dataclasses.fields(Times):
            times = self.times[tile]
            value: Any = getattr(times, field.name)
            near = (value + 1, max(1, value - 1)) if field.name == "resident" else (value * factor, value / factor)
            tried = [times, *(dataclasses.replace(times, **{field.name: x}) for x in near)]
            self.times[tile] = min(tried, key=lambda each: self.error(tile, each))

    def regret(self) -> list[float]:
        """Return best time ÷ time of the kernel that would be chosen, for each problem."""
        found = []
        for cases in self.problems:
            if len(cases) > 1:
                _, chosen = min(cases, key=lambda pair: pair[1].predicted(self.times[pair[0]]))
                found.append(min(case.us for _, case in cases) / chosen.us)
        return found


@click.command()
@click.option("--rounds", default=4, show_default=True, help="Rounds over all numbers for each factor.")
@click.argument("records", type=click.Path(exists=True, path_type=Path))
def main(rounds: int, records: Path) -> None:
    """Fit the times to RECORDS, and print them."""
    fit = Fit(from_json(gzip.decompress(records.read_bytes()).decode()))
    print(f"{sum(map(len, fit.cases)):,} records of {len(fit.problems)} problems")
    for factor in (None, *FACTORS):
        for _ in range(rounds if factor else 0):
            fit.improve_common(factor or 1)
            for tile in range(len(TILES)):
                fit.improve_tile(tile, factor or 1)
        found = fit.regret()
        print(f"regret {geometric(found):.3f}, tenth percentile {tenth(found):.3f}, worst {min(found):.2f}", flush=True)
    for (tiles, _), times in zip(TILES, fit.times, strict=True):
        print(tiles, ", ".join(f"{value:.3g}" for value in dataclasses.astuple(times)))
    print(", ".join(f"{name} {getattr(matrix_units, name):.3g}" for name in COMMON))


if __name__ == "__main__":
    main()
