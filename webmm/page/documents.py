"""The documents of records that the page reads: its own ones, those of `webmm bench`, and those in links.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from webmm.choose.tuned import refusal
from webmm.errors import ProblemError
from webmm.measure.records import SCHEMA, Record

MOST = 10_000  # records: longer tables are slow and unreadable


def records_of(document: object) -> list[Record]:
    """Return the records of a parsed document, all of them valid; raises ProblemError for any other."""
    entries = document if isinstance(document, dict) else {}
    schema, rows = entries.get("schema"), entries.get("records")
    if schema != SCHEMA:
        found = f"; its schema is {schema[:40]}" if isinstance(schema, str) else ""
        raise ProblemError(f"this is not a {SCHEMA} document{found}")
    if not isinstance(rows, list):
        raise ProblemError("the document contains no list of records")
    if len(rows) > MOST:
        raise ProblemError(f"the document contains {len(rows)} records; this page shows at most {MOST}")
    return [_record(row, i) for i, row in enumerate(rows, 1)]


def _record(row: object, number: int) -> Record:
    try:
        record = Record.from_json(row)
    except ProblemError as error:
        raise ProblemError(f"record {number} {error}") from error
    if reason := refusal(record):
        raise ProblemError(f"record {number} {reason}")
    return record
