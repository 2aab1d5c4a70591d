"""Fit the cost model (`webmm.choose.model`) to records that `bench/shapes.py --collect` wrote.

    python bench/fit.py COLLECTED.json … webmm/tuned/models/nvidia-h200.json
    python bench/fit.py COLLECTED-BY-DAWN.json … webmm/tuned/models/nvidia-h200-dawn.json

A model covers one adapter and one engine, which its file name states: engines compile a shader differently. First, the
coefficients of each kind of dispatch are fitted by the Levenberg–Marquardt method to logarithms of times. Then the
weights per setting are fitted to the residuals by ridge regression. A case weighs more the closer it is to the best of
its problem, since the exact time of a slow kernel does not matter. Prints the regret (best time ÷ time of the measured
kernel that the model would choose) over held-out problems; the written model is fitted to all problems.
"""

from __future__ import annotations

import dataclasses
import gzip
import math
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from shapes_report import geometric, grouped, tenth

from webmm.choose import model as models
from webmm.choose import tuned
from webmm.choose.model import ASPECTS, NAMES, START, Machine, Model, parts_of_time, shape
from webmm.kernels import STAGES, configure
from webmm.kernels.base import Kernel
from webmm.measure.records import Record, from_json
from webmm.problems.gemm import gemm
from webmm.problems.product import transposes

KINDS = ("tiles", "gemv", "sum_splits")
HELD = 0.3  # fraction of the problems that are held out
ITERATIONS = 25
STEP = 1e-3  # of the finite differences
STAY = 0.003  # weight of a coefficient's distance from its initial value, relative to a case
SETTINGS, ASPECT, PAIR = 3.0, 3.0, 10.0  # ridge penalties, in units of a case's weight
Numbers = NDArray[np.float64]


class Cases:
    """The measured cases as arrays: traffic of every dispatch, time, problem, and the weight of the case."""

    def __init__(self, records: list[Record], machine: Machine) -> None:
        self.machine = machine
        self.kernels: list[Kernel[Any]] = []
        times, problems, near = [], [], []
        tables: dict[str, tuple[list[int], list[Numbers]]] = {kind: ([], []) for kind in KINDS}
        usable = [
            r for r in records if r.status == "ok" and r.median_us and r.kernel in ("pipelined", "split_k", "gemv")
        ]
        self.ranges = []
        for i, found in enumerate(grouped(usable).values()):
            r = found[0]
            problem = gemm(r.m, r.n, r.k, batch=r.batch, **transposes(r.layout))
            kernels = [configure(r.kernel, {name: str(v) for name, v in r.config.items()}) for r in found]
            first = len(self.kernels)
            for kind, (owners, rows) in models.dispatches_by_kind(kernels, problem).items():
                tables[kind][0].extend(first + owner for owner in owners)
                tables[kind][1].extend(rows)
            self.ranges.append((first, problem))
            self.kernels += kernels
            best = min(r.median_us or math.inf for r in found)
            times += [r.median_us or math.nan for r in found]
            problems += [i] * len(found)
            near += [max(0.05, math.exp(1 - (r.median_us or math.nan) / best)) for r in found]
        self.times, self.problems, self.counts = np.array(times), np.array(problems), np.array(near)
        self.tables = {kind: (np.array(owners), np.array(rows)) for kind, (owners, rows) in tables.items()}
        names = [shape(kernel) for kernel in self.kernels]
        self.settings = sorted(set(names))
        self.setting = np.array([self.settings.index(name) for name in names])

    def predict(self, logarithms: Numbers) -> Numbers:
        """Return the times that the coefficients predict, without the weights per setting."""
        total = np.zeros(len(self.times))
        for coefficients, (owners, rows) in zip(named(logarithms).values(), self.tables.values(), strict=True):
            np.add.at(total, owners, parts_of_time(rows, coefficients, self.machine)[0])
        return total

    def aspects(self, model: Model) -> Numbers:
        """Return the ASPECTS of every case."""
        ends = [first for first, _ in self.ranges[1:]] + [len(self.kernels)]
        pieces = zip(self.ranges, ends, strict=True)
        return np.concatenate([model.judge(self.kernels[first:end], p)[1] for (first, p), end in pieces])

    def regrets(self, predicted: Numbers, held: NDArray[np.bool_]) -> list[float]:
        """Return, for each problem in `held`, best time ÷ time of the case that is predicted to be best."""
        found = []
        for i in np.flatnonzero(held):
            mine = np.flatnonzero(self.problems == i)
            found.append(float(self.times[mine].min() / self.times[mine[np.argmin(predicted[mine])]]))
        return found


