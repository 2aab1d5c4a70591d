"""Write the table of docs/evidence.md: what was measured where, and what was only computed, emulated or translated.

    python bench/evidence.py

The rows of measurements come from the records in results/ and in leaderboard/; those of tests are listed here, each
with the file that runs it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from webmm.measure.records import SCHEMA
from webmm.problems import OPS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
ALIKE = {"nvidia-h200": "NVIDIA H200"}  # names of one adapter in engines
MATRIX_UNITS = {
    "gemm": "test_matrix_unit.py",
    "quantized": "test_byte_matrix_unit.py",
    "weights": "test_weights_matrix_unit.py",
    "attention": "test_attention_units.py",
}
CHECK = "tests/cli/test_commands.py"


class Row(NamedTuple):
    """Evidence of tests: what runs where, how it counts, and the file that proves it for each op."""

    adapter: str
    engine: str
    how: str
    proofs: dict[str, str]


TESTS = (
    Row("lavapipe, a CPU", "wgpu from Python", "computed", dict.fromkeys(OPS, "tests/gpu/test_selftest.py")),
    Row(
        *("SwiftShader, a CPU", "Dawn from Python", "computed"),
        {op: "tests/gpu/test_engines.py" for op in OPS if op != "weights"},
    ),
    Row(
        *("SwiftShader, a CPU", "Chromium; Dawn in node", "computed"),
        {op: "tests/web/test_calls.py" for op in OPS if op != "attention"},
    ),
    Row(
        *("matrix units, on lavapipe", "wgpu from Python", "emulated"),
        {op: f"tests/gpu/{name}" for op, name in MATRIX_UNITS.items()},
    ),
    Row("Vulkan, Direct3D 12, Metal", "naga", "translated", dict.fromkeys(OPS, CHECK)),
    Row("Chromium", "Tint", "validated", dict.fromkeys(OPS, CHECK)),
)


def engine_of(record: dict[str, Any]) -> str | None:
    """Return the engine of webmm that a record names, or None: it is of another library."""
    engine = record.get("engine") or ""
    if engine.startswith("wgpu-py"):
        return "wgpu from Python"
    if engine.startswith("dawn"):
        return "Dawn from Python"
    own = engine.startswith(("webmm", "node, Dawn", "WebGPU with Dawn"))
    return "Dawn in node" if own else engine if engine.startswith(("Chrome", "Edge", "Safari", "Firefox")) else None


Types = dict[str, set[str]]  # by op


def measured() -> dict[tuple[str, str], tuple[Types, Types]]:
    """Return, by adapter and engine, the types of the records with errors, and of those without."""
    found: dict[tuple[str, str], tuple[Types, Types]] = {}
    for record in records():
        engine = None if "switch" in record["config"] else engine_of(record)  # switches.py alters what it times
        if engine and record["op"] in OPS and record["median_us"]:
            adapter = ALIKE.get(record["adapter"], record["adapter"])
            kinds = found.setdefault((adapter, engine), ({}, {}))
            kinds[record.get("max_error") is None].setdefault(record["op"], set()).add(record["dtype"])
    return dict(sorted(found.items()))


def cell(measured: set[str], timed: set[str]) -> str:
    """Return what is known about an op by records."""
    words = {"measured": measured, "timed": timed - measured}
    return "; ".join(f"{how}: {', '.join(sorted(types))}" for how, types in words.items() if types) or "–"


def records() -> Iterator[dict[str, Any]]:
    """Yield the records of all published files."""
    for path in sorted([*(ROOT / "bench" / "results").iterdir(), *(ROOT / "leaderboard").iterdir()]):
        if path.suffix in (".json", ".gz"):
            text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            document = json.loads(text)
            if document.get("schema") == SCHEMA:
                yield from (row for row in document["records"] if row.get("status", "ok") == "ok")


def table() -> str:
    """Return the lines of the table."""
    lines = [f"| adapter | engine | {' | '.join(OPS)} |", "|---" * (2 + len(OPS)) + "|"]
    for (adapter, engine), (checked, timed) in measured().items():
        cells = (cell(checked.get(op, set()), timed.get(op, set())) for op in OPS)
        lines.append(f"| {adapter} | {engine} | {' | '.join(cells)} |")
    for row in TESTS:
        cells = (f"[{row.how}](../{row.proofs[op]})" if op in row.proofs else "–" for op in OPS)
        lines.append(f"| {row.adapter} | {row.engine} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(r"(?m)(?:^\|.*\n)+", table(), text, count=1), encoding="utf-8")
