"""The lines that `commits.py` writes: how they are read, and what is drawn of them, for the site, too."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from webmm.learn.drawings.svg import Svg
from webmm.measure.benchmark import Ratio

SCHEMA = "webmm.commits/1"
PAGE = "by-commit.md"
COMMIT = re.compile(r"[0-9a-f]{40}")
NAME = re.compile(r"[^<>|`\[\]\x00-\x1f\x7f]+")  # names stand in tables as they are
DRAWN, SHOWN = 100, 8  # the last commits in a chart, and in a table
COLUMNS, WIDTH, HEIGHT = 2, 360.0, 132.0  # of the panels of a chart
LEFT, RIGHT, TOP, BOTTOM = 40.0, 14.0, 26.0, 16.0
ROOM = 2.0  # the least factor between the ends of a panel: less would look like a change

Machine = tuple[str, str, str]


@dataclass(frozen=True)
class Line:
    """What was measured of a commit: how many times as fast as NumPy each call is."""

    commit: str
    date: str
    device: str
    driver: str
    processor: str
    versions: dict[str, str]
    ratios: dict[str, Ratio]

    @property
    def machine(self) -> Machine:
        """What must be equal for ratios to be compared."""
        return self.device, self.driver, self.processor

    def to_json(self) -> str:
        """Return the line without its end."""
        ratios = {name: {end: float(f"{x:.4g}") for end, x in vars(each).items()} for name, each in self.ratios.items()}
        return json.dumps({"schema": SCHEMA, **asdict(self), "ratios": ratios}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Line:
        """Return the line in a text; raises ValueError that says what is wrong with it."""
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("is not JSON") from error
        if not isinstance(row, dict) or row.get("schema") != SCHEMA:
            raise ValueError(f"is not of schema {SCHEMA}")
        for name in ("device", "driver", "processor"):
            _check(isinstance(row.get(name), str) and NAME.fullmatch(row[name]), name)
        _check(isinstance(row.get("commit"), str) and COMMIT.fullmatch(row["commit"]), "commit")
        _check(_is_date(row.get("date")), "date")
        versions, ratios = row.get("versions"), row.get("ratios")
        _check(_is_named(versions) and all(isinstance(each, str) for each in versions.values()), "versions")
        _check(_is_named(ratios) and ratios and all(map(_is_ratio, ratios.values())), "ratios")
        of = {name: Ratio(each["median"], each["low"], each["high"]) for name, each in ratios.items()}
        return cls(*(row[name] for name in ("commit", "date", "device", "driver", "processor")), versions, of)


def _check(holds: object, name: str) -> None:
    if not holds:
        raise ValueError(f"has no valid {name}")


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).utcoffset() is not None
    except ValueError:
        return False


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and all(NAME.fullmatch(name) for name in value)


def _is_ratio(value: Any) -> bool:
    try:
        return 0 < value["low"] <= value["median"] <= value["high"] < math.inf
    except (KeyError, TypeError):
        return False


def parsed(text: str) -> Iterator[tuple[str, Line | str]]:
    """Yield each line of a file as it is, and what it says, or in words why it says nothing."""
    for i, raw in enumerate(text.split("\n"), 1):
        if raw.strip():
            try:
                yield raw, Line.from_json(raw)
            except ValueError as error:
                yield raw, f"line {i} {error}"


def read(text: str) -> tuple[list[Line], list[str]]:
    """Return the valid lines of a file, and what is wrong with the others."""
    found = [each for _, each in parsed(text)]
    return [each for each in found if isinstance(each, Line)], [each for each in found if isinstance(each, str)]


def drawn(lines: list[Line]) -> tuple[str, dict[str, str]]:
    """Return Markdown with a section for each machine, the last measured first, and its charts by their names."""
    text, charts = "", {}
    machines: dict[Machine, list[Line]] = {}
    for line in sorted(lines, key=lambda line: datetime.fromisoformat(line.date), reverse=True):
        machines.setdefault(line.machine, []).insert(0, line)
    for machine, found in machines.items():
        title = ", ".join(machine)
        name = f"commits-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}.svg"
        drawing = chart(f"How many times as fast as NumPy, by commit: {title}", found[-DRAWN:])
        charts[name] = str(drawing)
        text += f"## {title}\n\n![{drawing.alt}]({name})\n\n{table(found[-SHOWN:])}\n"
    return text, charts


def names_of(lines: list[Line]) -> list[str]:
    """Return the calls that any of the lines has, in the order of the last."""
    return list(dict.fromkeys(name for line in reversed(lines) for name in line.ratios))


def table(lines: list[Line]) -> str:
    """Return a row for each call and a column for each commit."""
    heads = (f"`{line.commit[:8]}`<br>{line.date[:10]}" for line in lines)
    rows = [f"| call | {' | '.join(heads)} |", "|---|" + "--:|" * len(lines)]
    for name in names_of(lines):
        ratios = (line.ratios.get(name) for line in lines)
        cells = (f"{each.median:.3g} <small>{each}</small>" if each else "–" for each in ratios)
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def chart(title: str, lines: list[Line]) -> Svg:
    """Return a drawing with a panel for each call: its ratio and interval at each commit, in order."""
    names = names_of(lines)
    svg = Svg(COLUMNS * WIDTH, math.ceil(len(names) / COLUMNS) * HEIGHT, title)
    for i, name in enumerate(names):
        panel(svg, (i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT), name, lines)
    return svg


def panel(svg: Svg, corner: tuple[float, float], name: str, lines: list[Line]) -> None:
    """Draw the ratios of one call, on a logarithmic scale; NumPy's 1 is a line where it is in range."""
    left, right = corner[0] + LEFT, corner[0] + WIDTH - RIGHT
    top, bottom = corner[1] + TOP, corner[1] + HEIGHT - BOTTOM
    ratios = [each for line in lines if (each := line.ratios.get(name))]
    low, high = (math.log(end) for end in ends(ratios))

    def y(value: float) -> float:
        return bottom - (math.log(value) - low) / (high - low) * (bottom - top)

    svg.text(left, top - 10, name, css="small")
    for end in (low, high):
        svg.line("faint", left, y(math.exp(end)), right, y(math.exp(end)))
        svg.text(left - 5, y(math.exp(end)) + 4, f"{math.exp(end):.2g}", anchor="end", css="small")
    if low < 0 < high:
        svg.line("line", left, y(1), right, y(1))
        svg.text(right + 3, y(1) + 4, "1", css="small")
    points = []
    for i, line in enumerate(lines):
        if each := line.ratios.get(name):
            x = left + (i + 0.5) / len(lines) * (right - left)
            points.append((x, y(each.median)))
            svg.line("slab", x, y(each.low), x, y(each.high), 2)
            svg.dot("mine", *points[-1], 2.5, f"{line.commit[:8]}, {line.date[:10]}: {each.median:.3g} ({each})")
    svg.path("mine", points, 1)


def ends(ratios: list[Ratio]) -> tuple[float, float]:
    """Return the ends of an axis for ratios: theirs, at least a factor of ROOM apart."""
    low, high = min(each.low for each in ratios), max(each.high for each in ratios)
    wider = max(1.0, math.sqrt(ROOM * low / high))
    return low / wider, high * wider
