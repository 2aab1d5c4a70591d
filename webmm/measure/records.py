"""Records of measurements: one schema for Python, the browser, the tuner and the leaderboard.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

from webmm.errors import ProblemError, ShaderError, UnsupportedError
from webmm.files import write_atomically
from webmm.log import root
from webmm.text import is_plain

SCHEMA = "webmm.records/1"
REPORT = (
    "webmm.report/1"  # the entry `report` of a document that describes a machine, too: see webmm/report/evidence.py
)
Status = Literal["ok", "unsupported", "compile", "runtime", "incorrect", "timeout", "skipped"]
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True)
class Record:
    """The measurement of one kernel on one problem on one adapter, or the reason why there is none.

    `layout` gives the storage of A and B, n for normal or t for transposed; records of older versions lack it and are
    nn. `variant` names one of an op's variants, such as max of reduce. Times are in µs per product; `spread_us` is the
    interquartile range of `samples` times, `gflops` the median's rate in 10⁹ operations/s, `clock` timestamp or wall.
    `max_error` and `error_bound` are multiples of |A|·|B|; `peak_fraction` is the fraction of the device's measured FMA
    rate. If `status` is not ok, the measurements are None, and the first line of `reason` gives the cause; more lines,
    which are not saved, quote a compiler or tell how to see a wrong element. For ops other than gemm, `webmm/cases/`
    defines m, n, k, the peak and the scale of the errors.
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
        """M×N×K as text, followed by the size of the batch, if any: 64×512×512@8."""
        return f"{self.m}×{self.n}×{self.k}" + f"@{self.batch}" * (self.batch > 1)

    @classmethod
    def from_json(cls, row: object) -> Record:
        """Return the record in an entry of a document; raises ProblemError that names the first invalid field.

        Unknown fields are ignored.
        """
        if not isinstance(row, dict):
            raise ProblemError("is not an object")
        values = {**MAY_LACK, **{f.name: row[f.name] for f in fields(cls) if f.name in row}}
        for name in FIGURES:
            values[name] = _figure(values.get(name))
        for holds, names in RULES:
            for name in names:
                if name not in values or not holds(values[name]):
                    raise ProblemError(f"has no {'valid ' * (name in row)}{name}")
        if values["status"] == "ok" and not all(_is_measured(values[name]) for name in ("median_us", "gflops")):
            raise ProblemError("is ok, but has no positive median_us and gflops")
        return cls(**values)


def status_of(error: BaseException) -> Status:
    """Return the status of a kernel whose measurement raised an error."""
    if isinstance(error, UnsupportedError):
        return "unsupported"
    return "compile" if isinstance(error, ShaderError) else "runtime"


DEVICE = ("adapter", "backend", "driver", "engine", "version")  # what a measurement was made on
FIGURES = ("median_us", "best_us", "spread_us", "gflops", "max_error", "error_bound", "peak_fraction")
MAY_LACK: dict[str, Any] = {
    **{"batch": 1, "backend": "", "driver": "", "layout": "nn", "variant": "", "config": {}},
    **{"reason": None, "clock": None, "samples": None},
}
LAYOUTS = ("", "nn", "nt", "tn", "tt")
FOLDERS = re.compile(
    r"^(-[\w-]+=)?(?:/|\w:[\\/]).*[\\/](?=[^\\/]+[\\/]?$)"
)  # of an absolute path, after an option's name
MAX_SIZE = 2**53 - 1  # the largest integer that JavaScript's numbers hold exactly


def _figure(value: object) -> object:
    """Return a number, or "inf" or "nan" (which JSON numbers cannot express), as a float; other values unchanged."""
    if value in ("inf", "nan") or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        try:
            return float(value)
        except OverflowError:  # an integer of 309 digits or more
            return math.inf
    return value


