"""Pages of results that are made from the records: what each op reaches in each type on each engine, and charts."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence import ALIKE, engine_of

from webmm.cases import op_of
from webmm.learn.drawings.svg import Svg
from webmm.measure.records import SCHEMA, Record
from webmm.problems import OPS

ROOT = Path(__file__).resolve().parents[2]

PAGES = {"Tables and charts": "results/tables.md"}
LIBRARY = re.compile(r"[\w.-]+")  # the name of another library in a record's engine, before its version
CLOCKS = {"timestamp": "kernels, by the device's clock", "wall": "calls and kernels, by the wall clock"}
STEP = 128  # of the sizes in charts
LINES = ("mine", "slab", "good", "bad", "text", "tile")  # colours of a chart's lines
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720.0, 380.0, 64.0, 190.0, 24.0, 44.0

Key = tuple[str, str, str, str, str]  # adapter, clock, op with its variant, element type, engine


def pages() -> dict[str, str]:
    """Return the text of each page and drawing by its path on the site."""
    found = measured()
    text = "---\nhide: [toc]\n---\n\n# Tables and charts\n\n" + INTRODUCTION  # the tables are wide
    drawings = {}
    many = Counter(key[0] for key in found if own(key[-1]))
    for adapter, _ in many.most_common():
        for clock, words in CLOCKS.items():
            chosen = {key[2:]: rows for key, rows in found.items() if key[:2] == (adapter, clock)}
            text += f"## {adapter}: {words}\n\n{table(chosen)}\n" if chosen else ""
            for dtype, drawing in charts(chosen):
                name = f"{re.sub(r'[^a-z0-9]+', '-', adapter.lower())}-{clock}-{dtype}.svg"
                drawings[f"results/{name}"] = str(drawing)
                text += f"![{drawing.alt}]({name})\n\n"
    return {"results/tables.md": text, **drawings}


INTRODUCTION = """Made from the [records](../../bench/results/README.md) when the site is built. A cell has the highest
rate of any kernel and settings, with its size; other libraries stand beside webmm's engines. Records that were only
collected for fits are left out. What the figures say, and how they were measured, is in [results](../results.md) and
[bench](../../bench/README.md); which of them were checked against NumPy in [what was measured where](../evidence.md).

"""


def measured() -> dict[Key, list[Record]]:
    """Return the successful records of the files in bench/results, by what distinguishes the cells of tables."""
    found: dict[Key, list[Record]] = {}
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            continue
        for row in document["records"]:
            if row.get("status", "ok") == "ok" and row["clock"] in CLOCKS and row["op"] in OPS:
                record = Record.from_json(row)
                found.setdefault(key_of(record, row), []).append(record)
    return found


def key_of(record: Record, row: dict[str, Any]) -> Key:
    """Return what distinguishes the cell of a record."""
    name = ALIKE.get(record.adapter, record.adapter)
    library = LIBRARY.match(record.engine)
    engine = engine_of(row) or (library[0] if library else record.engine)
    op = f"{record.op}: {record.variant}" if record.variant else record.op
    return name, str(record.clock), op, record.dtype, engine


def table(chosen: dict[tuple[str, str, str], list[Record]]) -> str:
    """Return the table of an adapter and clock: a row for each op and type, a column for each engine."""
    engines = sorted({engine for *_, engine in chosen}, key=_own_first)
    lines = [f"| op | type | unit | {' | '.join(engines)} |", "|---|---|---|" + "--:|" * len(engines)]
    for op, dtype in sorted({(op, dtype) for op, dtype, _ in chosen}, key=_in_order):
        cells = (cell(chosen.get((op, dtype, engine), [])) for engine in engines)
        lines.append(f"| {op} | {dtype} | {op_of(op.partition(':')[0]).unit} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def own(engine: str) -> bool:
    """Tell whether an engine runs webmm, not another library."""
    return engine.startswith(("wgpu", "Dawn", "Chrom", "Edge", "Safari", "Firefox"))


def _own_first(engine: str) -> tuple[bool, str]:
    return not own(engine), engine


def _in_order(row: tuple[str, str]) -> tuple[int, str, str]:
    return list(OPS).index(row[0].partition(":")[0]), *row


def rate(record: Record) -> float:
    """Return the speed of a record in its op's unit."""
    return op_of(record.op).rate(record)


def cell(records: list[Record]) -> str:
    """Return the highest rate and its size, "–" if there is none."""
    best = max(records, key=rate, default=None)
    return f"{_figure(rate(best))} <small>{best.size}</small>" if best else "–"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def charts(chosen: dict[tuple[str, str, str], list[Record]]) -> Iterator[tuple[str, Svg]]:
    """Yield the rates of square products by size, for each type with three multiples of STEP or more."""
    for dtype in sorted({dtype for op, dtype, _ in chosen if op == "gemm"}):
        lines = {}
        for (op, each, engine), records in chosen.items():
            best: dict[int, float] = {}
            for record in records:
                if (op, each) == ("gemm", dtype) and is_drawn(record):
                    best[record.m] = max(best.get(record.m, 0.0), rate(record))
            if len(best) > 2:
                lines[engine] = sorted(best.items())
        if lines:
            title = f"Square products in {dtype}: GFLOP/s at multiples of {STEP}"
            yield dtype, chart(title, dict(sorted(lines.items())))


def is_drawn(record: Record) -> bool:
    """Tell whether a product is in a chart: other sizes than multiples of STEP vary with what tiles they leave."""
    return record.m == record.n == record.k and record.batch == 1 and record.m % STEP == 0


def chart(title: str, lines: dict[str, list[tuple[int, float]]]) -> Svg:
    """Return a drawing of rates (GFLOP/s) by size, both logarithmic, with a line for each engine."""
    svg = Svg(WIDTH, HEIGHT, title)
    xs = [math.log2(size) for points in lines.values() for size, _ in points]
    ys = [math.log10(value) for points in lines.values() for _, value in points]
    left, right, low, high = min(xs), max(xs), math.floor(min(ys)), math.ceil(max(ys))

    def at(size: float, value: float) -> tuple[float, float]:
        x = LEFT + (math.log2(size) - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        return x, HEIGHT - BOTTOM - (math.log10(value) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    for power in range(low, high + 1):
        y = at(2**left, 10**power)[1]
        svg.line("faint", LEFT, y, WIDTH - RIGHT, y)
        svg.text(LEFT - 8, y + 4, f"{10**power:,}" if power >= 0 else f"{10.0**power:g}", anchor="end", css="small")
    for power in range(math.ceil(left), math.floor(right) + 1):
        x = at(2**power, 10**low)[0]
        svg.line("faint", x, TOP, x, HEIGHT - BOTTOM)
        svg.text(x, HEIGHT - BOTTOM + 18, f"{2**power}", anchor="middle", css="small")
    svg.text(LEFT, TOP - 8, "GFLOP/s", css="small")
    svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "M = N = K", anchor="middle", css="small")
    for i, (engine, points) in enumerate(lines.items()):
        colour = LINES[i % len(LINES)]
        svg.path(colour, [at(*point) for point in points], 2)
        for point in points:
            svg.dot(colour, *at(*point), 3)
        svg.dot(colour, WIDTH - RIGHT + 18, TOP + 20 * i + 6)
        svg.text(WIDTH - RIGHT + 28, TOP + 20 * i + 10, engine, css="small")
    return svg
