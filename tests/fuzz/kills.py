"""Products and ops in files, in processes that are killed at any moment and run again, beside files of strangers.

A run that ends says that it succeeded, and then the output is right, or says in one line why it did not. A call that
was only killed must succeed when it is run again. At every moment the output is as before or right, and what was there
before the first run, and is not the output, is never changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENDS = 120  # seconds within which a run ends
LIST = ".part.done"  # beside an output: the list of finished tiles
FORMATS = (".npy", ".npy", ".zarr")
# Ops whose results are exact, as NumPy computes them.
EXACT: dict[str, Callable[[NDArray[Any], int], NDArray[Any]]] = {
    "reduce:max": lambda x, axis: x.max(axis, keepdims=True),
    "reduce:argmax": lambda x, axis: x.argmax(axis, keepdims=True).astype(np.int32),
    "elementwise:relu": lambda x, axis: np.maximum(x, 0),
}
OPS = ("", "", "", *EXACT)
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.chmod")
_processes = get_context("forkserver")  # a process starts with its modules loaded


@dataclass(frozen=True)
class Program:
    """What a process does in a folder: a call on files with tiles of these sizes, or without them `webmm run`."""

    folder: Path
    operands: tuple[str, ...]  # two of a product, one of an op
    c: str
    op: str  # "" for a product
    axis: int
    tile: tuple[int, int] | None
    force: bool
    event: int | None  # the change of a file before which it is killed
    said: str  # the file of its messages


def run_program(program: Program) -> None:
    """Run the program in this process, and exit with 0, or 2 for an error."""
    os.chdir(program.folder)
    with open(program.said, "w") as said:
        os.dup2(said.fileno(), 2)
    if program.event:
        sys.addaudithook(_kill_before(program.event, str(program.folder)))
    if program.tile is None:
        from webmm.cli import main

        which = ["--op", program.op, "--axis", str(program.axis)] if program.op else []
        main(["run", *program.operands, *which, "-o", program.c, *["--force"] * program.force])
    from webmm import Device, WebmmError
    from webmm.dask.files import apply_to_files

    names = [Path(name) for name in (*program.operands, program.c)]
    try:
        with Device() as device:
            tile = program.tile[0] if program.op else program.tile
            more = {"axis": program.axis, "tile": tile, "force": program.force, "device": device}
            apply_to_files(program.op or "gemm", names[:-1], names[-1], **more)
    except WebmmError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _kill_before(event: int, folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that kills this process before the nth change of a file in the folder."""
    left = [event]

    def hook(name: str, args: tuple[Any, ...]) -> None:
        if name in EVENTS and not (name == "open" and args[1] in ("r", "rb")):
            path = os.path.abspath(os.fsdecode(args[0])) if isinstance(args[0], (str, bytes, os.PathLike)) else ""
            left[0] -= path.startswith(folder)
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def start(program: Program) -> Any:
    """Start a process that runs the program."""
    _processes.set_forkserver_preload(["webmm.dask.files", "webmm.report.file_call", "webmm.cli"])
    process = _processes.Process(target=run_program, args=(program,))
    process.start()
    return process


