"""Time that a fresh process takes to import webmm and to compute its first product, relative to `import numpy`.

    python bench/start.py [--json FILE] [--rounds N] [--cold N] [--adapter NAME] [--engine NAME]

Each row is a new Python process, timed from its start to its end by the wall clock; "CPU" is the user and system time
of the process. The rows alternate, so that a change of the machine's speed affects all of them, and the median of each
is printed. The first product is 512×300 by 300×400 from NumPy to NumPy, and its elements are checked. Before the first
round, each row runs once, which fills the caches, Python's of compiled modules included, for which all processes use a
temporary folder; "cold" rows have new, empty folders for webmm's caches and Mesa's. PyTorch is included if it is
installed. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from results import header

from webmm.engine.adapters import choose_engine
from webmm.measure.records import lines, save

PRODUCT = """
import numpy, webmm
a, b = numpy.ones((512, 300), numpy.float32), numpy.ones((300, 400), numpy.float32)
assert (webmm.matmul(a, b) == 300).all()
"""
BASE = "import numpy"


class Row(NamedTuple):
    """A process: what it is called, its arguments after Python's name, and whether its caches are empty."""

    name: str
    arguments: tuple[str, ...]
    cold: bool = False


def main() -> None:
    """Print a table, and write the times to the file given by --json, if any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cold", type=int, default=3, help="rounds that include the rows with empty caches")
    parser.add_argument("--adapter")
    parser.add_argument("--engine", default=None)
    options = parser.parse_args()
    given = {"WEBMM_ADAPTER": options.adapter, "WEBMM_ENGINE": options.engine}
    os.environ.update({name: value for name, value in given.items() if value})
    engine, info, _ = choose_engine(options.engine or "wgpu", options.adapter)
    print(f"{info}, {engine.version()}; {options.rounds} rounds")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as os.environ["PYTHONPYCACHEPREFIX"]:
        times = measured(rows(), options.rounds, options.cold)
    base = statistics.median(wall for wall, _ in times[BASE])
    found = [summary(name, pairs, base) for name, pairs in times.items() if pairs]
    print(f"{'process':<34}{'s':>7}{'min':>7}{'CPU':>7}{'÷ numpy':>9}")
    for row in found:
        print(f"{row['name']:<34}{row['median_s']:7.3f}{row['min_s']:7.3f}{row['cpu_s']:7.3f}{row['ratio']:9.2f}")
    if options.json:
        host = {"python": sys.version.split()[0], "cores": os.cpu_count()}
        save(Path(options.json), lines({**header(engine.version(), info), **host, "records": found}))


def rows() -> list[Row]:
    """Return all rows."""
    found = [
        Row(BASE, ("-c", BASE)),
        Row("import webmm", ("-c", "import webmm")),
        Row("first product", ("-c", PRODUCT)),
        Row("webmm --version", ("-m", "webmm.cli", "--version")),
        Row("webmm info", ("-m", "webmm.cli", "info")),
        Row("import webmm, cold", ("-c", "import webmm"), True),
        Row("first product, cold", ("-c", PRODUCT), True),
    ]
    return found + [Row("import torch", ("-c", "import torch"))] * (importlib.util.find_spec("torch") is not None)


def measured(every: list[Row], rounds: int, cold: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall, CPU) seconds of each row and round."""
    for row in every:
        if not row.cold:
            run(row)
    times: dict[str, list[tuple[float, float]]] = {row.name: [] for row in every}
    for i in range(rounds):
        for row in every:
            if not row.cold or i < cold:
                times[row.name].append(run(row))
    return times


def run(row: Row) -> tuple[float, float]:
    """Return the seconds of a new process, by the wall clock and of CPU time; raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("WEBMM_CACHE_DIR", "MESA_SHADER_CACHE_DIR") if row.cold else ()
        environment = {**os.environ, **{name: os.path.join(folder, name) for name in names}}
        before, start = _cpu(), time.perf_counter()
        subprocess.run([sys.executable, *row.arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(name: str, pairs: list[tuple[float, float]], base: float) -> dict[str, Any]:
    """Return the times of a row as JSON types; `ratio` is relative to `base` seconds."""
    wall, cpu = (sorted(column) for column in zip(*pairs, strict=True))
    median = statistics.median(wall)
    figures = {"median_s": median, "min_s": wall[0], "max_s": wall[-1], "cpu_s": statistics.median(cpu)}
    rounded = {key: round(value, 4) for key, value in figures.items()}
    return {"name": name, "rounds": len(pairs), **rounded, "ratio": round(median / base, 2)}


if __name__ == "__main__":
    main()
