"""ONNX Runtime's native WebGPU provider as a peer of `calls.py`: a portable engine, timed like webmm.

It needs the packages onnx, onnxruntime and onnxruntime-ep-webgpu; if one is missing, or the provider lacks an operator,
the time is NaN. Operands and results stay on the device. Each model is timed in four modes: one node and ten nodes per
run, and both with graph capture, in which the provider records the first run's dispatches and replays them. The peer
runs in a separate process, which may fail or hang without ending the benchmark.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from whole_numbers import Shape, whole_numbers

from webmm.engine.timing import time_calls

CONTRIBUTED = ("BiasGelu", "Gelu", "MatMulNBits")  # operators in ONNX Runtime's domain com.microsoft
CHAIN = 10  # copies of a node in one run, each with its own result
TIMEOUT = 20.0  # seconds for one model
FAILURES = 3  # of the process, after which it is not restarted


@dataclass(frozen=True)
class Mode:
    """A way to run a model: the number of nodes per run, and whether the provider captures and replays the run."""

    name: str
    nodes: int
    captured: bool


MODES = (
    Mode("onnx", 1, False),
    Mode("onnx_of_ten", CHAIN, False),
    Mode("onnx_captured", 1, True),
    Mode("onnx_captured_of_ten", CHAIN, True),
)
Times = tuple[float, ...]  # µs per node in each of MODES; NaN if it could not be timed
NOTHING: Times = (math.nan,) * len(MODES)


@dataclass(frozen=True)
class Model:
    """A sequence of nodes: the first takes all operands but the last `late` ones, each other node the previous result
    and those `late` operands.

    If `dequantized`, the operands are first converted to floats of the same values.
    """

    operators: tuple[str, ...]
    operands: tuple[tuple[str, Shape], ...]
    result: tuple[str, Shape]
    attributes: dict[str, Any] = field(default_factory=dict)  # of the first
    axes: tuple[int, ...] = ()  # the first node's last input, if it takes axes
    dequantized: bool = False
    late: int = 0

    def __str__(self) -> str:
        settings = "".join(f" {name} {value}" for name, value in self.attributes.items() if name == "accuracy_level")
        return " and ".join(self.operators) + settings


class Peer:
    """The process that times models; started when it is first needed, and restarted after a failure."""

    def __init__(self) -> None:
        self._process: Any = None
        self._failures = 0

    def time(self, model: Model, seconds: float) -> tuple[Times, str]:
        """Return the times of a model, and why one is missing, if so."""
        if self._failures == FAILURES:
            return NOTHING, "its process failed too often"
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._to, ours = context.Pipe()
            self._process = context.Process(target=_serve, args=(ours,), daemon=True)
            self._process.start()
            ours.close()
        try:
            self._to.send((model, seconds))
            if self._to.poll(TIMEOUT):
                answer: tuple[Times, str] = self._to.recv()
                return answer
            why = f"took over {TIMEOUT:.0f} s"
        except (EOFError, OSError):
            why = "its process ended"
        self._failures += 1
        self.close()
        return NOTHING, why

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(connection: Connection) -> None:
    while True:
        model, seconds = connection.recv()
        times, why = [], ""
        for mode in MODES:
            try:
                times.append(_timed(model, mode, seconds))
            except Exception as error:  # any error: the other modes and models are still timed
                times.append(math.nan)
                why = why or f"{mode.name}: {type(error).__name__}: {error}"[:200]
        connection.send((tuple(times), why))


def _timed(model: Model, mode: Mode, seconds: float) -> float:
    """Return the µs per node; raises ValueError if a replayed run does not compute the results again."""
    run = _runner(model, mode, _operands(model))
    if mode.captured:
        first = run()[-1]
        expected = first.numpy().copy()
        first.update_inplace(np.zeros_like(expected))
        if not np.array_equal(run()[-1].numpy(), expected):
            raise ValueError("the replayed run gives other results")
    return time_calls(run, _wait, seconds).median_us / mode.nodes


def _operands(model: Model) -> list[Any]:
    return [on_device(whole_numbers(dtype, *shape)) for dtype, shape in model.operands]


def results(model: Model, mode: Mode = MODES[0]) -> list[NDArray[Any]]:
    """Return the results that the provider computes from operands of whole numbers."""
    return [value.numpy() for value in _runner(model, mode, _operands(model))()]


def _runner(model: Model, mode: Mode, operands: list[Any]) -> Any:
    """Return a function that queues a run of the model's nodes on resident operands, and returns the results."""
    import onnxruntime

    count = mode.nodes
    session = onnxruntime.InferenceSession(_serialised(model, count), options(mode.captured))
    binding = session.io_binding()
    for i, operand in enumerate(operands):
        binding.bind_ortvalue_input(f"x{i}", operand)
    dtype, shape = model.result
    outputs = [
        onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), np.dtype(dtype), "webgpu") for _ in range(count)
    ]
    for i, value in enumerate(outputs):
        binding.bind_ortvalue_output(f"y{i}", value)

    def run() -> list[Any]:
        session.run_with_iobinding(binding)
        return outputs

    return run


