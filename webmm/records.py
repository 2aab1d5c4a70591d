"""One measurement, or the reason why there is none: the same schema for Python, the browser and the tuner."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from webmm.errors import ProblemError
from webmm.files import write_atomically
from webmm.log import root
from webmm.text import is_plain

SCHEMA = "webmm.records/1"
Status = Literal["ok", "unsupported", "compile", "runtime", "incorrect", "timeout", "skipped"]


@dataclass(frozen=True)
class Record:
    """One kernel on one problem on one adapter.

    `layout` says how A and B are stored, n as they are or t transposed; records of old documents, which do not, were of
    nn. `variant` says which of several the op was, such as max of reduce. Times are µs per product, `spread_us` the
    interquartile range of so many `samples`, `gflops` 10⁹ operations/s of the median; `clock` is timestamp or wall;
    `max_error` and `error_bound` are multiples of |A|·|B|; `peak_fraction` is the share of the device's measured FMA
    rate. Where `status` is not ok, `reason` says why in words and the measurements are None. What m, n and k are, and
    of which other peak or scale the figures of another op are shares or multiples, `webmm/cases/` says.
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
    spread_us: float | None = None
    samples: int | None = None
    gflops: float | None = None
    clock: str | None = None
    max_error: float | None = None
    error_bound: float | None = None
    peak_fraction: float | None = None

    @property
    def size(self) -> str:
        """M×N×K in words, and how many of them where it is a batch: 64×512×512@8."""
        return f"{self.m}×{self.n}×{self.k}" + f"@{self.batch}" * (self.batch > 1)

    @classmethod
    def from_json(cls, row: object) -> Record:
        """Return the record in a row of a document; raises ProblemError that names a field which is none of its kind.

        Fields that this version does not know are left out.
        """
        if not isinstance(row, dict):
            raise ProblemError("is no object")
        said = {**MAY_LACK, **{f.name: row[f.name] for f in fields(cls) if f.name in row}}
        for name in FIGURES:
            said[name] = _figure(said.get(name))
        for holds, names in RULES:
            for name in names:
                if name not in said or not holds(said[name]):
                    raise ProblemError(f"has no {'valid ' * (name in row)}{name}")
        if said["status"] == "ok" and not all(_is_measured(said[name]) for name in ("median_us", "gflops")):
            raise ProblemError("is ok, and has no positive median_us and gflops")
        return cls(**said)


FIGURES = ("median_us", "best_us", "spread_us", "gflops", "max_error", "error_bound", "peak_fraction")
MAY_LACK: dict[str, Any] = {
    **{"batch": 1, "backend": "", "driver": "", "layout": "nn", "variant": "", "config": {}},
    **{"reason": None, "clock": None, "samples": None},
}
LAYOUTS = ("", "nn", "nt", "tn", "tt")
MAX_SIZE = 2**53 - 1  # the largest integer that JavaScript's numbers hold exactly


def _figure(value: object) -> object:
    """Return a number of JSON, which has no infinity, as a float; anything else as it is."""
    if value in ("inf", "nan") or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        try:
            return float(value)
        except OverflowError:  # of an integer of 309 digits
            return math.inf
    return value


def _is_name(value: object) -> bool:
    """Tell whether it is text that a terminal shows as it is: control characters are none of a name."""
    return isinstance(value, str) and is_plain(value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIZE


def _is_config(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_name(name) and (isinstance(setting, (int, float)) or _is_name(setting)) for name, setting in value.items()
    )


def _is_measured(value: object) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


# What the fields of a document must be, as in `web/records.js`. A reason may have lines; nobody prints those of files.
RULES: tuple[tuple[Callable[[object], bool], tuple[str, ...]], ...] = (
    (_is_name, ("op", "kernel", "dtype", "adapter", "engine", "version", "backend", "driver", "variant")),
    (lambda value: value in LAYOUTS, ("layout",)),
    (_is_size, ("m", "n", "k", "batch")),
    (lambda value: value in get_args(Status), ("status",)),
    (lambda value: value is None or isinstance(value, str), ("reason",)),
    (lambda value: value is None or _is_name(value), ("clock",)),
    (lambda value: value is None or _is_size(value), ("samples",)),
    (lambda value: value is None or (isinstance(value, float) and not value < 0), FIGURES),
    (_is_config, ("config",)),
)


def to_json(records: Iterable[Record]) -> str:
    """Return the records as a document of schema `webmm.records/1`."""
    rows = [{name: _finite(value) for name, value in asdict(record).items()} for record in records]
    return json.dumps({"schema": SCHEMA, "records": rows}, indent=1) + "\n"


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(text: str, complain: Callable[[str], object] = root.warning) -> list[Record]:
    """Return the sound records of a document, and `complain` of each other, which is left out.

    Raises ProblemError where the document is none of ours, or holds records and no sound one.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"this is no {SCHEMA} document, but no JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        what = f", but of schema {schema!r:.40}" if isinstance(schema, str) else ""
        raise ProblemError(f"this is no {SCHEMA} document{what}")
    rows = document.get("records")
    if not isinstance(rows, list):
        raise ProblemError(f"this {SCHEMA} document holds no list of records")
    records, complaints = [], []
    for i, row in enumerate(rows, 1):
        try:
            records.append(Record.from_json(row))
        except ProblemError as error:
            complaints.append(f"record {i} {error}")
    if rows and not records:
        raise ProblemError(f"this {SCHEMA} document holds no sound record: {complaints[0]}")
    for complaint in complaints:
        complain(f"{complaint}; it is left out")
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
