"""Write the table of results from what the files in results/ say of themselves; the header of a new result file.

    python bench/results.py    # writes bench/results/README.md

Each file is a JSON object: a header with `command`, `devices` and, where something must be known, `note`; then the
measurements, one per line.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webmm
from webmm.engine.adapters import AdapterInfo
from webmm.measure.records import provenance

RESULTS = Path(__file__).with_name("results")
TABLE = RESULTS / "README.md"
HEAD = """# Results

Written by `python bench/results.py` from the headers of the files. [bench/README.md](../README.md) has the method, and
[docs/results.md](../../docs/results.md) what the figures say. One record per line; `.gz`: collected data for fits.
[lavapipe-commits.jsonl](lavapipe-commits.jsonl) has ratios to NumPy, a line [by commit](../README.md#by-commit).

| file | adapter | drivers | engines | command | note |
|---|---|---|---|---|---|
"""


def header(engine: str, *infos: AdapterInfo) -> dict[str, Any]:
    """Return the header of measurements by an engine on adapters, as `to_json()` makes it for records."""
    version = webmm.__version__
    devices = [
        {"adapter": info.name, "backend": info.backend, "driver": info.driver, "engine": engine, "version": version}
        for info in infos
    ]
    return {**provenance(), "devices": devices}


def table() -> str:
    """Return the text of TABLE."""
    files = sorted(path for path in RESULTS.iterdir() if path.suffix in (".json", ".gz"))
    return HEAD + "".join(f"| {' | '.join(cells(path))} |\n" for path in files)


def cells(path: Path) -> Iterator[str]:
    """Yield the cells of a file's row."""
    about = header_of(path)
    devices = about["devices"]
    yield f"[`{path.name}`]({path.name})"
    yield _each(each["adapter"] for each in devices)
    yield _each(f"{each['backend']} {each['driver']}".strip() for each in devices)
    yield _each(each["engine"] for each in devices)
    yield f"`{about['command']}`" if about["command"] else ""
    yield about.get("note", "")


def _each(texts: Iterator[str]) -> str:
    return "; ".join(filter(None, dict.fromkeys(texts)))


def header_of(path: Path) -> dict[str, Any]:
    """Return the entries of a result file except for its records, which come last and are not parsed."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    head, found, _ = text.partition(',\n"records": [')
    about: dict[str, Any] = json.loads(head + "}" if found else text)
    return about


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