def _serialised(model: Model, count: int) -> bytes:
    from onnx import helper, numpy_helper

    last = len(model.operators) - 1
    names = [f"x{i}" for i in range(len(model.operands))]
    constants = [numpy_helper.from_array(np.array(model.axes, np.int64), "axes")] if model.axes else []
    constants += [numpy_helper.from_array(np.array(1, np.float32), "one")] if model.dequantized else []
    nodes = []
    for copy in range(count):
        first = len(names) - model.late
        inputs = names[:first] + ["axes"] * bool(model.axes)
        if model.dequantized:
            inputs = [f"{name}_{copy}" for name in names]
            for name, whole in zip(names, inputs, strict=True):
                nodes.append(helper.make_node("DequantizeLinear", [name, "one"], [whole]))
        for i, operator in enumerate(model.operators):
            output = f"y{copy}" if i == last else f"t{copy}_{i}"
            domain = "com.microsoft" if operator in CONTRIBUTED else ""
            attributes = {} if i else model.attributes
            nodes.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))
            inputs = [output, *names[first:]]

    def described(name: str, dtype: str, shape: Shape) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    graph = helper.make_graph(
        nodes,
        "peer",
        [described(name, *operand) for name, operand in zip(names, model.operands, strict=True)],
        [described(f"y{copy}", *model.result) for copy in range(count)],
        constants,
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    serialised: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return serialised


def options(captured: bool, optimised: bool = False) -> Any:
    """Return a session's options: only this provider, with graph capture and graph optimisations or without."""
    import onnxruntime

    found = onnxruntime.SessionOptions()
    found.add_provider_for_devices([_provider()], {"enableGraphCapture": "1"} if captured else {})
    found.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    levels = onnxruntime.GraphOptimizationLevel  # without optimisations, the ten equal nodes stay
    found.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    found.log_severity_level = 4
    return found


@cache
def _provider() -> Any:
    """Return the provider's device; raises ImportError, or StopIteration if it finds none."""
    os.environ.setdefault(
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1"
    )  # also accept GPUs that /sys/class/drm does not list
    import onnxruntime
    import onnxruntime_ep_webgpu as plugin

    onnxruntime.register_execution_provider_library("webgpu", plugin.get_library_path())
    return next(d for d in onnxruntime.get_ep_devices() if d.ep_name == plugin.get_ep_name())


def on_device(host: NDArray[Any]) -> Any:
    """Return an OrtValue on the device with the elements of `host`."""
    import onnxruntime

    _provider()
    return onnxruntime.OrtValue.ortvalue_from_numpy(host, "webgpu")


@cache
def _marker() -> Any:
    return on_device(np.zeros(1, np.float32))


def _wait() -> None:
    """Wait until all queued work is done: a readback is queued after it."""
    _marker().numpy()
