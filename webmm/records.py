"""One measurement, or the reason why there is none: the same schema for Python, the browser and the tuner."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from webmm.errors import ProblemError
from webmm.files import write_atomically

SCHEMA = "webmm.records/1"
Status = Literal["ok", "unsupported", "compile", "runtime", "incorrect", "timeout", "skipped"]


@dataclass(frozen=True)
class Record:
    """One kernel on one problem on one adapter.

    `layout` says how A and B are stored, n as they are or t transposed; records of old documents, which do not, were of
    nn. `variant` says which of several the op was, such as max of reduce. Times are µs per product, `gflops` 10⁹
    operations/s of the median; `clock` is timestamp or wall; `max_error` and `error_bound` are multiples of |A|·|B|;
    `peak_fraction` is the share of the device's measured FMA rate. Where `status` is not ok, `reason` says why in words
    and the measurements are None. What m, n and k are, and of which other peak or scale the figures of another op are
    shares or multiples, `webmm/cases/` says.
    """

    op: str
    kernel: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    engine: str
    adapter: str
    backend: str
    driver: str
    version: str
    config: dict[str, Any] = field(default_factory=dict)
    layout: str = "nn"
    variant: str = ""
    status: Status = "ok"
    reason: str | None = None
    median_us: float | None = None
    best_us: float | None = None
    gflops: float | None = None
    clock: str | None = None
    max_error: float | None = None
    error_bound: float | None = None
    peak_fraction: float | None = None

    @property
    def size(self) -> str:
        """M×N×K in words."""
        return f"{self.m}×{self.n}×{self.k}"


def to_json(records: Iterable[Record]) -> str:
    """Return the records as a document of schema `webmm.records/1`."""
    rows = [{name: _finite(value) for name, value in asdict(record).items()} for record in records]
    return json.dumps({"schema": SCHEMA, "records": rows}, indent=1) + "\n"


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(text: str) -> list[Record]:
    """Return the records of a document; raises ProblemError where it is none of ours, naming what is wrong."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise ProblemError(f"the records are of schema {document['schema']!r}; this version reads {SCHEMA!r}")
        records = [Record(**row) for row in document["records"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ProblemError(f"this is no {SCHEMA} document: {error}") from error
    for record in records:
        if record.status not in get_args(Status):
            raise ProblemError(f"unknown status {record.status!r}; one of {', '.join(get_args(Status))}")
    return records


def to_csv(records: Iterable[Record]) -> str:
    """Return the records as CSV with a header; the config is JSON in its cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [f.name for f in fields(Record)], lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({**asdict(record), "config": json.dumps(record.config)})
    return out.getvalue()


def save(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))
