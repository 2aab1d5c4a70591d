"""The model of `decoding.py` in ONNX Runtime's native WebGPU provider: a portable engine, timed like webmm.

`onnx_gpt2.py` has the graph, with all optimisations on. Tokens, logits and the cache stay on the device. Tokens are
decoded in two ways: the host binds the position of each, or it replays a captured run, which counts on the device. This
peer runs in a process of its own, which may fail or hang without ending the benchmark. It needs the packages of
`onnx_peer.py`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx_peer import on_device, options

FED = 3  # the last tokens of the prompt, which are decoded to check the logits
TIMEOUT = 240.0  # seconds for each kind of run

Weights = dict[str, NDArray[Any]]
Median = Callable[[Callable[[], Any], int], float]  # the ms of a call that waits, of this number of samples


@dataclass(frozen=True)
class Task:
    """What to time: a model with GPT-2's names of weights, and how many tokens to decode after a prompt."""

    weights: Callable[[], Weights]  # called in the peer's process
    heads: int
    dtype: str  # "float32" or "float16"
    prompt: list[int]
    decoded: int
    samples: int

    @property
    def capacity(self) -> int:
        """The number of tokens that the cache has room for."""
        return len(self.prompt) + self.decoded

    @property
    def known(self) -> int:
        """The number of tokens of the prompt before those that are decoded to check the logits."""
        return max(len(self.prompt) - FED, 1)


@dataclass(frozen=True)
class Timed:
    """The ms of a prompt or of a token in one kind of run, and the logits (vocabulary,) that it finds after the prompt.

    `kind` is "prefill", "token", or "captured_token".
    """

    kind: str
    ms: float
    logits: NDArray[np.float32]


def in_onnx(task: Task, median: Median) -> Iterator[Timed]:
    """Yield the times of each kind of run; print why others are missing, if so."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, task, median), daemon=True)
    process.start()
    theirs.close()
    try:
        while ours.poll(TIMEOUT):
            found = ours.recv()
            if not isinstance(found, Timed):
                why = found
                break
            yield found
        else:
            why = f"it took over {TIMEOUT:.0f} s"
    except (EOFError, OSError):
        why = "its process ended"
    finally:
        process.kill()
        process.join()
    if why:
        print(f"ONNX Runtime is not timed any further: {why}", flush=True)


def _serve(connection: Connection, task: Task, median: Median) -> None:
    """Send a Timed for each kind of run, then why another is missing, or an empty text."""
    kind, length = "prefill", len(task.prompt)
    try:
        weights = task.weights()
        session = _session(weights, task, captured=False)  # first: it says if there is no adapter, a buffer would crash
        buffers = _buffers(weights, task)
        plain = Decoder(session, task, buffers)
        logits, ms = plain.prefill(length), median(partial(plain.prefill, length), task.samples)
        connection.send(Timed(kind, ms, logits))
        first = int(logits.argmax())
        for kind, captured in (("token", False), ("captured_token", True)):
            decoder = Decoder(_session(weights, task, True), task, buffers, True) if captured else plain
            plain.prefill(task.known)
            logits = decoder.feed(task.known, task.prompt[task.known :])
            ms = median(partial(decoder.decode, length, first, task.decoded), task.samples) / task.decoded
            connection.send(Timed(kind, ms, logits))
        connection.send("")
    except Exception as error:  # any error: of a missing package, an operator that is refused, a driver
        connection.send(" ".join(f"{kind}: {type(error).__name__}: {error}".split())[:400])


def _session(weights: Weights, task: Task, captured: bool) -> Any:
    import onnxruntime
    from onnx_gpt2 import serialised

    model = serialised(weights, task.heads, task.dtype, task.capacity, counted=captured)
    return onnxruntime.InferenceSession(model, options(captured, optimised=True))


def _buffers(weights: Weights, task: Task) -> dict[str, Any]:
    """Return what stays on the device between runs, by the names of the graph's inputs, and `logits`."""
    from onnx_gpt2 import layers

    vocabulary, width = weights["wte.weight"].shape
    cached = np.zeros((1, task.heads, task.capacity, width // task.heads), task.dtype)
    host = {f"{kind}.{i}": cached for i in range(layers(weights)) for kind in ("key", "value")} | {
        "tokens": np.zeros((1, 1), np.int32),
        "room": np.ones(1, np.int32),
        "logits": np.zeros((1, 1, vocabulary), np.float32),
    }
    return {name: on_device(x) for name, x in host.items()}


class Decoder:
    """Runs of a session whose buffers are on the device: an output `next_x` takes the place of the input `x`."""

    def __init__(self, session: Any, task: Task, buffers: dict[str, Any], captured: bool = False) -> None:
        self._session, self._task, self._buffers, self._captured = session, task, buffers, captured
        self._binding = session.io_binding()
        for name in (each.name for each in session.get_inputs()):
            if name in buffers:
                self._binding.bind_ortvalue_input(name, buffers[name])
        for name in (each.name for each in session.get_outputs()):
            self._binding.bind_ortvalue_output(name, buffers[name.removeprefix("next_")])
        if captured:
            session.run_with_iobinding(self._binding)  # counts twice, to 0 room: it captures a run and replays it
            return
        self._steps = {i: self._inputs(i, i + 1, buffers["tokens"]) for i in range(task.known, task.capacity)}
        self._prompts = {
            n: self._inputs(0, n, on_device(np.array([task.prompt[:n]], np.int32)))
            for n in (task.known, len(task.prompt))
        }

    @staticmethod
    def _inputs(first: int, end: int, tokens: Any) -> dict[str, Any]:
        import onnxruntime

        total = np.array([end], np.int32)
        return {
            "tokens": tokens,
            "positions": on_device(np.arange(first, end, dtype=np.int32)[None]),
            "last": on_device(total - 1),
            "total": onnxruntime.OrtValue.ortvalue_from_numpy(total),  # the provider reads it on the host
        }

    def prefill(self, count: int) -> NDArray[np.float32]:
        """Return the logits (vocabulary,) after the first `count` tokens of the prompt."""
        self._run(self._prompts[count])
        return self._logits()

    def feed(self, length: int, tokens: list[int]) -> NDArray[np.float32]:
        """Return the logits (vocabulary,) after `tokens`, one after another, which follow `length` others."""
        for i, token in enumerate(tokens):
            self.decode(length + i, token, 1)
        return self._logits()

    def decode(self, length: int, token: int, count: int) -> int:
        """Return the last of `count` tokens after `token`, each chosen and fed back on the device.

        `token` comes after `length` others.
        """
        self._buffers["tokens"].update_inplace(np.array([[token]], np.int32))
        if self._captured:
            self._buffers["room"].update_inplace(np.array([self._task.capacity - length - 1], np.int32))
        for i in range(length, length + count):
            self._run({} if self._captured else self._steps[i])
        return int(self._buffers["tokens"].numpy()[0, 0])

    def _run(self, inputs: dict[str, Any]) -> None:
        for name, value in inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self._session.run_with_iobinding(self._binding)

    def _logits(self) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._buffers["logits"].numpy()[0, 0].copy()
        return logits
