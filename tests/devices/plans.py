"""What webmm chooses on devices that it has never seen: python tests/devices/plans.py writes docs/devices.md.

A virtual device has the limits, features and subgroup sizes that a real adapter reports, and plans like one, but runs
nothing. Each is a JSON file next to this module, with its source.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from webmm.cases import op_of
from webmm.cases.expression import expression
from webmm.choose import choose
from webmm.config import Settings
from webmm.dtypes import F32
from webmm.engine.adapters import capabilities, describe
from webmm.engine.wgpu import WGPU
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import SIZES, suits
from webmm.problems.base import Problem

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "devices.md"
MARK = "<!-- Written by `python tests/devices/plans.py` from here on. -->"
NAMES = sorted(file.stem for file in HERE.glob("*.json"))

# Twenty sizes of products – cubes, few rows or columns, long and short k, ragged edges – and of arrays that are reduced
# along n: rows, their elements, and columns.
PRODUCTS = (
    *((1, 1, 1), (16, 16, 16), (64, 64, 64), (100, 99, 101), (256, 256, 256), (1000, 1000, 1000), (2048, 2048, 2048)),
    *((1, 512, 512), (1, 4096, 4096), (4, 4096, 1024), (32, 1536, 1024), (512, 1, 2048), (4096, 8, 64)),
    *((64, 64, 50_000), (17, 3000, 333), (3000, 20, 500), (128, 128, 2048), (33, 4097, 65), (8, 8, 8192)),
    (1024, 1024, 64),
)
ARRAYS = (
    *((1, 1, 1), (64, 64, 1), (1000, 1000, 1), (4096, 4096, 1), (1, 10_000_000, 1), (1, 4096, 1), (8, 65_536, 1)),
    *((100_000, 9, 1), (30_000, 300, 1), (65, 3443, 1), (3, 77, 65), (1, 1000, 1000), (1, 2048, 8192), (190, 2045, 28)),
    *((1, 300_000, 64), (8, 12, 100_000), (1, 377_902, 44), (16, 16, 16), (2, 33_298, 1), (500, 1000, 3)),
)
# Queries, keys, columns and heads of attention: prompts, few queries of long ones, narrow and wide heads, ragged edges.
TOKENS = (
    *((1, 1, 1, 1), (16, 16, 16, 1), (64, 64, 64, 2), (100, 99, 61, 3), (512, 512, 64, 8), (2048, 2048, 64, 12)),
    *((4096, 4096, 128, 16), (1, 1024, 64, 8), (1, 8192, 128, 32), (4, 4096, 80, 8), (8, 255, 64, 4), (9, 300, 64, 4)),
    *((333, 333, 40, 5), (64, 1500, 96, 6), (1024, 1024, 256, 2), (1, 2048, 256, 8), (77, 77, 257, 1)),
    *((33, 65, 500, 2), (1, 50_000, 64, 1), (3000, 20, 32, 7)),
)
MADE: dict[str, tuple[Callable[[Any], Problem], tuple[Any, ...]]] = {  # the problem of a size, and the sizes
    "float32": (lambda size: op_of("gemm").problem(size, "float32"), PRODUCTS),
    "float16, B transposed": (lambda size: op_of("gemm").problem(size, "float16", "nt"), PRODUCTS),
    "int8": (lambda size: op_of("quantized").problem(size, "int8"), PRODUCTS),
    "4-bit weights": (lambda size: op_of("weights:4bit-32").problem(size, "float32"), PRODUCTS),
    "sums": (lambda size: op_of("reduce:sum").problem(size, "float32"), ARRAYS),
    "softmax": (lambda size: op_of("normalise:softmax").problem(size, "float32"), ARRAYS),
    "GELU": (lambda size: op_of("elementwise:gelu").problem(size, "float32"), ARRAYS),
    "x0 * x1 + 1": (lambda size: expression("x0 * x1 + 1.0", F32, F32, (1, 1, 1, math.prod(size))), ARRAYS),
    "attention": (lambda size: op_of("attention").problem(size, "float32"), TOKENS),
    "causal attention, float16": (lambda size: op_of("attention:causal").problem(size, "float16"), TOKENS),
}
# The sizes that the page shows.
SHOWN: dict[str, tuple[tuple[int, ...], ...]] = {
    "float32": ((64, 64, 64), (256, 256, 256), (2048, 2048, 2048), (1, 4096, 4096), (512, 1, 2048), (64, 64, 50_000)),
    "float16, B transposed": ((64, 64, 64), (2048, 2048, 2048), (1, 4096, 4096)),
    "int8": ((64, 64, 64), (2048, 2048, 2048), (128, 128, 2048)),
    "4-bit weights": ((1, 4096, 4096), (256, 256, 256), (2048, 2048, 2048)),
    "sums": ((64, 64, 1), (1000, 1000, 1), (1, 10_000_000, 1), (1, 2048, 8192), (190, 2045, 28)),
    "softmax": ((64, 64, 1), (4096, 4096, 1), (1, 2048, 8192), (1, 300_000, 64)),
    "GELU": ((1000, 1000, 1),),
    "x0 * x1 + 1": ((1000, 1000, 1),),
    "attention": ((512, 512, 64, 8), (1, 8192, 128, 32)),
    "causal attention, float16": ((2048, 2048, 64, 12), (1, 1024, 64, 8)),
}


def described(name: str) -> dict[str, Any]:
    """Return the contents of a device's file."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return found