def named(logarithms: Numbers) -> dict[str, dict[str, float]]:
    """Return coefficients by kind and name."""
    rows = np.exp(logarithms).reshape(len(KINDS), len(NAMES)).tolist()
    return {kind: dict(zip(NAMES, row, strict=True)) for kind, row in zip(KINDS, rows, strict=True)}


def coefficients(cases: Cases, counts: Numbers) -> Numbers:
    """Return the logarithms of the coefficients that fit the cases best."""
    start = np.log(np.tile([START[name] for name in NAMES], len(KINDS)))
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


def fitted(cases: Cases, train: NDArray[np.bool_]) -> tuple[Model, Numbers]:
    """Return the model fitted to the problems in `train`, and the times that it predicts for all cases."""
    counts = cases.counts * train[cases.problems]
    at = coefficients(cases, counts)
    model = Model(cases.machine, named(at))
    aspects, predicted = cases.aspects(model), cases.predict(at)
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
    model = dataclasses.replace(model, means=tuple(mean.tolist()), spreads=tuple(spread.tolist()), weights=weights)
    return model, predicted * np.exp(np.clip(columns @ found, -models.MOST, models.MOST))


def read(file: Path) -> str:
    """Return the text of a file, which may be gzip-compressed."""
    return gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()


def rounded(value: Any) -> Any:
    """Return `value` with all numbers in it rounded to four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


@click.command()
@click.option("--held/--all", default=True, help="Whether to evaluate on held-out problems first.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.argument("output", type=click.Path(path_type=Path))
def main(held: bool, files: tuple[Path, ...], output: Path) -> None:
    """Fit a model to the records in FILES and write it to OUTPUT."""
    records = [record for file in files for record in from_json(read(file))]
    engines = {tuned.family(record) for record in records if record.kernel in STAGES["gemm"]}
    if engines != {models.engine_of_model(output.stem)}:
        raise click.UsageError(
            f"the file name {output.name} does not match the records' {' and '.join(sorted(engines))}"
        )
    cases = Cases(records, Machine())
    count = len(cases.ranges)
    print(f"{len(cases.times)} cases of {count} problems, {len(cases.settings)} settings", flush=True)
    if held:
        train = np.random.default_rng(0).random(count) >= HELD
        _, predicted = fitted(cases, train)
        for words, which in (("fitted to", train), ("held out", ~train)):
            found = cases.regrets(predicted, which)
            print(f"{words}: regret {geometric(found):.3f}, a tenth below {tenth(found):.3f}, worst {min(found):.3f}")
    model, predicted = fitted(cases, np.ones(count, bool))
    print(f"all: regret {geometric(cases.regrets(predicted, np.ones(count, bool))):.3f}; aspects: {', '.join(ASPECTS)}")
    fields = ("coefficients", "means", "spreads", "weights")
    compact = rounded({name: getattr(model, name) for name in fields})
    rates = models.from_json(output.read_text()).rates if output.exists() else None  # from a probe; fitting keeps them
    output.parent.mkdir(exist_ok=True)
    adapter = next(r.adapter for r in records if r.kernel == "pipelined")
    written = dataclasses.replace(model, **compact, rates=rates)
    output.write_text(models.to_json(written, adapter=adapter, cases=len(cases.times)))


if __name__ == "__main__":
    main()
