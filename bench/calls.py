"""Public calls by the wall clock, compared with their kernels, ONNX Runtime on WebGPU, and PyTorch.

    python bench/calls.py --engine wgpu,dawn bench/results/my-gpu-calls.json
    python bench/calls.py --summary bench/results/h200-calls.json    # the means of existing records; measures nothing

Operands are resident unless a case says otherwise. In each of five rounds, as many calls as fit the time are queued,
followed by one wait; the result is the median time per call. For comparison, the call's dispatches are timed by the
device's clock, and the peers are timed like webmm: ONNX Runtime's native WebGPU provider (`onnx_peer.py`), one call and
a run of ten, each also with graph capture, and PyTorch, eager and as a CUDA graph of ten, TF32 off. A missing peer is
shown as nan. Portable peers that this script cannot run count with the times in `results/calls-reported.json`, on the
device that these were taken on. The first rows of each result are checked once. The 29 everyday cases come first;
geometric means by group follow at the end; with `--matrix-units`, products for matrix units are timed instead. A case
that fails is reported and skipped. The records of calls have `kernel` "call" and `clock` "wall".
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import peers
from call_cases import Case, everyday, on_matrix_units, others
from onnx_peer import CHAIN, MODES, Peer
from onnx_peer import NOTHING as NO_ONNX
from onnx_peer import Times as OnnxTimes

from webmm import BlockWeights, Device
from webmm.engine.device import Array
from webmm.engine.launch import Launch
from webmm.engine.timing import Timing, time_calls, time_launch
from webmm.kernels.base import Kernel
from webmm.measure.bench import record_of
from webmm.measure.records import Record, from_json, provenance, save, to_json
from webmm.problems.base import Problem

GROUPS = ("f32", "f16", "integers")
NOTHING = (math.nan, math.nan)
TORCH = ("torch_us", "torch_of_ten_us")
REPORTED = Path(__file__).with_name("results") / "calls-reported.json"


def placed(device: Device, operand: Any) -> Any:
    """Return an operand on the device."""
    return operand.to(device) if isinstance(operand, BlockWeights) else device.array(operand)


def dispatched(device: Device, call: Callable[[], Any]) -> tuple[Any, dict[tuple[Kernel[Any], Problem], list[Launch]]]:
    """Return the result of a call and its dispatches, with the caches of earlier calls cleared."""
    found: dict[tuple[Kernel[Any], Problem], list[Launch]] = {}
    run = device.run

    def noted(kernel: Kernel[Any], problem: Problem, *arrays: Array) -> None:
        found.setdefault((kernel, problem), []).append(device.launch(kernel, problem, *arrays))
        run(kernel, problem, *arrays)

    device.choices.clear()
    device.plans.clear()
    device.plans.record = lambda key, arrays, call: call()  # type: ignore[method-assign]  # else the second call would replay a plan
    device.run = noted  # type: ignore[method-assign]
    try:
        return call(), found
    finally:
        del device.run, device.plans.record


def check(case: Case, result: Any) -> None:
    """Raise ValueError if the first results are wrong."""
    if case.numpy is None:
        return
    expected, part = case.numpy(*case.operands), result[case.part]
    off = np.abs((part.numpy() if isinstance(part, Array) else part) - expected).max()
    if not off <= case.tolerance * np.abs(expected).max():
        raise ValueError(f"a result is off by {off:g}")


def run(device: Device, case: Case, seconds: float) -> tuple[Record, Record]:
    """Return the records of the call and of its kernel; the latter has the time of all dispatches, per product."""
    operands = case.operands if case.on_host else [placed(device, x) for x in case.operands]
    arrays = operands + ([device.empty(case.operands[0].shape, case.into)] if case.into else [])
    call = partial(case.call, *arrays, **({"device": device} if case.on_host else {}))
    try:
        result, found = dispatched(device, call)
        check(case, result)
        kernels_us = 0.0
        for launches in found.values():
            each = time_launch(device, launches[0], 0.1, seconds / 5)
            kernels_us += each.median_us * len(launches) / case.steps
        timed = time_calls(call, device.synchronize, seconds)
    finally:
        for array in [] if case.on_host else arrays:
            array.free()
    if isinstance(result, Array):
        result.free()
    kernel, problem = max(found, key=lambda each: each[1].flops)
    of_call = record_of(device, problem, kernel, timed=per_product(timed, case.steps))
    of_kernel = record_of(device, problem, kernel, timed=Timing(kernels_us, kernels_us, 0.0, 1, each.clock))
    return replace(of_call, kernel="call", config={"call": case.name, "runs": kernel.name}), of_kernel


def per_product(timed: Timing, steps: int) -> Timing:
    """Return the time of one product in a call of `steps` products."""
    return replace(timed, median_us=timed.median_us / steps, best_us=timed.best_us / steps)


def in_onnx(peer: Peer, case: Case, seconds: float) -> OnnxTimes:
    """Return the µs of ONNX Runtime in each mode, for the fastest of the case's models."""
    times = []
    for model in case.onnx:
        each, why = peer.time(model, seconds)
        times.append(each)
        if why or len(case.onnx) > 1:
            shown = ", ".join(f"{mode.name} {us:,.1f}" for mode, us in zip(MODES, each, strict=True))
            print(f"  ONNX Runtime, {model}, µs: {shown}{why and '; '}{why}", flush=True)
    return tuple(map(best, zip(*times, strict=True))) or NO_ONNX


