"""Small planted defects: does a test find each? A command, not a test.

    mutations.py --seed 1 --count 60 --output build/before.jsonl             # draw them in this commit, and try them
    mutations.py --like build/before.jsonl --output build/after.jsonl        # the same ones in another commit
    mutations.py --like build/before.jsonl --caught --output build/after.jsonl         # those that were caught there
    mutations.py --compare build/before.jsonl build/after.jsonl

A mutation replaces one line, which its file has once, so that it is found in another commit, even if the file moved.
Each is applied to a copy of a commit; the test files that import the module, render the template or quote the message
then run with `-x`, the nearest first, for at most `--limit` seconds; with `--like`, the file that found it there before
all others. A test that fails without the mutation, too, is left out. Results are JSON lines; the same command continues
an interrupted run. The working tree must be clean, and is not changed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

import timed

ROOT = Path(__file__).parents[1]
LIMIT = 180.0  # seconds of tests per mutation
FILES = 20  # test files at most
COST = {"unit": 0, "gpu": 1, "fuzz": 2, "cli": 3, "web": 4}  # of a folder's tests, in order
PASSED = (0, 5)  # exit codes of pytest: no test failed; there was none
SHORTEST = 12  # characters of a line that is mutated
ROOMS = ("webmm", "shaders", "tests")  # where files are looked for: not among installed tools
# What is mutated: patterns of paths. Each area gets as many mutations; the files may have moved in other commits.
AREAS = {
    "kernels": (r"webmm/kernels/.+\.py",),
    "planner": (r"webmm/choose/.+\.py", r"webmm/(calls|cut)/(parts|pieces|divided|stream)\.py"),
    "plans": (r"webmm/engine/(plans|recording|launch|launches|submissions)\.py",),
    "pool": (r"webmm/engine/(pool|guard|pipelines)\.py",),
    "transfers": (r"webmm/engine/(transfer|moves|array|view)\.py",),
    "translator": (r"webmm/page/script/.+\.py",),
    "messages": (r"webmm/(calls|engine|problems|kernels|cli)/.+\.py",),
    "templates": (r"shaders/.+\.wgsl",),
}


@dataclass(frozen=True)
class Mutation:
    """A line of a file, without indentation, and what replaces it."""

    area: str
    path: str
    line: str
    replacement: str
    what: str


@dataclass(frozen=True)
class Result:
    """What became of a mutation: "caught", "survived", "timed out", or "absent" if there is no such line."""

    mutation: Mutation
    outcome: str
    by: str = ""  # the test that failed
    path: str = ""  # of the file in this commit
    tests: int = 0  # files that were run
    seconds: float = 0.0
    cpu_seconds: float = 0.0


# Drawing


def python_edits(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, new line, what) of every mutation of a module's lines."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        if not line or line != node.end_lineno:  # type: ignore[attr-defined]
            continue
        for start, end, new, what in _edits(node, lines[line - 1]):
            yield line, _spliced(lines[line - 1], start, end, new), what


def _spliced(line: str, start: int, end: int, new: str) -> str:
    """Return `line` with the bytes from `start` to `end` replaced, as positions in syntax trees count bytes."""
    raw = line.encode()
    return (raw[:start] + new.encode() + raw[end:]).decode()


SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


def _edits(node: ast.AST, line: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield (start, end, replacement, what) of the mutations of a node on one line."""
    at = lambda each: (each.col_offset, each.end_col_offset)  # noqa: E731
    match node:
        case ast.Compare(left=left, comparators=[right]):
            operator = line.encode()[left.end_col_offset : right.col_offset].decode()
            if operator.strip() in SWAPPED:
                new = operator.replace(operator.strip(), SWAPPED[operator.strip()])
                yield left.end_col_offset, right.col_offset, new, "comparison flipped"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            operator = line.encode()[left.end_col_offset : right.col_offset].decode()
            if operator.strip() in "+-":
                new = operator.translate({ord("+"): "-", ord("-"): "+"})
                yield left.end_col_offset, right.col_offset, new, "+ and - exchanged"
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield *at(node), f"{value + 1}", "+ 1"
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            yield *at(function), {"min": "max", "max": "min"}[name], "min and max exchanged"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield *at(node), "pass", "statement dropped"
        case ast.IfExp(test=test):
            yield *at(test), f"(not ({ast.unparse(test)}))", "condition negated"
        case ast.BoolOp(op=ast.And() | ast.Or(), values=[left, right]):
            operator = line.encode()[left.end_col_offset : right.col_offset].decode()
            if operator in (" and ", " or "):
                yield left.end_col_offset, right.col_offset, {" and ": " or ", " or ": " and "}[operator], "and, or"


