"""`webmm report`: what a machine's GPU is, whether it computes correctly and how fast, as a document to contribute.

It is a document of `webmm.records/1`, so that whatever reads records reads it, with more entries: `report` is the
schema `webmm.report/1` of these, `system` the operating system and processor type, `adapters` all adapters of all
engines, and `engines` an object per engine that offers the measured adapter: `limits`, `features`, `subgroups` in
lanes, `matrix_units`, `selftest`, `rates`, and `first_product` in seconds. An engine that failed has `error` instead.

It has no personal data: texts come from drivers and from webmm, and of messages, which may quote anything, the first
line without folders and without names of the user and the host.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from webmm.cases import op_of
from webmm.cases.base import Size
from webmm.choose import choose, suited
from webmm.dtypes import F16, F32
from webmm.engine.adapters import AdapterInfo, adapters, installed
from webmm.engine.device import Device
from webmm.engine.engine import Engine
from webmm.errors import ProblemError, WebmmError
from webmm.kernels.base import Kernel
from webmm.measure import roofline, selftest
from webmm.measure.bench import CPU_STAGE, Bench
from webmm.measure.records import REPORT, Record, to_json
from webmm.page.leaderboard import MAX_BYTES
from webmm.problems.base import Problem
from webmm.report import Open, Show
from webmm.text import printable
from webmm.version import ADDRESS, __version__

OP = op_of("gemm")
SELFTEST = 0.5  # of the seconds that are left for an engine
LADDERS = {F32: (2, 0.65), F16: (1, 1.0)}  # how many sizes, of those that suit the device, and part of the seconds left
STEPS = 3 + len(LADDERS)  # for an engine
FORM = "new-gpu.yml"  # in .github/ISSUE_TEMPLATE
MAX_MESSAGE, MAX_MESSAGES = 300, 20  # characters of a message; wrong shaders that the self-test quotes
FIRST_TIMEOUT = 60  # seconds
FIRST = """
import json, sys, time
start = time.perf_counter()
import numpy, webmm
a, b = numpy.ones((512, 300), numpy.float32), numpy.ones((300, 400), numpy.float32)
took = {"import_s": time.perf_counter() - start}
for name in ("first_s", "second_s"):
    start = time.perf_counter()
    assert (webmm.matmul(a, b) == 300).all()
    took[name] = time.perf_counter() - start