@dataclass
class Case:
    """A product or an op in a folder, and what happens to it."""

    folder: Path
    rng: Random
    runs: int = 0
    kills: int = 0
    words: list[str] = field(default_factory=list)
    kept: dict[Path, Any] = field(default_factory=dict)  # what must not change, as it was
    disturbed: bool = False  # whether a run may be refused
    linked: bool = False  # whether the output is a link

    def __post_init__(self) -> None:
        self.values = np.random.default_rng(self.rng.randrange(2**32))
        self.dtype = self.pick("dtype", ("float32", "float32", "float16", "float64"))
        self.way = self.pick("way", ("tiles", "tiles", "tiles", "command"))
        kinds = [self.pick(f"{name} is", FORMATS) for name in ("a", "b", "c")]
        self.a, self.b, self.c = (f"{name}{kind}" for name, kind in zip("abc", kinds, strict=True))
        self.m, self.n, self.k = (self.rng.randrange(20, 90) for _ in range(3))
        self.tile = (self.rng.randrange(8, 40), self.rng.randrange(8, 40)) if self.way == "tiles" else None
        self.words.append(f"{self.m}x{self.n}x{self.k}, tiles {self.tile}")
        self.op, self.axis = self.pick("op", OPS), self.pick("axis", (0, 1))
        if self.op == "elementwise:relu" and self.dtype == "float64":  # not supported
            self.dtype = "float32"
        self.force = False
        self.old: Any = None  # what the output was before

    def pick(self, name: str, choices: tuple[Any, ...]) -> Any:
        chosen = self.rng.choice(choices)
        self.words.append(f"{name} {chosen}")
        return chosen

    # Files

    def matrix(self, rows: int, columns: int) -> NDArray[Any]:
        return self.values.integers(-2, 3, (rows, columns)).astype(self.dtype)

    def write(self, name: str, values: NDArray[Any]) -> None:
        path = self.folder / name
        if path.suffix == ".zarr":
            import zarr

            shutil.rmtree(path, ignore_errors=True)
            zarr.create_array(store=str(path), shape=values.shape, chunks=(32, 32), dtype=values.dtype)[...] = values
        else:
            with path.open("wb") as file:
                np.save(file, values)

    def operands(self) -> None:
        """Write the operands, and compute the result."""
        left, right = self.matrix(self.m, self.k), self.matrix(self.k, self.n)
        for name, values in zip(self.names, (left, right), strict=False):
            self.write(name, values)
            self.keep(name)
        if self.op:
            self.exact = EXACT[self.op](left, self.axis)
        else:
            self.exact = (left.astype(np.float64) @ right.astype(np.float64)).astype(self.dtype)

    @property
    def names(self) -> tuple[str, ...]:
        """The files of the operands."""
        return (self.a,) if self.op else (self.a, self.b)

    def keep(self, name: str) -> None:
        self.kept[self.folder / name] = state(self.folder / name)

    def right(self) -> bool:
        """Return whether the output holds the result."""
        path = self.folder / self.c
        try:
            if path.suffix == ".zarr":
                import zarr

                found = np.asarray(zarr.open_array(store=str(path), mode="r")[...])
            else:
                found = np.load(path)
        except Exception:
            return False
        return found.dtype == self.exact.dtype and np.array_equal(found, self.exact)

    # Runs

    def start(self, event: int | None = None) -> Any:
        self.runs += 1
        what = self.folder, self.names, self.c, self.op, self.axis
        process = start(Program(*what, self.tile, self.force, event, f"said{self.runs}"))
        process.said = self.folder / f"said{self.runs}"
        return process

    def run_and_kill(self) -> None:
        """Run the program, and kill it after a random time, or before a random change of a file."""
        if self.rng.random() < 0.5:
            event = self.rng.randrange(1, 40)
            self.words.append(f"killed before change {event}")
            process = self.start(event)
        else:
            seconds = self.rng.random() * 2.0
            self.words.append(f"killed after {seconds:.3f} s")
            process = self.start()
            process.join(seconds)
            process.kill()
        self.ended(process)
        self.settle()

    def run_twice(self) -> None:
        """Run the program in two processes at once, and sometimes kill one."""
        kill = self.pick("one is killed", (False, True))
        processes = [self.start(self.rng.randrange(1, 40) if kill and i else None) for i in range(2)]
        before, self.disturbed = self.disturbed, True  # by each other
        codes = [self.ended(process) for process in processes]
        self.disturbed = before
        if 0 in codes and not self.right():
            raise AssertionError(f"of two runs, which ended with {codes}, one succeeded, but the output is wrong")
        if not (kill or self.disturbed or 0 in codes or self.right()):
            raise AssertionError(f"two runs at once ended with {codes}")
        self.settle()

    def ended(self, process: Any) -> int:
        """Wait for a process, and return its exit code; raise AssertionError if it left something wrong."""
        process.join(ENDS)
        code = process.exitcode
        if code is None:
            process.kill()
            raise AssertionError("a run hangs")
        said = process.said.read_text() if process.said.exists() else ""
        self.words.append(f"ended with {code}")
        self.kills += code == -signal.SIGKILL
        if code not in (0, 2, -signal.SIGKILL) or (code == 2 and len(said.strip().splitlines()) != 1):
            raise AssertionError(f"a run ended with {code}: {said}")
        for path, before in self.kept.items():
            if state(path) != before:
                raise AssertionError(f"{path.name} changed; the run said: {said}")
        now = state(self.folder / self.c)
        if not (now == self.old or self.right() or (now is None and self.c.endswith(".zarr"))):
            raise AssertionError(f"{self.c} is neither as before nor right; the run ended with {code}: {said}")
        if self.linked and not (self.folder / self.c).is_symlink():
            raise AssertionError("a link was replaced")
        if code == 0 and not self.right():
            raise AssertionError(f"{self.c} is wrong, but the run succeeded")
        if code == 2 and not (self.disturbed or self.right()):
            raise AssertionError(f"a run was refused without a reason: {said}")
        return code

    def settle(self) -> None:
        """After a success, let the next run replace the output, or remove it."""
        path = self.folder / self.c
        if path in self.kept or not self.right():
            return
        if not self.force:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.old = state(path)

    def finish(self) -> None:
        """Run the program to its end."""
        code = self.ended(self.start())
        left = [name for end in (".part", LIST) if (self.folder / (name := self.c + end)).exists()]
        left = [name for name in left if self.folder / name not in self.kept]
        if code == 0 and left:
            raise AssertionError(f"{left} are left after a run that succeeded")


def state(path: Path) -> Any:
    """Return what can be seen of a file, a link or a folder; None if there is nothing."""
    if path.is_symlink():
        return os.readlink(path), state(path.resolve())
    if path.is_dir():
        return {str(file.relative_to(path)): state(file) for file in sorted(path.rglob("*")) if not file.is_dir()}
    return path.read_bytes() if path.exists() else None


# What happens before the first run: each of these functions prepares a case