def reported(case: str, adapter: str) -> float:
    """Return the least µs that other portable peers were reported to take for a case on this adapter, or NaN."""
    every = json.loads(REPORTED.read_text(encoding="utf-8"))["records"]
    return best(each["us"] for each in every if each["case"] == case and each["device"] in adapter)


def best(times: Iterable[float]) -> float:
    """Return the smallest of the times that are not NaN; NaN if all are."""
    return min((t for t in times if t == t), default=math.nan)


def in_pytorch(case: Case, seconds: float) -> tuple[float, float]:
    """Return the µs of PyTorch's eager call, and of one of ten in a CUDA graph; NaN for each that is not available."""
    if case.torch is None or not peers.available():
        return NOTHING
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    operands = [torch.from_numpy(x) for x in case.dense or case.operands]
    call = partial(case.torch, *(operands if case.on_host else [x.cuda() for x in operands]))
    with torch.no_grad():
        eager = time_calls(call, torch.cuda.synchronize, seconds).median_us / case.steps
        captured = partial(in_graph, call, seconds)
        return eager, tried(f"{case.name} in a CUDA graph", math.nan, captured) if case.graph else math.nan


def in_graph(call: Callable[[], Any], seconds: float) -> float:
    """Return the µs of one of ten calls in a CUDA graph."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for _ in range(CHAIN)]
    timed = time_calls(graph.replay, torch.cuda.synchronize, seconds)
    del kept
    return timed.median_us / CHAIN


@dataclass(frozen=True)
class Row:
    """The times of a case on an engine, in µs."""

    case: str
    group: str
    engine: str
    call: float
    kernel: float
    onnx: OnnxTimes
    torch: tuple[float, ...]
    reported: float  # of the fastest other portable peer

    @property
    def lead(self) -> float:
        """The speedup of the call over the best portable peer."""
        return best((*self.onnx, self.reported)) / self.call

    def __str__(self) -> str:
        figures = (self.call, self.kernel, *self.onnx, self.reported, *self.torch)
        return f"{self.case:48} {self.engine:5}" + "".join(f"{x:10,.1f}" for x in figures) + f"{self.lead:8.2f}"

    @classmethod
    def of(cls, call: Record, kernel: Record, group: str) -> Row:
        """Return the row of a call's record, which holds the peers' times, and its kernel's."""
        assert call.median_us is not None
        assert kernel.median_us is not None
        case, config = str(call.config["call"]), call.config
        onnx = tuple(float(config.get(f"{mode.name}_us", math.nan)) for mode in MODES)
        torch = tuple(float(config.get(name, math.nan)) for name in TORCH)
        engine, by_others = call.engine.split("-")[0].split(" ")[0], reported(case, call.adapter)
        return cls(case, group, engine, call.median_us, kernel.median_us, onnx, torch, by_others)


