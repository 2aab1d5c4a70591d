"""Figures of stages that are not products of floats: times of steps, and any recorded field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from webmm.cases import op_of
from webmm.choose.tables import shipped
from webmm.errors import ConfigError
from webmm.kernels import STAGES
from webmm.learn import numbers
from webmm.learn.directives import directive
from webmm.learn.kernels import problem_for
from webmm.measure.records import Record

MODELS = {"h200-dawn": "nvidia-h200-dawn", "h200": "nvidia-h200"}  # the table of rates by a file's first words


@directive
def micros(stage: str, name: str, size: str, **where: Any) -> str:
    """Return the shortest recorded time of a stage in µs."""
    return _time(_found(stage, name, size, **where))


@directive
def faster(stage: str, name: str, size: str, over: str, **where: Any) -> str:
    """Return the recorded time of another stage, divided by that of a stage."""
    op = stage.partition("/")[0]
    ours, theirs = _found(stage, name, size, **where), _found(f"{op}/{over}", name, size, **where)
    return _gain(ours, theirs)


@directive
def steps(stage: str, name: str, sizes: str, over: str = "", **where: Any) -> str:
    """Return a table of times of a stage and of the one that it follows, with the gain by the model and as measured."""
    op, _, kernel = stage.partition("/")
    before = over or STAGES[op][kernel].follows
    table = next((MODELS[device] for device in MODELS if name.startswith(device)), "")
    if STAGES[op][kernel]().matrix_shape:
        table = ""  # rates of fragments are a device's, and in no table
    unit = op_of(op).unit
    rows = []
    for size in sizes.split(","):
        ours, theirs = _found(stage, name, size, **where), numbers.best(f"{op}/{before}", name, size, **where)
        gain = f"× {_gain(ours, theirs)}" if theirs else "–"
        model = numbers.predicted(ours, theirs, table) if table else "–"
        shape = size.replace("x", "×").replace("@", " over axis ")
        rows.append([shape, _time(theirs) if theirs else "–", _time(ours), model, gain, _rate(ours)])
    head = ["size", f"`{before}`, µs", f"`{kernel}`, µs", "model", "gain", unit]
    columns = [i for i, title in enumerate(head) if title != "model" or any(row[i] != "–" for row in rows)]
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line[i] for i in columns)} |" for line in lines)


@directive
def predicted_us(stage: str, size: str, table: str = "nvidia-h200", **tunables: Any) -> str:
    """Return the time in µs that a device's rates let expect of a stage that was not measured there."""
    op, _, kernel = stage.partition("/")
    rates = dataclasses.replace(shipped()[table], families={})
    (us,) = rates.times([STAGES[op][kernel](**tunables)], problem_for(op, size))
    return f"{us:,.0f}"


@directive
def recorded(name: str, among: str, field: str, **where: Any) -> str:
    """Return a field of an entry of a file's list, in any format; in words to match, _ may stand for a space.

    Of several entries that match, the largest value. A field within an object is OBJECT.FIELD.
    """
    path = numbers.RESULTS / f"{name}.json"
    if not path.is_file():
        raise ConfigError(f"there are no records {name} in bench/results")
    entries = json.loads(path.read_text(encoding="utf-8"))[among]
    values = [_at(entry, field) for entry in entries if all(_fits(_at(entry, k), v) for k, v in where.items())]
    values = [value for value in values if isinstance(value, int | float)]
    if not values:
        raise ConfigError(f"{name} has no {field} of {where or among}")
    return f"{max(values):,.0f}" if max(values) >= 100 else f"{max(values):.3g}"


def _at(entry: Any, field: str) -> Any:
    for part in field.split("."):
        entry = entry.get(part, entry.get(part.replace("_", " "))) if isinstance(entry, dict) else None
    return entry


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or begins with its words."""
    if not isinstance(value, str):
        return bool(value == wanted)
    for words in (str(wanted), str(wanted).replace("_", " ")):
        if value.startswith(words) and not (
            words[-1].isalnum() and value[len(words) :][:1].replace("_", "x").isalnum()
        ):
            return True
    return False


def _found(stage: str, name: str, size: str, **where: Any) -> Record:
    found = numbers.best(stage, name, size, **where)
    if found is None:
        raise ConfigError(f"{name} has no record of {stage} at {size}")
    return found


def _gain(ours: Record, theirs: Record) -> str:
    ratio = _us(theirs) / _us(ours)
    return numbers.ratio(ratio) if ratio >= 0.1 else f"{ratio:.2g}"


def _us(record: Record) -> float:
    if not record.median_us:
        raise ConfigError(f"{record.kernel} was not timed")
    return record.median_us


def _time(record: Record) -> str:
    us = _us(record)
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"


def _rate(record: Record) -> str:
    """Return the rate of a record, in the unit of its op."""
    return numbers.rate(op_of(record.op, record.variant).rate(record))
