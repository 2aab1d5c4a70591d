"""Fit a device's table of rates (`webmm.choose.model`) to records that `bench/shapes.py --collect` or `--regret` wrote.

    python bench/fit.py RECORDS … webmm/tuned/models/nvidia-h200.json
    python bench/fit.py --borrow RECORDS RECORDS-BY-DAWN … webmm/tuned/models/nvidia-h200-dawn.json

A table covers one adapter and one engine, which its file name states: engines compile a shader differently. First, the
coefficients of each kind of dispatch are fitted by the Levenberg–Marquardt method to logarithms of times, for each
family of kernels. Then the weights per setting are fitted to the residuals by ridge regression. A case weighs more the
closer it is to the best of its problem, since the exact time of a slow kernel does not matter. Prints the regret (best
time ÷ time of the measured kernel that the table would choose) over held-out problems; what is written is fitted to all
problems.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from shapes_report import geometric, grouped, tenth

from webmm.cases import op_of
from webmm.choose import model as models
from webmm.choose import tables, tuned
from webmm.choose.model import NAMES, Family, Machine, Model, parts_of_time, shape
from webmm.errors import ConfigError
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Kernel
from webmm.measure.records import Record, from_json
from webmm.problems.base import Problem

# The hardware of the devices whose records are in bench/results, as their makers publish it.
MACHINES = {
    "nvidia h200": Machine(132),
    "llvmpipe": Machine(2, lanes=16, subgroup=8, clock=3000.0, workgroups=1, cache=30e6, cpu=True),
}
ENOUGH = 1000  # records of a family
HELD = 0.3  # fraction of the problems that are held out
ITERATIONS = 25
STEP = 1e-3  # of the finite differences
ROUNDS, OUTLIER = 3, 0.6  # fits for a CPU; a time that is off by this logarithm weighs half in the next one
STAY = 0.003  # weight of a coefficient's distance from its initial value, relative to a case
SETTINGS, ASPECT, PAIR = 3.0, 3.0, 10.0  # ridge penalties, in units of a case's weight
Numbers = NDArray[np.float64]


class Cases:
    """The measured cases of a family: traffic of every dispatch, time, problem, and the weight of the case."""

    def __init__(self, family: str, measured: dict[Problem, dict[Kernel[Any], float]], machine: Machine) -> None:
        self.family, self.prior = family, Model(machine, {})
        self.kernels: list[Kernel[Any]] = []
        times, problems, near = [], [], []
        tables: dict[str, tuple[list[int], list[Sequence[float]]]] = {}
        self.ranges = []
        for i, (problem, found) in enumerate(measured.items()):
            first = len(self.kernels)
            for kind, (owners, rows) in models.dispatches_by_kind(list(found), problem).items():
                table = tables.setdefault(kind, ([], []))
                table[0].extend(first + owner for owner in owners)
                table[1].extend(rows)
            self.ranges.append((first, problem))
            self.kernels += found
            times += found.values()
            problems += [i] * len(found)
            near += [max(0.05, math.exp(1 - us / min(found.values()))) for us in found.values()]
        self.times, self.problems, self.counts = np.array(times), np.array(problems), np.array(near)
        self.tables = {
            kind: (np.array(owners), np.array(rows, float)) for kind, (owners, rows) in sorted(tables.items())
        }
        names = [shape(kernel) for kernel in self.kernels]
        self.settings = sorted(set(names))
        self.setting = np.array([self.settings.index(name) for name in names])

    def start(self) -> Numbers:
        """Return the logarithms of the general coefficients."""
        return np.log([models.general(self.prior, kind)[name] for kind in self.tables for name in NAMES])

    def named(self, logarithms: Numbers) -> dict[str, dict[str, float]]:
        """Return coefficients by kind and name."""
        rows = np.exp(logarithms).reshape(len(self.tables), len(NAMES)).tolist()
        return {kind: dict(zip(NAMES, row, strict=True)) for kind, row in zip(self.tables, rows, strict=True)}

    def predict(self, logarithms: Numbers) -> Numbers:
        """Return the times that the coefficients predict, without the weights per setting."""
        total = np.zeros(len(self.times))
        for coefficients, (owners, rows) in zip(self.named(logarithms).values(), self.tables.values(), strict=True):
            columns = dict(zip(models.COLUMNS, rows.T, strict=True))
            np.add.at(total, owners, parts_of_time(columns, coefficients, self.prior.machine)[0])
        return total

    def aspects(self, family: Family) -> Numbers:
        """Return the ASPECTS of every case."""
        model = Model(self.prior.machine, {self.family: family})
        ends = [first for first, _ in self.ranges[1:]] + [len(self.kernels)]
        pieces = zip(self.ranges, ends, strict=True)
        return np.concatenate([model.judge(self.family, self.kernels[first:end], p)[1] for (first, p), end in pieces])

    def regrets(self, predicted: Numbers, held: NDArray[np.bool_]) -> list[float]:
        """Return, for each problem in `held`, best time ÷ time of the case that is predicted to be best."""
        found = []
        for i in np.flatnonzero(held):
            mine = np.flatnonzero(self.problems == i)
            found.append(float(self.times[mine].min() / self.times[mine[np.argmin(predicted[mine])]]))
        return found


def coefficients(cases: Cases, counts: Numbers) -> Numbers:
    """Return the logarithms of the coefficients that fit the cases best."""
    start = cases.start()
    root, stay, wanted = np.sqrt(counts), STAY * math.sqrt((counts > 0).sum()), np.log(cases.times)

    def residuals(at: Numbers) -> Numbers:
        return np.concatenate([root * (np.log(cases.predict(at)) - wanted), stay * (at - start)])

    at, damping = start, 1e-2
    left = residuals(at)
    for _ in range(ITERATIONS):
        jacobian = np.stack([(residuals(at + STEP * unit) - left) / STEP for unit in np.eye(len(at))], axis=1)
        normal = jacobian.T @ jacobian
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -jacobian.T @ left)
            tried = at + np.clip(step, -0.7, 0.7)
            after = residuals(tried)
            if after @ after < left @ left:
                break
            damping *= 4
        gain = 1 - (after @ after) / (left @ left)
        if gain < 1e-4:
            break
        at, left, damping = tried, after, max(damping / 3, 1e-6)
    return at


def fitted(cases: Cases, train: NDArray[np.bool_]) -> tuple[Family, Numbers]:
    """Return what is fitted to the problems in `train`, and the times that it predicts for all cases.

    On a CPU, cases whose times are far from the prediction lose weight: they were measured while it was busy.
    """
    counts = cases.counts * train[cases.problems]
    family, predicted = fitted_once(cases, counts)
    for _ in range(ROUNDS - 1 if cases.prior.machine.cpu else 0):
        off = np.log(cases.times / predicted) / OUTLIER
        family, predicted = fitted_once(cases, counts / (1 + off**2))
    return family, predicted


def fitted_once(cases: Cases, counts: Numbers) -> tuple[Family, Numbers]:
    """Return what is fitted to the cases with these weights, and the times that it predicts for all."""
    at = coefficients(cases, counts)
    family = Family(cases.named(at), (), (), {})
    aspects, predicted = cases.aspects(family), cases.predict(at)
    mean, spread = aspects.mean(axis=0), aspects.std(axis=0) + 1e-6
    near = np.clip((aspects - mean) / spread, -models.FAR, models.FAR)
    one = np.eye(len(cases.settings))[cases.setting]
    pairs = (one[:, :, None] * near[:, None, :]).reshape(len(one), -1)
    columns = np.concatenate([one, near, pairs], axis=1)
    ridge = np.repeat([SETTINGS, ASPECT, PAIR], [one.shape[1], near.shape[1], pairs.shape[1]])
    left = np.log(cases.times / predicted)
    found = np.linalg.solve(columns.T @ (columns * counts[:, None]) + np.diag(ridge), columns.T @ (counts * left))
    base, common, own = np.split(found, np.cumsum([one.shape[1], near.shape[1]]))
    slopes = common + own.reshape(one.shape[1], -1)
    weights = {name: (float(b), *map(float, s)) for name, b, s in zip(cases.settings, base, slopes, strict=True)}
    weights[""] = (0.0, *map(float, common))
    family = dataclasses.replace(family, means=tuple(mean.tolist()), spreads=tuple(spread.tolist()), weights=weights)
    return family, predicted * np.exp(np.clip(columns @ found, -models.MOST, models.MOST))


def read(file: Path) -> str:
    """Return the text of a file, which may be gzip-compressed."""
    return gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()


def measured(records: list[Record]) -> dict[str, dict[Problem, dict[Kernel[Any], float]]]:
    """Return the best time in µs of each kernel whose work is counted, by family and problem."""
    families: dict[str, dict[Problem, dict[Kernel[Any], float]]] = {}
    for key, found in grouped(records).items():
        op, variant, dtype, m, n, k, batch, layout = key
        problem = op_of(op, variant).dense((m, n, k, batch), dtype, layout)
        for r in found:
            kernel = kernel_of(r)
            if kernel is None or not r.median_us or any(step.traffic(problem) is None for step in kernel.dispatches):
                continue
            times = families.setdefault(models.family_of(kernel), {}).setdefault(problem, {})
            times[kernel] = min(r.median_us, times.get(kernel, math.inf))
    return families


def kernel_of(record: Record) -> Kernel[Any] | None:
    """Return the kernel of a record, or None: of a peer, of another version, or without a time."""
    if record.status != "ok" or record.kernel not in STAGES.get(record.op, ()):
        return None
    try:
        kernel: Kernel[Any] = configure(record.kernel, {n: str(v) for n, v in record.config.items()}, record.op)
    except ConfigError:
        return None
    return kernel


def rounded(value: Any) -> Any:
    """Return `value` with all numbers in it rounded to four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