HEAD = f"{'µs':48} {'':5}" + "".join(
    f"{x:>10}"
    for x in ("call", "kernel", "ONNX", "of ten", "captured", "of ten", "reported", "PyTorch", "of ten")
) + f"{'× best':>8}"  # fmt: skip


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield the mean and the worst case of each engine and group."""
    for engine in dict.fromkeys(row.engine for row in rows):
        of = [row for row in rows if row.engine == engine]
        groups = [(name, [row for row in of if row.group == name]) for name in GROUPS]
        for name, each in (
            *groups,
            ("everyday", [r for r in of if r.group]),
            ("others", [r for r in of if not r.group]),
        ):
            share = lambda row: row.kernel / row.call  # noqa: E731
            for words, value in (("best portable peer ÷ call", lambda row: row.lead), ("kernel ÷ call", share)):
                known = {row.case: value(row) for row in each if value(row) > 0}
                if known:
                    worst = min(known, key=known.__getitem__)
                    mean = statistics.geometric_mean(known.values())
                    yield (
                        f"{engine}, {name}: {words}, geometric mean of {len(known)}: {mean:.2f}; "
                        f"worst {known[worst]:.2f}, {worst}"
                    )


def rows_in(file: Path) -> list[Row]:
    """Return the rows of the records that an earlier run wrote."""
    groups = {case.name: case.group for case in everyday(lambda n: n)}
    found = from_json(file.read_text(encoding="utf-8"))
    return [
        Row.of(call, kernel, groups.get(str(call.config["call"]), ""))
        for call, kernel in zip(found[::2], found[1::2], strict=True)
    ]


def tried(what: str, nothing: Any, measure: Callable[[], Any]) -> Any:
    """Return the result of `measure`; if it fails, print the error and return `nothing`."""
    try:
        return measure()
    except Exception as error:  # of a driver, a library or a kernel: the other cases still run
        print(f"  {what}: {type(error).__name__}: {error}", flush=True)
        return nothing


@click.command()
@click.option("--adapter")
@click.option("--engine", "engines", default="wgpu", show_default=True, help="Such as wgpu,dawn.")
@click.option("--matrix-units", is_flag=True, help="Products for matrix units instead of the other cases.")
@click.option("--only", default="", help="Part of a case's name.")
@click.option("--seconds", default=0.15, show_default=True, help="Seconds per measurement.")
@click.option("--budget", default=600.0, show_default=True, help="Seconds after which no case starts.")
@click.option("--scale", default=1, show_default=True, help="Divide large sizes by this, for a trial run.")
@click.option("--summary", "existing", is_flag=True, help="Measure nothing: print the rows and means of OUTPUT.")
@click.argument("output", type=click.Path(path_type=Path))
def main(
    adapter: str | None,
    engines: str,
    matrix_units: bool,
    only: str,
    seconds: float,
    budget: float,
    scale: int,
    existing: bool,
    output: Path,
) -> None:
    """Time the calls and write their records to OUTPUT."""
    if existing:
        known = rows_in(output)
        print(HEAD, *known, *summary(known), sep="\n")
        return

    def sized(n: int) -> int:
        return max(n // scale, min(n, 128))

    began, peer = time.perf_counter(), Peer()
    devices: dict[str, Device] = {}
    records: list[Record] = []
    rows: list[Row] = []
    print(HEAD, flush=True)
    for case in on_matrix_units(sized) if matrix_units else chain(everyday(sized), others(sized)):
        if only not in case.name:
            continue
        if time.perf_counter() - began > budget:
            print(f"the budget of {budget:.0f} s is used up: {case.name} and later cases are skipped", flush=True)
            break
        measured = {}
        for engine in engines.split(","):
            device = devices.get(engine)
            if device is None or device.lost:
                device = tried(engine, None, partial(Device, adapter, engine=engine))
            if device is not None:
                devices[engine] = device
                if both := tried(f"{case.name} by {engine}", None, partial(run, device, case, seconds)):
                    measured[engine] = both
                tried(engine, None, device.trim)
        torch = tried(f"{case.name} by PyTorch", NOTHING, partial(in_pytorch, case, seconds))
        onnx = tried(f"{case.name} by ONNX Runtime", NO_ONNX, partial(in_onnx, peer, case, seconds))
        peers_us = zip((*(f"{mode.name}_us" for mode in MODES), *TORCH), (*onnx, *torch), strict=True)
        timed = {name: us for name, us in peers_us if us == us}
        for call, kernel in measured.values():
            records += (replace(call, config=call.config | timed), kernel)
            rows.append(Row.of(*records[-2:], case.group))
            print(rows[-1], flush=True)
        save(output, to_json(records, **provenance()))
    peer.close()
    for device in devices.values():
        device.close()
    for line in summary(rows):
        print(line)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
