"""Contents of `bundle/index.json`: data that the page cannot compute, such as measurements and settings of Python."""

from __future__ import annotations

import dataclasses
from typing import Any

from webmm.cases import OPS
from webmm.choose import tables, tuned
from webmm.dtypes import FLOATS
from webmm.measure.records import REPORT, Record
from webmm.page import ladders, rows
from webmm.page.script.names import LATE_OPS
from webmm.version import ADDRESS, __version__

SCHEMA = "webmm.bundle/2"


def index() -> dict[str, Any]:
    """Return the document that the page loads first."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "report": REPORT,
        "address": ADDRESS,
        "ops": list(OPS),
        "late": list(LATE_OPS),
        "subjects": _subjects(),
        "dtypes": {d.name: {"eps": d.eps, "tiny": d.tiny} for d in FLOATS},
        "tuned": _tuned(),
        "models": sorted(tables.shipped()),
    }


def _subjects() -> dict[str, list[tuple[str, str, int]]]:
    """Return what panels offer, as (title, kind, number of a ladder or exhibit); the page has a function per kind."""
    product = ("Matrix product", "products", 0)
    known = [(ladder.title, "known", i) for i, ladder in enumerate(ladders.every())]
    shown = [(title, "exhibited", i) for i, (title, _) in enumerate(rows.titles())]
    checked = [shown[i] for i, (_, is_checked) in enumerate(rows.titles()) if is_checked]
    return {
        "ladder": [product, *known, *checked],
        "explain": [product, *(known[i] for i in ladders.explained()), *shown],
    }


def _tuned() -> list[dict[str, Any]]:
    """Return the shipped records of Dawn, the browsers' engine, without fields that have their default values."""
    defaults = {f.name: f.default for f in dataclasses.fields(Record)}
    return [
        {name: value for name, value in dataclasses.asdict(record).items() if value != defaults[name]}
        for record in tuned.shipped()
        if tuned.family(record) == "dawn"
    ]