def nothing(case: Case) -> None:
    pass


def an_old_output(case: Case) -> None:
    """It is replaced, since the run is forced."""
    case.write(case.c, case.matrix(3, 4))
    case.old, case.force = state(case.folder / case.c), True


def an_output_not_to_be_replaced(case: Case) -> None:
    case.write(case.c, case.matrix(3, 4))
    case.disturbed = True
    case.keep(case.c)
    case.old = state(case.folder / case.c)


def a_link(case: Case) -> None:
    """The output is a link to a file elsewhere, which is replaced."""
    if case.c.endswith(".zarr"):
        return
    (case.folder / "elsewhere").mkdir()
    (case.folder / "elsewhere" / "real.npy").write_bytes(b"old")
    (case.folder / case.c).symlink_to("elsewhere/real.npy")
    case.old, case.force, case.linked = state(case.folder / case.c), True, True


def a_part_of_a_stranger(case: Case) -> None:
    case.disturbed = True
    if case.c.endswith(".zarr"):
        (case.folder / (case.c + ".part")).mkdir()
        (case.folder / (case.c + ".part") / "thesis.txt").write_text("precious")
    else:
        (case.folder / (case.c + ".part")).write_bytes(b"precious")
    case.keep(case.c + ".part")


def a_list_of_a_stranger(case: Case) -> None:
    case.disturbed = True
    (case.folder / (case.c + LIST)).write_bytes(b"\xff precious\n1 2\n")
    case.keep(case.c + LIST)


def an_operand_called_part(case: Case) -> None:
    if case.c.endswith(".zarr") or case.a.endswith(".zarr"):
        return
    case.disturbed = True
    name = case.c + ".part"
    (case.folder / case.a).rename(case.folder / name)
    del case.kept[case.folder / case.a]
    case.a = name
    case.keep(name)


def a_folder_that_is_no_array(case: Case) -> None:
    if not case.c.endswith(".zarr"):
        return
    case.disturbed = case.force = True
    (case.folder / case.c).mkdir()
    (case.folder / case.c / "thesis.txt").write_text("precious")
    case.keep(case.c)
    case.old = state(case.folder / case.c)


BEFORE = (*(nothing,) * 4, an_old_output, an_old_output, an_output_not_to_be_replaced, a_link)
BEFORE += (a_part_of_a_stranger, a_list_of_a_stranger, an_operand_called_part, a_folder_that_is_no_array)

# What happens between runs


def operands_changed(case: Case) -> None:
    """Other numbers, in files of the same size; sometimes the times of their last changes are those of before."""
    if case.a.endswith(".part"):
        return
    names = [case.folder / name for name in case.names]
    times = [(path.stat().st_atime_ns, path.stat().st_mtime_ns) for path in names]
    case.operands()
    if case.pick("times kept", (False, True)) and not any(path.is_dir() for path in names):
        for path, time in zip(names, times, strict=True):
            os.utime(path, ns=time)


def list_damaged(case: Case) -> None:
    path = case.folder / (case.c + LIST)
    if not path.exists() or path in case.kept:
        return
    case.disturbed, text = True, path.read_bytes()
    path.write_bytes(
        {
            "words": text + b"a b\n",
            "bytes": text + b"\xff\xfe 1\n",
            "numbers": text + b"9999 9999\n",
            "cut": text[: len(text) * 2 // 3],
            "empty": b"",
            "nonsense": bytes(case.rng.randrange(256) for _ in range(100)),
            "twice": text + text,
        }[case.pick("list", ("words", "bytes", "numbers", "cut", "empty", "nonsense", "twice"))]
    )


def part_replaced(case: Case) -> None:
    """By one of another dtype, another shape, or of half the size."""
    path = case.folder / (case.c + ".part")
    if not path.is_file() or path in case.kept:
        return
    case.disturbed, how = True, case.pick("part", ("dtype", "shape", "cut", "gone"))
    if how == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "gone":
        path.unlink()
    else:
        shape = (case.m, case.n) if how == "dtype" else (case.n + 1, case.m)
        with path.open("wb") as file:
            np.save(file, np.zeros(shape, case.dtype if how == "shape" else "int8"))


BETWEEN = (*(nothing,) * 4, operands_changed, operands_changed, list_damaged, part_replaced)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="webmm-kills-") as name:
        yield Path(name).resolve()


def check(seed: int) -> tuple[str, int]:
    """Return what is wrong with the case of this seed, and how many processes were killed."""
    with _folder() as folder:
        case = Case(folder, Random(f"kills {seed}"))
        try:
            case.operands()
            before = case.rng.choice(BEFORE)
            case.words.append(before.__name__)
            before(case)
            for _ in range(case.rng.randrange(1, 4)):
                case.run_and_kill()
                between = case.rng.choice(BETWEEN)
                case.words.append(between.__name__)
                between(case)
            if case.pick("two at once", (False, False, False, True)):
                case.run_twice()
            case.finish()
        except Exception:
            return f"seed {seed}: {traceback.format_exc()}\n  {'; '.join(case.words)}", case.kills
        return "", case.kills