def lanes_of(name: str) -> list[int]:
    """Return the sizes of subgroups that pipelines may have, the least first: one on a CPU, none without subgroups."""
    d = described(name)
    sizes = [size for size in SIZES if d["subgroup_sizes"] and d["subgroup_sizes"][0] <= size <= d["subgroup_sizes"][1]]
    return sizes[:1] if d["kind"] == "CPU" else sizes


def device(name: str, likely: int = 0, actual: int = 0) -> Any:
    """Return the virtual device called `name`, for planning.

    If it states several sizes of subgroups, a probe has found `likely` lanes, but all shaders have `actual` ones; by
    default, both are the least.
    """
    d = described(name)
    info = {"device": d["name"], "vendor": "", "adapter_type": d["kind"], "backend_type": "Vulkan"}
    adapter = SimpleNamespace(info=info | {"description": d["driver"]}, limits=d["limits"], features=d["features"])
    about, sizes = describe(0, adapter), lanes_of(name)
    likely = likely or min(sizes, default=0)
    others = sorted((n for n in sizes if n != likely), key=lambda n: max(n, likely) // min(n, likely))
    able = dataclasses.replace(capabilities(about, adapter), subgroup_size=likely, other_sizes=tuple(others))
    settings = Settings(selftest=False, probe=False)
    hardware = {"info": about, "engine": WGPU, "capabilities": able, "lanes": actual or likely}
    return SimpleNamespace(**hardware, settings=settings, choices={}, rates={})


def failing(kernel: Kernel[Any], problem: Problem, gpu: Any) -> str | None:
    """Return what the self-test of a kernel would find: its subgroups have another number of lanes."""
    wrong = [step.name for step in kernel.dispatches if step.subgroup and not suits(step, gpu.lanes)]
    return f"{wrong[0]} has subgroups of {gpu.lanes}" if wrong else None


Sizes = Mapping[str, Sequence[Any]]  # of problems, by kind
Plan = dict[tuple[str, Any], dict[str, tuple[Problem, Kernel[Any]]]]  # by kind of problem and size, and by device


def plan(names: Sequence[str] = NAMES, every: int = 1) -> Plan:
    """Return the problem and the chosen kernel on each device that has its types.

    Of the sizes that are not shown, each device plans every `every`-th, the next device and kind the next ones in turn.
    Nothing that this machine knows of its own devices counts. Raises UnsupportedError if a device has no kernel.
    """
    found: Plan = {}
    for turn, name in enumerate(names):
        wanted = {
            kind: [x for i, x in enumerate(sizes) if x in SHOWN[kind] or (i + turn + number) % every == 0]
            for number, (kind, (_, sizes)) in enumerate(MADE.items())
        }
        for key, planned in _planned({name: device(name)}, wanted).items():
            found.setdefault(key, {}).update(planned)
    return found


def plan_of_lanes(every: int = 1) -> dict[tuple[int, int], Plan]:
    """Return the plans of the shown sizes on devices with several sizes of subgroups, by likely and actual lanes.

    Each pair of lanes has every `every`-th of the sizes, the next pair the next ones in turn.
    """
    found: dict[tuple[int, int], Plan] = {}
    for turn, (likely, actual) in enumerate(itertools.product(SIZES, SIZES)):
        wanted = {kind: sizes[turn % every % len(sizes) :: every] for kind, sizes in SHOWN.items()}
        some = [name for name in NAMES if {likely, actual} <= {*lanes_of(name)} and len(lanes_of(name)) > 1]
        if some:
            found[likely, actual] = _planned({name: device(name, likely, actual) for name in some}, wanted)
    return found


def _planned(devices: Mapping[str, Any], wanted: Sizes) -> Plan:
    found: Plan = {}
    tested = mock.patch("webmm.choose.failing", failing)
    with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, WEBMM_CACHE_DIR=empty), tested:
        for name, gpu in devices.items():
            for kind, size in ((kind, size) for kind, sizes in wanted.items() for size in sizes):
                problem = MADE[kind][0](size)
                if problem.features <= gpu.capabilities.features:
                    found.setdefault((kind, size), {})[name] = problem, choose(problem, gpu, "cached")
    return found


