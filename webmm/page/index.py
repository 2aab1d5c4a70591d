"""Contents of `bundle/index.json`: data that the page cannot compute, such as measurements and settings of Python."""

from __future__ import annotations

import dataclasses
from typing import Any

from webmm.choose import tables, tuned
from webmm.dtypes import FLOATS
from webmm.measure import roofline
from webmm.measure.records import REPORT, Record
from webmm.measure.records import SCHEMA as RECORDS
from webmm.page import ladders, rows
from webmm.version import ADDRESS, __version__

SCHEMA = "webmm.bundle/2"


def index() -> dict[str, Any]:
    """Return the document that the page loads first."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "records": RECORDS,
        "report": REPORT,
        "address": ADDRESS,
        "ladders": [ladder.title for ladder in ladders.every()],
        "explained": ladders.explained(),
        "ops": rows.index(),
        "shown": rows.titles(),
        "dtypes": {d.name: {"eps": d.eps, "tiny": d.tiny, "features": sorted(d.features)} for d in FLOATS},
        "roofline": _roofline(),
        "tuned": _tuned(),
        "models": sorted(tables.shipped()),
    }


def _tuned() -> list[dict[str, Any]]:
    """Return the shipped records of Dawn, the browsers' engine, without fields that have their default values."""
    defaults = {f.name: f.default for f in dataclasses.fields(Record)}
    return [
        {name: value for name, value in dataclasses.asdict(record).items() if value != defaults[name]}
        for record in tuned.shipped()
        if tuned.family(record) == "dawn"
    ]


def _roofline() -> dict[str, Any]:
    """Return the settings of the micro-kernels that measure the roofline, for GPUs and for software adapters."""

    def rates(cpu: bool) -> dict[str, Any]:
        return {
            "fma": [
                {
                    "settings": variant.settings,
                    "workgroups": variant.workgroups,
                    "results": variant.invocations,
                    "flops": variant.flops,
                }
                for variant in roofline.fma_variants(cpu)
            ],
            "copy": {"workgroup": roofline.COPY_WORKGROUP, "nbytes": roofline.copy_bytes(cpu)},
        }

    return {"bindings": [dataclasses.asdict(b) for b in roofline.BINDINGS], "gpu": rates(False), "cpu": rates(True)}
