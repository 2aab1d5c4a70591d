"""Three questions that a stage cannot answer by itself: what would it gain by …

    python bench/switches.py --engine wgpu FILE
    python bench/switches.py --engine dawn FILE

* sizes as constants: the uniform's members replaced by numbers, so that each shape needs a shader of its own
* unchecked access: the engine's own switches, naga's bounds checks and bounds of loops, or Dawn's `disable_robustness`
* loads of 16 bytes: bfloat16 and float16 loaded as eight elements at once, where a binding by vec4 moves four

Each setting of an engine is a process of its own, since Dawn's is one for the whole process. They are measured in
turns, in ROUNDS rounds, on CPUs by the CPU time of the process; a line has the median, and how many times as fast each
variant is as the shader as it is, with an interval of 95 % (`webmm.measure.benchmark.Ratio`). Every result is checked
first.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from webmm import Device
from webmm.cases import op_of
from webmm.engine import timing
from webmm.engine.launch import Launch
from webmm.kernels import configure
from webmm.kernels.base import Binding, Kernel
from webmm.measure import records
from webmm.measure.bench import _arrays, record_of
from webmm.measure.benchmark import Ratio
from webmm.problems.base import Problem
from webmm.wgsl.render import Shader, params_bytes

ROUNDS = 15
LEAST = 0.03  # seconds of a sample
PLAIN, CONSTANTS = "as it is", "sizes as constants"
# Per engine, the settings of its processes.
SETTINGS = {
    "wgpu": (PLAIN, "no bounds checks", "no bounds of loops"),
    "dawn": (PLAIN, "no robustness"),
}
SMALL = {"bm": "32", "bn": "32", "bk": "8", "tm": "4", "tn": "4", "unroll": "8"}
Cases = dict[str, tuple[str, tuple[int, ...], str, dict[str, str]]]
ON_CPUS: Cases = {
    "naive": ("gemm", (128, 128, 128), "naive", {}),
    "pipelined": ("gemm", (128, 256, 128), "pipelined", SMALL),
    "cpu_lanes": ("gemm", (128, 256, 128), "cpu_lanes", {"lanes": "4", "tm": "16", "tn": "8"}),
    "sums of rows": ("reduce:sum", (256, 2048, 1), "vectorized", {}),
    "sums of columns": ("reduce:sum", (512, 1, 64), "columns", {}),
}
ON_GPUS: Cases = {
    "naive": ("gemm", (2048, 2048, 2048), "naive", {}),
    "pipelined": ("gemm", (4096, 4096, 4096), "pipelined", {}),
    "sums of rows": ("reduce:sum", (8192, 16384, 1), "vectorized", {}),
    "sums of columns": ("reduce:sum", (16, 8192, 1024), "columns", {}),
}
# The type of a load, and how its words become numbers.
BFLOAT16, FLOAT16 = "bfloat16", "float16"
LOADS = {
    f"{dtype}, {size} bytes": (dtype, vector)
    for dtype in (BFLOAT16, FLOAT16)
    for size, vector in ((8, "vec2u"), (16, "vec4u"))
}
ELEMENTS = {"cpu": 2**20, "gpu": 2**28}
INVOCATIONS = {"cpu": 2**10, "gpu": 2**18}
BINDINGS = (
    Binding(0, "source", "read-only-storage", ""),
    Binding(1, "result", "storage", ""),
)
LOADING = """
@group(0) @binding(0) var<storage, read> source: array<{vector}>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {{
    var sum = vec2f();
    for (var i = id.x; i < {count}u; i += {invocations}u) {{
        let words = source[i];
        {sums}
    }}
    result[id.x] = sum.x + sum.y;
}}
"""
NUMBERS = {  # of a word: two elements
    BFLOAT16: "bitcast<vec2f>(vec2u({word} << 16u, {word} & 0xffff0000u))",
    FLOAT16: "unpack2x16float({word})",
}


def with_constants(shader: Shader, kernel: Kernel[Any], problem: Problem) -> Shader:
    """Return the shader with the members of its uniform replaced by their values."""
    struct = re.search(r"struct Params \{(.*?)\}", shader.wgsl, re.DOTALL)
    assert struct, "a shader without a uniform"
    members = re.findall(r"^\s*(\w+): (\w+),", struct[1], re.MULTILINE)
    raw = params_bytes(kernel, problem)
    values = {
        name: f"{np.frombuffer(raw, np.uint32, 1, 4 * i)[0]}u"
        for i, (name, kind) in enumerate(members)
        if kind == "u32"
    }
    return dataclasses.replace(
        shader, wgsl=re.sub(r"\bparams\.(\w+)", lambda found: values.get(found[1], found[0]), shader.wgsl)
    )


def switch(setting: str) -> None:
    """Have the engine compile as `setting` says."""
    if setting == "no robustness":
        from webmm.engine import dawn

        dawn.ENABLED = (*dawn.ENABLED, "disable_robustness")
    elif setting != PLAIN:
        from wgpu.backends.wgpu_native import _api

        # wgpu-py has no argument for it; wgpu-native's function is in the library that it loads.
        lib = _api.lib
        checks = 0x1F & ~(1 if setting == "no bounds checks" else 2)
        _api.libf.wgpuDeviceCreateShaderModule = lambda device, descriptor: lib.wgpuDeviceCreateShaderModuleTrusted(
            device, descriptor, checks
        )


class Worker:
    """A process with one setting of the engine: it prepares launches and times them."""

    def __init__(self, engine: str, adapter: str, setting: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, ours = context.Pipe()
        self.process = context.Process(target=_serve, args=(engine, adapter, setting, ours), daemon=True)
        self.process.start()
        ours.close()

    def ask(self, *question: Any) -> Any:
        """Return the answer; the process ends with an error if it has none."""
        self.pipe.send(question)
        return self.pipe.recv()


def _serve(engine: str, adapter: str, setting: str, pipe: Connection) -> None:
    switch(setting)
    with Device(adapter, engine=engine) as device:
        known: dict[tuple[str, str], Callable[[int], float]] = {}
        while question := pipe.recv():
            what, *rest = question
            if what == "record":
                pipe.send(_record(device, *rest))
                continue
            key = (what, rest[0])
            if key not in known:
                known[key] = _loads(device, rest[0]) if rest[0] in LOADS else _case(device, *key)
            pipe.send(known[key](rest[1]))


def cases_of(kind: str) -> Cases:
    """Return the cases for a CPU, or for a GPU."""
    return ON_CPUS if kind == "cpu" else ON_GPUS


def of_kind(table: dict[str, int], kind: str) -> int:
    """Return the entry for a CPU, or for a GPU."""
    return table["cpu" if kind == "cpu" else "gpu"]


def _case(device: Device, name: str, variant: str) -> Callable[[int], float]:
    """Return a function that times runs of a case, after checking its result."""
    op, size, stage, settings = cases_of(device.info.kind)[name]
    row = op_of(op)
    problem = row.problem(size, "float32")  # type: ignore[arg-type]
    kernel, case = configure(stage, settings, row.name), row.case(device, problem)
    shader = device.shader(kernel, problem)
    if variant == CONSTANTS:
        shader = with_constants(shader, kernel, problem)
    arrays = _arrays(device, case)
    device.shader = lambda *_: shader  # type: ignore[method-assign]
    device.launches.clear()
    launch = device.launch(kernel, problem, *arrays)
    del device.shader  # type: ignore[method-assign]
    return _checked(device, launch, arrays, lambda: case.error(arrays[-1].numpy()) <= case.bound)


def _loads(device: Device, variant: str) -> Callable[[int], float]:
    """Return a function that times sums of 16-bit floats, loaded as `variant` says."""
    dtype, vector = LOADS[variant]
    elements, invocations = (of_kind(table, device.info.kind) for table in (ELEMENTS, INVOCATIONS))
    drawn = np.random.default_rng(0).random(2**20, np.float32) + 0.5
    bits = drawn.astype(np.float16).view(np.uint16) if dtype == FLOAT16 else drawn.view(np.uint32) >> 16
    words = np.tile(bits.astype(np.uint16), elements >> 20)
    x, y = device.array(words.view(np.uint32)), device.empty((invocations,))
    lanes = int(vector[3])
    sums = "\n        ".join(f"sum += {NUMBERS[dtype].format(word=f'words.{axis}')};" for axis in "xyzw"[:lanes])
    count = elements // (2 * lanes)
    text = LOADING.format(vector=vector, sums=sums, count=count, invocations=invocations)
    pipeline = device.compile(text, variant, BINDINGS)
    group = device.bind(pipeline, [x.storage.buffer, y.storage.buffer])
    kept = drawn.astype(np.float16) if dtype == FLOAT16 else (drawn.view(np.uint32) >> 16 << 16).view(np.float32)
    expected = kept.sum(dtype=np.float64) * (elements >> 20)
    launch = Launch(pipeline, group, (invocations // 64, 1, 1), label=variant)
    return _checked(device, launch, [x, y], lambda: bool(np.isclose(y.numpy().sum(dtype=np.float64), expected)))


def _checked(device: Device, launch: Launch, arrays: list[Any], right: Callable[[], bool]) -> Callable[[int], float]:
    timing.submit(device, launch)
    assert right(), f"{launch.label} is wrong"
    clock = time.process_time if device.info.kind == "cpu" else time.perf_counter

    def timed(count: int) -> float:
        """Return the seconds of a run, of `count` or, for 0, the number of runs that a sample needs."""
        start = clock()
        timing.submit(device, launch, max(count, 1))
        seconds = clock() - start
        return seconds / count if count else max(1, round(LEAST / max(seconds, 1e-6)))

    timed.arrays = arrays  # type: ignore[attr-defined]  # they live as long as the launch
    return timed


def _record(device: Device, name: str, variant: str, seconds: list[float]) -> records.Record:
    clock = "cpu" if device.info.kind == "cpu" else "wall"
    timed = timing.Timing.of(seconds, clock)
    long = (1, of_kind(ELEMENTS, device.info.kind), 1)
    op, size, stage, settings = cases_of(device.info.kind).get(name, ("reduce:sum", long, "", {}))
    row = op_of(op)
    problem = row.problem(size, "float32" if stage else LOADS[variant][0])  # type: ignore[arg-type]
    kernel = configure(stage, settings, row.name) if stage else None
    record = record_of(device, problem, kernel, timed=timed)
    if kernel is None:
        machine = {"adapter": device.info.name, "backend": device.info.backend, "driver": device.info.driver}
        record = dataclasses.replace(record, kernel=name, engine=device.engine.version(), **machine)
    return dataclasses.replace(record, config={**record.config, "switch": variant})


def measured(
    workers: dict[str, Worker], name: str, variants: list[tuple[str, str]]
) -> dict[tuple[str, str], list[float]]:
    """Return the seconds of each (setting, variant) of a case, which take turns."""
    counts = {each: max(workers[each[0]].ask(name, each[1], 0) for _ in range(3)) for each in variants}
    found: dict[tuple[str, str], list[float]] = {each: [] for each in variants}
    for turn in range(ROUNDS):
        for setting, variant in variants if turn % 2 else reversed(variants):
            key = (setting, variant)
            found[key].append(workers[setting].ask(name, variant, int(counts[key])))
    return found


def main() -> None:
    """Print a line for each case and variant; save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="for the records (JSON)")
    parser.add_argument("--engine", choices=tuple(SETTINGS), default="wgpu")
    parser.add_argument("--adapter", choices=("cpu", "gpu"), default="cpu")
    options = parser.parse_args()
    settings = SETTINGS[options.engine]
    workers = {setting: Worker(options.engine, options.adapter, setting) for setting in settings}
    results = []
    loads = {f"loads of {dtype}": [each for each in LOADS if LOADS[each][0] == dtype] for dtype in (BFLOAT16, FLOAT16)}
    for name in (*cases_of(options.adapter), *loads):
        variants = [(PLAIN, each) for each in loads.get(name, (PLAIN, CONSTANTS))]
        if name not in loads:
            variants += [(setting, PLAIN) for setting in settings[1:]]
        found = measured(workers, name, variants)
        base = found[variants[0]]
        for (setting, variant), seconds in found.items():
            words = setting if setting != PLAIN else variant
            ratio = Ratio.of(seconds, base)
            print(f"{name:18} {words:20} {1e6 * statistics.median(seconds):10.1f} µs  {ratio.median:.3f} ({ratio})")
            results.append(workers[PLAIN].ask("record", name, words, seconds))
    for worker in workers.values():
        worker.pipe.send(())
        worker.process.join()
    clock = "CPU time of the process" if options.adapter == "cpu" else "wall clock of batches"
    note = f"{clock}: only ratios are meaningful; variants in turns, each checked"
    records.save(options.file, records.to_json(results, **records.provenance(), note=note))


if __name__ == "__main__":
    main()
