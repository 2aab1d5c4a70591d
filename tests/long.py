"""The long tests, in parts: soak, random problems, steps, faults in every place, tiles, subgroups, and more cases.

    long.py                          # all parts, two processes at a time; `make test-long`
    long.py --seed 7 --parts steps tiles
    long.py --continue               # what an interrupted run with this seed left
    long.py --share 0.01             # a hundredth of everything, to try it

A part consists of pieces, each a command; one that fails does not stop the others. Their output is in build/long/, and
the summary says how each is repeated or continued. The exit code is 1 if any piece failed or did not end.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import timed

ROOT = Path(__file__).parents[1]
PROCESSES = 2
SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json"  # Dawn refuses Mesa 22's lavapipe
WIDTHS = (128, 256, 512)  # bits
BLOCK = 10**7  # seeds of a run; those of its pieces are BLOCK / 10 apart
LIMIT = 3600  # seconds of a piece
FOUND = re.compile(r"\b[1-9][\d,]* (?:seeds )?failed")  # what is said of failures before the end
MOST_LANES = 24  # tiles of a stage in each width
SOAK, PROBLEMS, STEPS, DAWN_STEPS = 600, 30_000, 75_000, 25_000  # seconds; problems; steps under wgpu and under Dawn


@dataclass(frozen=True)
class Piece:
    """A command of a part.

    Without LLVM's optimisations (`plain`), the fuzzer has a new problem every 0.11 s instead of 0.14. Five of six
    random problems, half of the steps, faults, tiles and lanes run without; the others as users' programs do.
    """

    part: str
    name: str
    command: tuple[str, ...]  # below the root of the repository, run by this Python
    engine: str = "wgpu"
    plain: bool = False
    width: int = 0  # bits of lavapipe's vectors, 32 for each lane of a subgroup; 0: those of the machine

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that it sets."""
        found = {"VK_DRIVER_FILES": drivers()} if self.engine == "dawn" else {}
        found |= {"GALLIVM_PERF": "nopt"} if self.plain else {}
        return found | ({"LP_NATIVE_VECTOR_WIDTH": str(self.width)} if self.width else {})

    @property
    def shown(self) -> str:
        """The command as typed in a shell."""
        settings = [f"{name}={value} " for name, value in self.environment.items()]
        return f"{''.join(settings)}python {shlex.join(self.command)}"


@dataclass(frozen=True)
class Result:
    """How a piece ended: "passed", "failed" or "stopped", and the command that repeats or continues it."""

    part: str
    name: str
    seed: int
    outcome: str
    seconds: float
    cpu_seconds: float
    again: str = ""
    left: list[str] = field(default_factory=list)  # the arguments of a command that was stopped


@functools.cache
def drivers() -> str:
    """Return the Vulkan drivers with Chromium's, for Dawn."""
    return ":".join([*map(str, sorted(Path("/usr/share/vulkan/icd.d").glob("*.json"))), SWIFTSHADER])


# Parts


def soak(seed: int, share: float) -> Iterator[Piece]:
    yield Piece("soak", "soak", ("tests/gpu/soak.py", f"{SOAK * share:.0f}"))