# The page


def page(found: Any) -> str:
    """Return docs/devices.md: what it says in its own words, and the tables."""
    words, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return f"{words}{MARK}\n\n## The devices\n\n{_devices()}\n## The choices\n\n{_choices(found)}"


def _devices() -> str:
    lines = [
        "| device | adapter | kind | invocations | workgroup memory | binding | subgroups | features | source |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        d, limits, able = described(name), described(name)["limits"], device(name)
        sizes = "–".join(map(str, dict.fromkeys(d["subgroup_sizes"]))) or "none"
        source = f"[{d['source']['date']}]({d['source']['address']})"
        lines.append(
            f"| {name} | {d['name']} | {able.info.kind} | {limits['max-compute-invocations-per-workgroup']} "
            f"| {limits['max-compute-workgroup-storage-size'] // 1024} KiB "
            f"| {limits['max-storage-buffer-binding-size'] // 2**20} MiB | {sizes} "
            f"| {', '.join(x for x in d['features'] if x != 'subgroup') or 'none'} | {source} |"
        )
    return "\n".join([*lines, ""])


def _choices(found: Any) -> str:
    lines = ["| problem | kernel | devices |", "|---|---|---|"]
    for kind, sizes in SHOWN.items():
        for size in sizes:
            chosen: dict[str, list[str]] = {}
            for name, (_, kernel) in found[kind, size].items():
                chosen.setdefault(_written(kernel), []).append(name)
            words = f"{kind} {'×'.join(map(str, size))}"
            for kernel, names in sorted(chosen.items(), key=lambda each: -len(each[1])):
                lines.append(f"| {words} | `{kernel}` | {_named(names, list(found[kind, size]))} |")
                words = ""
    return "\n".join([*lines, ""])


def _written(kernel: Kernel[Any]) -> str:
    """Return a kernel with the tunables in which it differs from the defaults."""
    default = type(kernel)().config
    changed = [f"{name}={value}" for name, value in kernel.config.items() if default[name] != value]
    return " ".join([kernel.name, *changed])


def _named(names: list[str], able: list[str]) -> str:
    """Return the names of devices, or which of those that are `able` are missing if these are few."""
    gpus = [name for name in able if described(name)["kind"] != "CPU"]
    missing = [name for name in gpus if name not in names]
    if set(names) <= set(gpus) and len(missing) < min(5, len(names)):
        return f"all GPUs but {', '.join(missing)}" if missing else "all GPUs"
    return ", ".join(names)


if __name__ == "__main__":
    PAGE.write_text(page(plan(every=len(PRODUCTS))), encoding="utf-8")