print(json.dumps(took))
"""
# Paths: of Windows up to a colon or quote, then whatever has slashes between quotes, or within a word.
PATHS = re.compile(r"""\b\w:[\\/][^:'"]*|(?<=['"])[^'"]*[\\/][^'"]*(?=['"])|[^\s'":()]*[\\/][^\s'":()]*""")
SLASH = re.compile(r"[\\/]")
CONTENTS = (
    "operating system and processor type; adapters, drivers, features, limits and subgroup sizes; self-test; measured "
    "rates; times of kernels and of the first product"
)
WITHOUT = "no names of users, hosts or folders"
NO_LINK = 'a new issue "New GPU" where you have webmm from (its address is not set in webmm/version.py)'


@dataclass(frozen=True)
class Report:
    """A report as text, with what it says of the measured adapter."""

    text: str
    info: AdapterInfo
    engines: tuple[str, ...]  # those under which something was measured
    kernels: int  # measurements of kernels

    @property
    def link(self) -> str:
        """The address of the form for contributions, filled in; empty if the project's address is not known."""
        return form(self.info.name, f"{self.info.backend} {self.info.driver}".strip()) if ADDRESS else ""


def form(device: str, driver: str) -> str:
    """Return the address of the form for contributions, with device, driver and version filled in."""
    filled = {"device": device, "driver": driver, "version": __version__, "title": f"New GPU: {device}"}
    return f"{ADDRESS}/issues/new?{urlencode({'template': FORM, **filled})}"


def report(open_device: Open, budget: float, show: Show = lambda text, done, total: None) -> Report:
    """Return the report on the adapter that `open_device` opens, under every engine that offers it.

    Takes about `budget` seconds, and some more for drivers that compile. Raises WebmmError if no engine could be
    measured, ProblemError if the document exceeds MAX_BYTES.
    """
    with open_device() as device:
        info, opened = device.info, device.engine
    records, engines = list[Record](), list[dict[str, Any]]()
    chosen = [(opened, info), *_twins(info, opened)]
    failures = list[WebmmError]()
    for place, (engine, each) in enumerate(chosen):
        about: dict[str, Any] = {"engine": engine.version(), "adapter": each.name, "driver": each.driver}
        engines.append(about)
        steps = _measured(engine, each, budget / len(chosen), about, records)
        try:
            for done, text in enumerate(steps):
                show(f"{engine.name}: {text}", place * STEPS + done, len(chosen) * STEPS)
        except WebmmError as error:
            failures.append(error)
            about["error"] = impersonal(str(error))
    if len(failures) == len(chosen):
        raise failures[0]
    listed = [
        {"engine": e.name, **i.to_json(), "features": sorted(a.features)} for e in installed() for i, a in adapters(e)
    ]
    entries = {
        "report": REPORT,
        "system": f"{platform.system()} {platform.machine()}",
        "adapters": listed,
        "engines": engines,
    }
    text = to_json(map(_kept, records), command="webmm report", date=date.today().isoformat(), **entries)
    if len(text.encode()) > MAX_BYTES:
        raise ProblemError(
            f"the report has {len(text.encode()):,} bytes, of at most {MAX_BYTES:,}: choose one --adapter"
        )
    measured = [r for r in records if r.status == "ok" and r.kernel != CPU_STAGE]
    return Report(text, info, tuple(dict.fromkeys(r.engine for r in measured)), len(measured))


def _twins(info: AdapterInfo, opened: Engine) -> Iterator[tuple[Engine, AdapterInfo]]:
    """Yield the other engines that offer an adapter, with their descriptions of it."""
    for engine in installed():
        same = (each for each, _ in adapters(engine) if (each.name, each.twin) == (info.name, info.twin))
        if engine is not opened and (found := next(same, None)):
            yield engine, found


def _measured(
    engine: Engine, info: AdapterInfo, seconds: float, about: dict[str, Any], records: list[Record]
) -> Iterator[str]:
    """Do the STEPS of a report under an engine, each after yielding its name; fill `about` and `records`."""
    end = time.perf_counter() + seconds

    def granted(share: float) -> float:
        return share * max(0.0, end - time.perf_counter())

    yield "first product"
    about["first_product"] = first_product(engine, info)
    with Device(str(info.index), engine=engine.name) as device:
        offered, adapter = device.capabilities, device.wgpu_device.adapter
        about["limits"], about["features"] = dict(offered.limits), sorted(offered.features)
        about["subgroups"] = {"measured": offered.subgroup_size, "reported": list(engine.subgroup_sizes(adapter.info))}
        about["matrix_units"] = [str(shape) for shape in sorted(offered.matrix_shapes)]
        about["no_matrix_units"] = impersonal(offered.no_matrix)
        yield "self-test"
        about["selftest"] = tested(selftest.run(device), granted(SELFTEST))
        yield "peak rates"
        ceiling = roofline.measure(device)
        about["rates"] = asdict(roofline.probe(device, ceiling))
        for dtype, (count, share) in LADDERS.items():
            yield f"ladder of {dtype.name}"
            if not dtype.features <= offered.features:
                continue
            sizes = _sizes(ceiling)[-count:]
            kernels = _kernels(OP.problem(sizes[-1], dtype.name), device)
            records += Bench(device, kernels, sizes, dtype.name, granted(share), ceiling, op=OP).run()


def _sizes(ceiling: roofline.Roofline) -> list[Size]:
    """Return the sizes of a ladder: those of `webmm bench` but for the largest, which slow stages would skip."""
    sizes = OP.default_sizes(ceiling, 0)
    return sizes[:-1] or sizes


def _kernels(problem: Problem, device: Device) -> list[Kernel[Any]]:
    """Return the kernels of a ladder, likely the fastest first: if the time is too short, the others are skipped."""
    stages = [suited(stage, problem, device) for stage in OP.stages if stage().unsuited(problem) is None]
    return list(dict.fromkeys([choose(problem, device), *reversed(stages)]))


def first_product(engine: Engine, info: AdapterInfo) -> dict[str, Any]:
    """Return the seconds that a new process takes to import webmm and for its first two products, or an error.

    webmm's own caches are empty; those of the driver and of Python are as they are.
    """
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        own = {"WEBMM_ADAPTER": str(info.index), "WEBMM_ENGINE": engine.name, "WEBMM_CACHE_DIR": folder}
        command = [sys.executable, "-c", FIRST]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **own, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=FIRST_TIMEOUT,
                check=False,
            )
            return dict(json.loads(done.stdout))
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {FIRST_TIMEOUT} s"}
        except (OSError, ValueError):
            return {"error": "the process failed"}


def tested(outcomes: Iterable[tuple[Problem, Kernel[Any], str]], seconds: float) -> dict[str, Any]:
    """Return the summary of a self-test, which ends after `seconds`: then it is not `complete`."""
    end = time.perf_counter() + seconds
    tried, wrong, complete = 0, list[str](), True
    for problem, kernel, complaint in outcomes:
        tried += 1
        if complaint:
            wrong.append(impersonal(f"{problem.op} {problem} {problem.dtype.name}: {kernel}: {complaint}"))
        if time.perf_counter() > end:
            complete = False
            break
    return {"tried": tried, "wrong": len(wrong), "complaints": wrong[:MAX_MESSAGES], "complete": complete}


def _kept(record: Record) -> Record:
    return replace(record, reason=record.reason and impersonal(record.reason))


def impersonal(message: str) -> str:
    """Return the first line of a message, at most MAX_MESSAGE characters, without what may tell whose machine this is.

    Of paths, only the last name is kept; names of the user, of the host and of the home folder become "…".
    """
    line = PATHS.sub(lambda path: f"…/{re.split(SLASH, path[0])[-1]}", message.partition("\n")[0])
    for name in sorted(_names(), key=len, reverse=True):
        line = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", line, flags=re.IGNORECASE)
    return printable(line)[:MAX_MESSAGE]


def _names() -> set[str]:
    """Return the names of the user and of the host."""
    host = socket.gethostname()
    names = {host, host.partition(".")[0], platform.node(), Path.home().name}
    with suppress(OSError, KeyError, ImportError):  # no such user in the system's list
        names.add(getpass.getuser())
    return names - {""}