def condition_edits(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the mutations that negate the condition of a statement, whose line is `if …:` or the like."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.fullmatch(r"(\s*(?:if|elif|while) )([^:=]+(?:[=!<>]=[^:=]+)*)(:)", line):
            yield number, f"{found[1]}not ({found[2]}){found[3]}", "condition negated"


def message_edits(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the mutations that change a word in the message of a `raise`."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and node.end_lineno:
            for number in range(node.lineno, node.end_lineno + 1):
                for start, quoted in (
                    (each.start(1), each[1]) for each in re.finditer(r'"([^"]+)"', lines[number - 1])
                ):
                    for word in re.finditer(r"(?<=[a-z,] )[a-z]{3,}(?= [a-z])", re.sub(r"\{[^}]*\}", _blank, quoted)):
                        line, at = lines[number - 1], start + word.start()
                        yield number, line[:at] + word[0][::-1] + line[at + len(word[0]) :], "word changed"


def _blank(found: re.Match[str]) -> str:
    return "_" * len(found[0])


TEMPLATE_EDITS: tuple[tuple[str, Callable[[re.Match[str]], str], str], ...] = (
    (r"\b(?:workgroup|storage)Barrier\(\);", lambda m: "", "barrier removed"),
    (r" (<|<=|>|>=) ", lambda m: f" {SWAPPED[m[1]]} ", "comparison flipped"),
    (r" \+ (?:params\.)?\w*offset\w*", lambda m: "", "offset dropped"),
    (r" ([+-]) ", lambda m: {"+": " - ", "-": " + "}[m[1]], "+ and - exchanged"),
    (r"\b(min|max)\(", lambda m: {"min": "max(", "max": "min("}[m[1]], "min and max exchanged"),
    (r"\b(\d+)u\b", lambda m: f"{int(m[1]) + 1}u", "+ 1"),
    (r"(?<=\{% if )(.+?)(?= %\})", lambda m: f"not ({m[1]})", "condition negated"),
    (r"(?<=\bif \()([^{}]+)(?=\) \{)", lambda m: f"!({m[1]})", "condition negated"),
    (r"\b\w+(?:\[[^]]+\])? [+|]?= [^;{}]+;$", lambda m: "", "statement dropped"),
)


def template_edits(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the mutations of a template's lines, comments apart."""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("//")[0].partition("{#")[0]
        for pattern, replacement, what in TEMPLATE_EDITS:
            if re.search(r"\b(let|var|const|override)\b", code) and what == "statement dropped":
                continue
            for found in re.finditer(pattern, code):
                yield number, line[: found.start()] + replacement(found) + line[found.end() :], what


def edits(area: str, text: str) -> list[tuple[int, str, str]]:
    """Return the mutations of a file."""
    if area == "messages":
        return list(message_edits(text))
    if area == "templates":
        return list(template_edits(text))
    return [*python_edits(text), *condition_edits(text)]


def mutations(tree: Path, area: str) -> list[list[Mutation]]:
    """Return the possible mutations of each file of an area: those of lines that a file has once, and that parse."""
    found = []
    for path in files(tree, AREAS[area]):
        text = (tree / path).read_text(encoding="utf-8")
        lines, stripped = text.splitlines(), Counter(line.strip() for line in text.splitlines())
        rows = []
        for number, new, what in edits(area, text):
            old = lines[number - 1].strip()
            if new.strip() != old and len(old) >= SHORTEST and stripped[old] == 1:
                rows.append(Mutation(area, path, old, new.strip(), what))
        if rows:
            found.append(rows)
    return found


def files(tree: Path, patterns: Iterable[str]) -> list[str]:
    found = (path for room in ROOMS for path in (tree / room).rglob("*") if path.is_file())
    every = sorted(path.relative_to(tree).as_posix() for path in found)
    return [path for path in every if any(re.fullmatch(pattern, path) for pattern in patterns)]


def draw(tree: Path, seed: int, count: int) -> list[Mutation]:
    """Return `count` mutations, as many of each area: random files, then kinds, then places."""
    rng, areas = random.Random(seed), {area: mutations(tree, area) for area in [*AREAS][:count]}
    drawn: list[Mutation] = []
    while len(drawn) < count:
        rows = rng.choice(areas[list(AREAS)[len(drawn) % len(AREAS)]])
        what = rng.choice(sorted({row.what for row in rows}))
        row = rng.choice([row for row in rows if row.what == what])
        if (row.path, row.line) not in {(each.path, each.line) for each in drawn} and (
            row.area == "templates" or parses(tree, row)
        ):
            drawn.append(row)
    return drawn


def parses(tree: Path, mutation: Mutation) -> bool:
    try:
        ast.parse(mutated((tree / mutation.path).read_text(encoding="utf-8"), mutation))
    except SyntaxError:
        return False
    return True


def mutated(text: str, mutation: Mutation) -> str:
    """Return the text of a file with the mutation."""
    lines = text.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.strip() == mutation.line)
    lines[at] = lines[at].replace(mutation.line, mutation.replacement)
    return "".join(lines)


def place(tree: Path, mutation: Mutation) -> str:
    """Return the path of the only file that has the line once, the one of the same path or name first; or ""."""
    suffix, name = Path(mutation.path).suffix, Path(mutation.path).name
    having = []
    for path in files(tree, (rf"(webmm|shaders)/.+\{suffix}",)):
        lines = (tree / path).read_text(encoding="utf-8").splitlines()
        if sum(line.strip() == mutation.line for line in lines) == 1:
            having.append(path)
    for some in ([mutation.path], [path for path in having if Path(path).name == name], having):
        if len(both := [path for path in some if path in having]) == 1:
            return both[0]
    return ""


# Tests of a mutation


class Tests:
    """The test files of a tree, and how near each is to a module, a template or a message."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.texts = {path: (tree / path).read_text(encoding="utf-8") for path in files(tree, (r"tests/.+\.py",))}
        self.modules = {module_of(path): path for path in files(tree, (r"webmm/.+\.py",))}
        public = re.search(r"^_PUBLIC.*?= (\{.*?^\})", (tree / "webmm/__init__.py").read_text(), re.M | re.S)
        self.public = {
            name: f"webmm.{module}"
            for module, names in (ast.literal_eval(public[1]) if public else {}).items()
            for name in names.split()
        }
        self.imports = {path: self._imports(tree / path) for path in (*self.texts, *self.modules.values())}

    def _imports(self, path: Path) -> set[str]:
        """Return the files that a file imports: modules of webmm, and helpers beside it."""
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found |= {alias.name for alias in names}
                case ast.ImportFrom(module=str(module), names=names):
                    found |= {module, *(f"{module}.{alias.name}" for alias in names)}
                case ast.Attribute(value=ast.Name(id="webmm"), attr=name):
                    found |= {f"webmm.{name}"}
        found |= {
            self.public[name.removeprefix("webmm.")] for name in found if name.removeprefix("webmm.") in self.public
        }
        if 'import_module(f"{__name__}.' in path.read_text(encoding="utf-8"):  # the modules of a package by name
            found |= {name for name, each in self.modules.items() if (self.tree / each).is_relative_to(path.parent)}
        helpers = {path.with_name(f"{name}.py").relative_to(self.tree).as_posix() for name in found if "." not in name}
        return {self.modules[name] for name in found if name in self.modules} | (helpers & self.texts.keys())

    def of(self, mutation: Mutation, path: str) -> list[str]:
        """Return the test files to run for a mutation of the file at `path`, nearest first, then cheapest."""
        near = self.of_template(path) if path.endswith(".wgsl") else self.of_module(path)
        if mutation.area == "messages":
            near |= dict.fromkeys(self.quoting(mutation), 0)
        tests = [test for test in near if re.search(r"/test_\w+\.py$", test)]
        names = set(re.findall(r"(?:def|class) ([a-z]\w{3,}|[A-Z]\w+)", (self.tree / path).read_text(encoding="utf-8")))

        def order(test: str) -> tuple[int, int, int, int]:
            used = len(names.intersection(re.findall(r"\w+", self.texts[test])))  # of what the module defines
            return near[test], -used, COST.get(test.split("/")[1], len(COST)), len(self.texts[test])

        return sorted(tests, key=order)[:FILES]

    def of_module(self, path: str) -> dict[str, int]:
        """Return the distance of each file of tests from a module, in imports."""
        distance, reached = {path: 0}, [path]
        for at in reached:
            for each, imported in self.imports.items():
                if at in imported and each not in distance:
                    distance[each] = distance[at] + 1
                    reached.append(each)
        name = Path(path).stem
        named = {test: 1 for test in self.texts if test in distance and re.search(rf"_{name}s?\.py$", test)}
        return {test: distance[test] for test in self.texts if test in distance} | named

    def of_template(self, path: str) -> dict[str, int]:
        """Return the test files that name a stage that renders the template, or run every stage of its ops."""
        stages = self.rendering(path.removeprefix("shaders/"))
        ops = {stage.split("/")[0] for stage in stages}
        near: dict[str, int] = {}
        for test, text in self.texts.items():
            names = [Path(stage).stem for stage in stages]
            classes = {"".join(part.capitalize() for part in name.split("_")) for name in names}
            named = sum(bool(re.search(rf"\b{word}\b", text, re.I)) for word in (*names, *classes))
            every = bool(re.search(r"every_stage|LADDER|\bSTAGES\b|stages\(", text)) or any(
                op in Path(test).stem for op in ops
            )
            if "/gpu/" in test and (named or every):
                near[test] = 1 if every and named else 2 if every else 3
            elif "/fuzz/test_smoke" in test or (named and "/unit/" in test):
                near[test] = 4
        for module in self.kernels(stages):
            near |= {test: 1 for test, distance in self.of_module(module).items() if distance == 1}
        return near

    def kernels(self, templates: set[str]) -> list[str]:
        """Return the modules of the kernels whose templates these are."""
        names = {tuple(template.removesuffix(".wgsl").split("/")) for template in templates if template.count("/") == 1}
        lines = {(op, f'name: ClassVar[str] = "{name}"') for op, name in names} | {
            (op, f'name = "{name}"') for op, name in names
        }
        texts = {
            path: (self.tree / path).read_text(encoding="utf-8")
            for path in files(self.tree, (r"webmm/kernels/.+\.py",))
        }
        return [path for path, text in texts.items() if any(f"/{op}/" in path and line in text for op, line in lines)]

    def rendering(self, template: str) -> set[str]:
        """Return the templates that include or import this one, itself included."""
        texts = {path.removeprefix("shaders/"): path for path in files(self.tree, (r"shaders/.+\.wgsl",))}
        found, reached = {template}, [template]
        for at in reached:
            for name, path in texts.items():
                if name not in found and f'"{at}"' in (self.tree / path).read_text(encoding="utf-8"):
                    found.add(name)
                    reached.append(name)
        return found

    def quoting(self, mutation: Mutation) -> list[str]:
        """Return the test files that quote the changed words of a message."""
        old, new = mutation.line.split(), mutation.replacement.split()
        at = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
        for around in (old[max(0, at - 1) : at + 2], old[at : at + 2], old[max(0, at - 1) : at + 1]):
            words = " ".join(around).strip("\"'f()")
            if found := [test for test, text in self.texts.items() if words in text]:
                return found
        return []


def module_of(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


# Trying


@contextmanager
def planted(file: Path, mutation: Mutation) -> Iterator[None]:
    """Apply a mutation to a file, and undo it, at times of their own: Python compares those of kept code in seconds."""
    text, time_before = file.read_text(encoding="utf-8"), file.stat().st_mtime
    file.write_text(mutated(text, mutation), encoding="utf-8")
    os.utime(file, (time_before + 2, time_before + 2))
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, (time_before + 4, time_before + 4))


class Copy:
    """A copy of a commit, in a temporary folder, to which mutations are applied one at a time."""

    def __init__(self, commit: str, folder: Path, limit: float) -> None:
        self.tree, self.limit, self.log = folder / "tree", limit, folder / "log"
        self.tree.mkdir(parents=True)
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=self.tree, input=packed, check=True)
        for tool in (".tools", "web/node_modules"):  # which git does not keep
            if (ROOT / tool).exists():
                (self.tree / tool).symlink_to((ROOT / tool).resolve())
        self.tests = Tests(self.tree)
        self.failing: list[str] = []  # tests that fail in this commit

    def attempt(self, mutation: Mutation, hint: str = "") -> Result:
        """Apply a mutation, run its tests, those of the file `hint` first, and undo it."""
        path = place(self.tree, mutation)
        if not path:
            return Result(mutation, "absent")
        first = [hint] if hint in self.tests.texts else []
        tests = [test for test in dict.fromkeys([*first, *self.tests.of(mutation, path)]) if test not in self.failing]
        start, cpu_seconds = time.monotonic(), 0.0
        outcome, by = "survived", ""
        while tests:
            with planted(self.tree / path, mutation):
                done = self.run(tests)
                by = self.failed()
            cpu_seconds += done.cpu_seconds
            outcome = "timed out" if done.code is None else "caught" if done.code not in PASSED else "survived"
            if outcome != "caught" or not by or by in self.failing or self.run([by]).code in (*PASSED, None):
                break
            self.failing.append(by)  # without the mutation, too
            tests = [test for test in tests if test != by]  # a file that cannot be loaded
        seconds = time.monotonic() - start
        return Result(mutation, outcome, by, path, len(tests), round(seconds, 1), round(cpu_seconds, 1))

    def run(self, tests: list[str]) -> timed.Done:
        """Run tests up to the first failure, without those known to fail."""
        environment = {**os.environ, "PYTHONPATH": str(self.tree)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        self.log.unlink(missing_ok=True)
        command += [f"--deselect={test}" for test in self.failing if test not in tests]
        return timed.run(command, self.log, self.limit, cwd=self.tree, env=environment)

    def failed(self) -> str:
        """Return the test that failed, or the file that could not be loaded."""
        found = re.findall(
            r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", self.log.read_text(errors="replace"), re.M
        )
        return found[0] if found else ""


def clean() -> bool:
    done = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    return not done.stdout


def read(path: Path) -> tuple[dict[str, object], list[Mutation], list[Result]]:
    """Return header, mutations and results of a file."""
    first, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    drawn = [Mutation(**row) for row in first.pop("mutations")]
    return first, drawn, [Result(Mutation(**row.pop("mutation")), **row) for row in rows]


def attempt_all(
    output: Path, header: dict[str, object], drawn: list[Mutation], hints: dict[Mutation, str], jobs: int
) -> None:
    """Try the mutations that the output lacks, and add a line to it for each."""
    done = read(output)[2] if output.exists() else []
    if output.exists() and read(output)[:2] != (header, drawn):
        sys.exit(f"{output} is of another commit or other mutations")
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps({**header, "mutations": [asdict(each) for each in drawn]}) + "\n")
    folder, free, writing = Path(tempfile.mkdtemp(prefix="webmm-mutations-")), SimpleQueue[Copy](), threading.Lock()

    def attempt(mutation: Mutation) -> None:
        copy = free.get()
        try:
            result = copy.attempt(mutation, hints.get(mutation, ""))
        finally:
            free.put(copy)  # else those that wait for it wait forever
        with writing, output.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
            print(f"{result.outcome:11}{mutation.area}: {mutation.path}: {mutation.what}", end=" ")
            print(f"({result.cpu_seconds:.0f} s of CPU, {result.tests} files) {result.by}", flush=True)

    tried = {result.mutation for result in done}
    try:
        for number in range(jobs):
            free.put(Copy(str(header["commit"]), folder / str(number), float(str(header["limit"]))))
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(attempt, [mutation for mutation in drawn if mutation not in tried]))
    finally:
        timed.kill_all()
        shutil.rmtree(folder)


def compare(before: Path, after: Path) -> bool:
    """Print how many of each area were caught, and those that fared differently; return whether fewer were caught."""
    (_, _, first), (_, _, second) = read(before), read(after)
    pairs = [(a, b) for a in first for b in second if a.mutation == b.mutation]
    print(
        f"{'area':12}{'mutations':>10}{'before':>8}{'after':>8}{'CPU s':>8}{'CPU s':>8}   caught, and seconds of both"
    )
    for area in (*AREAS, ""):
        rows = [(a, b) for a, b in pairs if area in ("", a.mutation.area)]
        caught = [sum(row[i].outcome == "caught" for row in rows) for i in (0, 1)]
        cpu = [sum(row[i].cpu_seconds for row in rows) for i in (0, 1)]
        print(f"{area or 'all':12}{len(rows):10}{caught[0]:8}{caught[1]:8}{cpu[0]:8.0f}{cpu[1]:8.0f}")
    for a, b in pairs:
        if a.outcome != b.outcome:
            m = a.mutation
            print(f"{a.outcome} → {b.outcome}: {m.path}: {m.what}\n  - {m.line}\n  + {m.replacement}")
    return sum(b.outcome == "caught" for _, b in pairs) < sum(a.outcome == "caught" for a, _ in pairs)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--like", type=Path, help="take the mutations of this output instead of drawing them")
    parser.add_argument("--caught", action="store_true", help="with --like: only those that were caught there")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time, each in a copy of its own")
    parser.add_argument("--output", type=Path, help="by default in build/, by commit and seed")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of tests for a mutation")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.compare:
        return int(compare(*options.compare))
    if not clean():
        sys.exit("the working tree has changes, which the copy of a commit would lack: commit or stash them")
    named = ["git", "rev-parse", "--short", f"{options.commit}^{{commit}}"]
    commit = subprocess.run(named, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    hints: dict[Mutation, str] = {}
    if options.like:
        _, drawn, there = read(options.like)
        hints = {result.mutation: result.by.partition("::")[0] for result in there if result.outcome == "caught"}
        drawn = [mutation for mutation in drawn if mutation in hints or not options.caught]
    else:
        with tempfile.TemporaryDirectory(prefix="webmm-mutations-") as folder:
            drawn = draw(Copy(commit, Path(folder), options.limit).tree, options.seed, options.count)
    output = options.output or ROOT / f"build/mutations-{commit}-{options.seed}.jsonl"
    attempt_all(output, {"commit": commit, "limit": options.limit}, drawn, hints, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