@click.command()
@click.option("--held/--all", default=True, help="Whether to evaluate on held-out problems first.")
@click.option("--borrow", type=click.Path(path_type=Path, exists=True), help="Records under another engine.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.argument("output", type=click.Path(path_type=Path))
def main(held: bool, borrow: Path | None, files: tuple[Path, ...], output: Path) -> None:
    """Fit a table to the records in FILES and write it to OUTPUT.

    Families of less than ENOUGH records are fitted to those in --borrow, too: engines differ less than settings do. Of
    an OUTPUT that exists, rates and the families without records in FILES are kept.
    """
    records = [r for file in files for r in from_json(read(file)) if r.kernel in STAGES.get(r.op, ())]
    engines = {tuned.family(record) for record in records}
    if engines != {tables.engine_of_model(output.stem)}:
        raise click.UsageError(
            f"the file name {output.name} does not match the records' {' and '.join(sorted(engines))}"
        )
    adapter = records[0].adapter
    machine = next(machine for name, machine in MACHINES.items() if adapter.lower().startswith(name))
    before = json.loads(output.read_text()) if output.exists() else {"cases": {}}
    known = tables.from_json(output.read_text()) if output.exists() else Model(machine, {})
    families, counts = dict(known.families), dict(before["cases"])
    borrowed = measured(from_json(read(borrow))) if borrow else {}
    for name, found in sorted(measured(records).items()):
        if sum(map(len, found.values())) < ENOUGH:
            found = {**borrowed.get(name, {}), **found}
        cases = Cases(name, found, machine)
        count = len(cases.ranges)
        print(f"{name}: {len(cases.times)} cases of {count} problems, {len(cases.settings)} settings", flush=True)
        if held:
            train = np.random.default_rng(0).random(count) >= HELD
            _, predicted = fitted(cases, train)
            for words, which in (("fitted to", train), ("held out", ~train)):
                show(words, cases.regrets(predicted, which))
        family, predicted = fitted(cases, np.ones(count, bool))
        show("all", cases.regrets(predicted, np.ones(count, bool)))
        families[name] = Family(**rounded({f.name: getattr(family, f.name) for f in dataclasses.fields(family)}))
        counts[name] = len(cases.times)
    output.parent.mkdir(exist_ok=True)
    output.write_text(tables.to_json(Model(machine, families, known.rates), adapter=adapter, cases=counts))


def show(words: str, found: list[float]) -> None:
    """Print the mean, the lowest tenth and the worst regret."""
    print(f"  {words}: regret {geometric(found):.3f}, a tenth below {tenth(found):.3f}, worst {min(found):.3f}")


if __name__ == "__main__":
    main()