def _is_name(value: object) -> bool:
    """Return whether `value` is text without control characters."""
    return isinstance(value, str) and is_plain(value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIZE


def _is_config(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_name(name) and (isinstance(setting, (int, float)) or _is_name(setting)) for name, setting in value.items()
    )


def _is_measured(value: object) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _is_layout(value: object) -> bool:
    return value in LAYOUTS


def _is_status(value: object) -> bool:
    return value in STATUSES


def _is_reason(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_clock(value: object) -> bool:
    return value is None or _is_name(value)


def _is_count(value: object) -> bool:
    return value is None or _is_size(value)


def _is_figure(value: object) -> bool:
    return value is None or (isinstance(value, float) and not value < 0)


# Validity of the fields of a document, in Python and, translated, on the page. Reasons may have several lines: those of
# files are never printed.
RULES: tuple[tuple[Callable[[object], bool], tuple[str, ...]], ...] = (
    (_is_name, ("op", "kernel", "dtype", "adapter", "engine", "version", "backend", "driver", "variant")),
    (_is_layout, ("layout",)),
    (_is_size, ("m", "n", "k", "batch")),
    (_is_status, ("status",)),
    (_is_reason, ("reason",)),
    (_is_clock, ("clock",)),
    (_is_count, ("samples",)),
    (_is_figure, FIGURES),
    (_is_config, ("config",)),
)


def to_json(records: Iterable[Record], **about: Any) -> str:
    """Return the records as a document of schema `webmm.records/1`: a header, then one record per line.

    The header contains the entries `about`, such as `provenance()`, and `devices`: the distinct adapters, drivers,
    engines and versions of the records.
    """
    rows = [{name: _finite(value) for name, value in _saved(record).items()} for record in records]
    devices = dict.fromkeys(tuple((name, row[name]) for name in DEVICE) for row in rows)
    return lines({"schema": SCHEMA, **about, "devices": [dict(each) for each in devices], "records": rows})


def lines(document: dict[str, Any]) -> str:
    """Return a JSON object with each of its entries on a line, and each element of a list of objects, too."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_on_lines(value)}" for name, value in document.items()) + "\n}\n"


def _on_lines(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def provenance() -> dict[str, str]:
    """Return the running command, without the folders of absolute paths, and the date: a header for `to_json()`."""
    program, *arguments = (FOLDERS.sub(r"\1", word) for word in sys.argv)
    name = "webmm" if program.endswith("__main__.py") else PurePath(program).stem  # the first by python -m webmm
    start = ["python", program] if program.endswith(f"{name}.py") else [name]
    return {"command": shlex.join([*start, *arguments]), "date": date.today().isoformat()}


def _saved(record: Record) -> dict[str, Any]:
    """Return the fields of a record as they are saved."""
    return asdict(record) | {"reason": record.reason and record.reason.partition("\n")[0]}


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(
    text: str,
    complain: Callable[[str], object] = root.warning,
    refusal: Callable[[Record], str | None] = lambda record: None,
) -> list[Record]:
    """Return the valid records of a document; call `complain` for each invalid one, which is left out.

    `refusal` returns why a valid record is left out all the same (such as `webmm.choose.tuned.refusal`), or None.
    Raises ProblemError if the text is not such a document, or if all of its records are invalid.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"this is not a {SCHEMA} document: it is not JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        found = f"; its schema is {schema!r:.40}" if isinstance(schema, str) else ""
        raise ProblemError(f"this is not a {SCHEMA} document{found}")
    rows = document.get("records")
    if not isinstance(rows, list):
        raise ProblemError(f"this {SCHEMA} document contains no list of records")
    records, complaints = [], []
    for i, row in enumerate(rows, 1):
        try:
            record = Record.from_json(row)
            if reason := refusal(record):
                raise ProblemError(reason)
            records.append(record)
        except ProblemError as error:
            complaints.append(f"record {i} {error}")
    if rows and not records:
        raise ProblemError(f"this {SCHEMA} document contains no valid record: {complaints[0]}")
    for complaint in complaints:
        complain(f"{complaint}; it is left out")
    return records


def to_csv(records: Iterable[Record]) -> str:
    """Return the records as CSV with a header; the column `config` holds JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [f.name for f in fields(Record)], lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({**_saved(record), "config": json.dumps(record.config)})
    return out.getvalue()


def save(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    write_atomically(path, lambda file: file.write(text.encode()))