def problems(seed: int, share: float) -> Iterator[Piece]:
    """Yield disjoint seeds in several pieces, since the fuzzer uses one core."""
    for i, (place, part) in enumerate(((0, 1 / 6), (1, 5 / 12), (5, 5 / 12))):
        count = str(round(PROBLEMS * share * part))
        first = str(seed * BLOCK + place * BLOCK // 10)
        yield Piece("problems", f"problems-{i}", ("tests/fuzz/fuzz.py", count, "--seed", first), plain=i > 0)


def steps(seed: int, share: float) -> Iterator[Piece]:
    for i, (engine, count) in enumerate((("wgpu", STEPS // 2), ("wgpu", STEPS // 2), ("dawn", DAWN_STEPS))):
        first = str(seed * BLOCK + (2 + i) * BLOCK // 10)
        options = ("--steps", str(round(count * share)), "--seed", first, "--engine", engine)
        yield Piece("steps", f"steps-{i}-{engine}", ("tests/fuzz/fuzz.py", *options), engine, plain=i == 1)


def faults(seed: int, share: float) -> Iterator[Piece]:
    """Yield every call under both engines, each fault at every use; or at some uses."""
    everywhere = ("--everywhere",) * (share == 1)
    for engine in ("dawn", "wgpu"):
        for call in some(listed("tests/gpu/faulty.py", "CALLS"), share):
            name = f"faults-{engine}-{call.replace(' ', '-')}"
            yield Piece("faults", name, ("tests/gpu/faulty.py", engine, call, *everywhere), engine, plain=True)


def tiles(seed: int, share: float) -> Iterator[Piece]:
    most = () if share == 1 else ("--most", str(max(1, round(100 * share))))
    for stage in some(listed("tests/gpu/tiles.py", "NAMES"), share):
        command = ("tests/gpu/tiles.py", *stage.split(), "--seed", str(seed), *most)
        yield Piece("tiles", f"tiles-{stage.replace(' ', '-')}", command, plain=True)


def lanes(seed: int, share: float) -> Iterator[Piece]:
    """Yield tiles of the stages that use subgroups, in subgroups of 4, 8 and 16 lanes: others in each, if many."""
    most = str(max(1, round(MOST_LANES * share)))
    for i, width in enumerate(WIDTHS):
        for stage in some(listed("tests/gpu/lanes.py", "NAMES"), share):
            options = ("--subgroups", "--seed", str(len(WIDTHS) * seed + i), "--most", most)
            command = ("tests/gpu/tiles.py", *stage.split(), *options)
            yield Piece("lanes", f"lanes-{width // 32}-{stage.replace(' ', '-')}", command, plain=True, width=width)


def cases(seed: int, share: float) -> Iterator[Piece]:
    """Yield the tests and parameters that `make test` leaves out; of a share, those of one file."""
    for folder in ("cli", "gpu", "unit", "web") if share == 1 else ("gpu/test_shapes.py",):
        name = f"cases-{Path(folder).stem}"
        yield Piece("cases", name, ("-m", "pytest", "-q", "-m", "long", f"tests/{folder}"))


def standard(seed: int, share: float) -> Iterator[Piece]:
    """Yield the suite of the array API standard, if ARRAY_API_TESTS names a checkout of it."""
    if folder := os.environ.get("ARRAY_API_TESTS"):
        yield Piece("standard", "standard", ("tests/standard.py", folder))


PARTS: dict[str, Callable[[int, float], Iterator[Piece]]] = {
    "soak": soak,
    "problems": problems,
    "steps": steps,
    "faults": faults,
    "cases": cases,
    "tiles": tiles,
    "lanes": lanes,
    "standard": standard,
}


@functools.cache
def listed(script: str, name: str) -> list[str]:
    """Return the strings of a table of a script."""
    folder, module = os.path.split(script.removesuffix(".py"))
    code = f"import sys; sys.path.insert(0, {folder!r}); import {module}; print(*{module}.{name}, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def some(names: list[str], share: float) -> list[str]:
    """Return all names, or for a small share the first and the last."""
    return names if share == 1 else [names[0], names[-1]]


# Running


def left(piece: Piece, log: str) -> Piece:
    """Return the piece with the command that continues it, from the progress that it printed."""
    command = [*piece.command]
    if told := re.findall(r"([\d,]+) (?:problems|steps) in .*; next: --seed (\d+)", log):
        done, seed = told[-1]
        count = command.index("--steps") + 1 if "--steps" in command else 1
        command[count] = str(int(command[count]) - int(done.replace(",", "")))
        command[command.index("--seed") + 1] = seed
    elif told := re.findall(r"; next: (tests/\S+\.py .*)", log):
        command = shlex.split(told[-1])
    return replace(piece, command=tuple(command))


def run(piece: Piece, seed: int, folder: Path, limit: float) -> Result:
    """Run a piece, tell how it ended, and add that to the results."""
    log = folder / f"{piece.name}.log"
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **piece.environment}
    done = timed.run([sys.executable, *piece.command], log, limit, cwd=ROOT, env=environment)
    # A signal ends a process that was killed for memory, or with this one.
    outcome = "passed" if done.code == 0 else "stopped" if done.code is None or done.code < 0 else "failed"
    said = log.read_text(errors="replace")
    outcome = "failed" if outcome == "passed" and FOUND.search(said) else outcome  # before it was continued
    rest = left(piece, said) if outcome == "stopped" else piece
    result = Result(piece.part, piece.name, seed, outcome, done.seconds, done.cpu_seconds, rest.shown, [*rest.command])
    with (folder / "results.jsonl").open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    print(f"{outcome:8}{piece.name}: {done.seconds:.0f} s, {done.cpu_seconds:.0f} s of CPU", flush=True)
    return result


def run_all(pieces: list[Piece], seed: int, folder: Path, processes: int, limit: float) -> list[Result]:
    """Run pieces in this order, the long ones first; if interrupted, return the results of those that ended.

    The soak test leaves out the time that other processes take.
    """
    results: list[Result] = []
    stop = threading.Event()

    def work(piece: Piece) -> None:
        if not stop.is_set():
            results.append(run(piece, seed, folder, limit))

    with ThreadPoolExecutor(processes) as pool:
        try:
            for each in [pool.submit(work, piece) for piece in pieces]:
                each.result()
        except KeyboardInterrupt:
            stop.set()
            timed.kill_all()
    return results


def earlier(folder: Path, seed: int) -> dict[str, Result]:
    """Return the last result of each piece in earlier runs with this seed."""
    file = folder / "results.jsonl"
    rows = [Result(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    return {row.name: row for row in rows if row.seed == seed}


def summary(pieces: list[Piece], results: list[Result], seed: int, seconds: float) -> bool:
    """Print a line per part, then the pieces that did not pass; return whether there are any."""
    print(f"\n{'part':10}{'pieces':>8}{'passed':>8}{'CPU s':>8}{'longest s':>11}")
    for part in dict.fromkeys(piece.part for piece in pieces):
        rows = [row for row in results if row.part == part]
        count = sum(piece.part == part for piece in pieces)
        passed, cpu = sum(row.outcome == "passed" for row in rows), sum(row.cpu_seconds for row in rows)
        print(f"{part:10}{count:8}{passed:8}{cpu:8.0f}{max((row.seconds for row in rows), default=0):11.0f}")
    print(f"{seconds / 60:.1f} minutes, seed {seed}")
    bad = [row for row in results if row.outcome != "passed"]
    for row in bad:
        print(f"{row.outcome}: {row.name}, see build/long/{row.name}.log\n  again: {row.again}")
    if missing := len(pieces) - len(results):
        print(f"{missing} pieces were not run; python tests/long.py --continue --seed {seed} runs them")
    return bool(bad or missing)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of random problems, steps and tiles")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--continue", action="store_true", dest="resume", help="leave out the pieces that ended")
    parser.add_argument("--share", type=float, default=1.0, help="of everything")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which a piece is stopped")
    options = parser.parse_args()
    folder = ROOT / "build/long"
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [piece for part in options.parts for piece in PARTS[part](options.seed, options.share)]
    known = earlier(folder, options.seed) if options.resume else {}
    ended = [row for row in known.values() if row.outcome != "stopped"]
    todo = [piece for piece in pieces if piece.name not in {row.name for row in ended}]
    todo = [replace(piece, command=tuple(known[piece.name].left)) if piece.name in known else piece for piece in todo]
    for piece in todo:
        if piece.name not in known:
            (folder / f"{piece.name}.log").unlink(missing_ok=True)
    start = time.monotonic()
    results = run_all(todo, options.seed, folder, options.processes, options.limit)
    ended = [row for row in ended if row.name in {piece.name for piece in pieces}]
    return int(summary(pieces, [*ended, *results], options.seed, time.monotonic() - start))


if __name__ == "__main__":
    sys.exit(main())
