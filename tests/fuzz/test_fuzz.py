"""Random problems and sequences, always the same ones; `make fuzz` tries other seeds. Planted faults are found."""

import time

import kills
import numpy as np
import pytest
import sequences
from draw import GROUP, Draw
from fuzz import check, check_sequence, in_threads, kind_of, opened
from live import STEPS
from sequences import Sequence, without_leaks
from table import DEVICES, OPS

import webmm
from webmm import Array, hooks
from webmm.errors import ProblemError

COUNT, EACH = 90, 6  # problems in total, and per group (of similar shaders)
FEW = ("matmul", "matmul", "gemm", "new", "view", "drop", "read")  # kinds of steps with few shaders
SEEDS = [seed for seed in range(COUNT // EACH * GROUP) if seed % GROUP < EACH]
# Of sequences: float32 with the device's limits, and float16 with all epilogues and small bindings; some 360 steps.
SEQUENCES = (*range(1660, 1666), *range(2380, 2386))


@pytest.fixture(scope="module", autouse=True)
def devices():
    yield
    for name in DEVICES:
        opened(name).close()
    opened.cache_clear()


@pytest.mark.parametrize("op", OPS)
def test_random_problems(op):
    failed = [words for seed in SEEDS if kind_of(seed) == op and (words := check(seed))]
    assert not failed, "\n".join(failed)


def test_random_sequences():
    failed = [words for seed in SEQUENCES if (words := check_sequence(seed))]
    assert not failed, "\n".join(failed)


def seeds_of(kind):
    """Return seeds of similar problems of this op."""
    return [seed for seed in SEEDS if kind_of(seed) == kind][:EACH]


def one_wrong(result):
    host = np.array(result if isinstance(result, np.ndarray | np.generic) else result.numpy())
    if host.size:
        at = host.size // 2
        host.flat[at] = not host.flat[at] if host.dtype == bool else -host.flat[at] + 3
    return host


@pytest.mark.parametrize("op", OPS)
def test_one_wrong_element_is_found(op, monkeypatch):
    right = getattr(webmm, op)
    monkeypatch.setattr(webmm, op, lambda *args, **kwargs: one_wrong(right(*args, **kwargs)))
    found = [check(seed) for seed in seeds_of(op)[:3]]
    assert any("1 of" in words and "wrong, first at" in words for words in found), found


def test_a_stray_write_is_found(monkeypatch):
    right = webmm.gemm

    def stray(a, b, c, **factors):
        result = right(a, b, c, **factors)
        storage = c.storage
        everything = np.frombuffer(c.device.wrap(storage.buffer, (storage.nbytes,), "uint8").numpy(), np.uint8).copy()
        everything[-1] ^= 1  # poison after c
        c.device.wgpu_device.queue.write_buffer(storage.buffer, storage.nbytes // 4 * 4 - 4, everything[-4:])
        return result

    monkeypatch.setattr(webmm, "gemm", stray)
    found = [check(seed) for seed in seeds_of("gemm")[:3]]
    assert all("around c changed" in words for words in found), found


def test_a_seed_determines_the_problem(monkeypatch):
    seen = []
    monkeypatch.setattr(webmm, "gelu", lambda x, *args, **kwargs: seen.append(np.array(x)) or 1 / 0)
    words = [check(seed) for seed in seeds_of("gelu")[:2] * 2]
    assert words[:2] == words[2:]
    assert all("ZeroDivisionError" in each for each in words)
    assert np.array_equal(seen[0], seen[2])
    assert seen[0].shape != seen[1].shape or not np.array_equal(seen[0], seen[1])


def with_reused_buffers(matmul):
    """Write results into the buffer of an earlier result of the same shape, although it may be in use."""
    earlier = {}

    def call(*args, **settings):
        result = matmul(*args, **settings)
        if not isinstance(result, Array):
            return result
        place = earlier.setdefault(result.shape, result)
        if place is not result and place._storage.alive:
            place.device.assign(place, result)
            return Array(place.storage, result.shape, result.element)
        earlier[result.shape] = result
        return result

    return call


def with_earlier_strides(matmul):
    """Read `a` with the strides of the first operand of its shape."""
    earlier = {}

    def call(a, b, **settings):
        if isinstance(a, Array):
            strides = earlier.setdefault(a.shape, a.strides)
            reach = a.offset + sum((n - 1) * stride for n, stride in zip(a.shape, strides, strict=True))
            if reach < a.capacity:
                a = Array(a.storage, a.shape, a.element, strides, a.offset)
        return matmul(a, b, **settings)

    return call


def with_delayed_products(gemm):
    """Start a product only when the next one is called."""
    waiting = []

    def call(a, b, c, **factors):
        if waiting:
            args, kwargs = waiting.pop()
            if all(x._storage.alive for x in args):
                gemm(*args, **kwargs)
        waiting.append(((a, b, c), factors))
        return c

    return call


@pytest.mark.parametrize(
    ("op", "fault"),
    [("matmul", with_reused_buffers), ("matmul", with_earlier_strides), ("gemm", with_delayed_products)],
)
def test_interference_between_calls_is_found(op, fault, monkeypatch):
    monkeypatch.setattr(webmm, op, fault(getattr(webmm, op)))
    monkeypatch.setattr(sequences, "KINDS", FEW)
    assert any("wrong, first at" in check_sequence(seed) for seed in SEQUENCES[:EACH])


def test_zeros_that_are_not_zero_are_found(monkeypatch):
    zeros = webmm.Device.zeros

    def dirty(device, shape, dtype="float32"):
        made = zeros(device, shape, dtype)
        if made.size:
            device.upload(np.full(shape, 5.0), made)
        return made

    monkeypatch.setattr(webmm.Device, "zeros", dirty)
    assert "(5.0), not 0.0" in of_step("zeros", 1)


def of_step(name, times=8):
    """Return what is found wrong by steps of this kind, performed on an empty sequence."""
    s = Sequence(Draw(0, opened("plain")))
    s.dtype = "float32"
    try:
        with without_leaks(s.device):
            for i in range(times):
                s.draw.begin(i, (name,))
                STEPS[name](s)
            while s.live:
                s.check(s.live.pop())
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("call", ["elementwise", "einsum", "take", "concatenate", "astype", "where"])
def test_one_wrong_element_of_a_step_is_found(call, monkeypatch):
    right = getattr(webmm, call)

    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)
        device = result.device if isinstance(result, Array) else None
        return device.array(one_wrong(result)) if device else one_wrong(result)

    monkeypatch.setattr(webmm, call, wrong)
    assert "1 of" in of_step(call)


def with_late_refusals(matmul):
    """Refuse an `out` that is an operand after it was overwritten."""

    def call(a, b, out=None, **settings):
        if out is None or not any(isinstance(x, Array) and x.storage is out.storage for x in (a, b)):
            return matmul(a, b, out=out, **settings)
        out.device.upload(
            np.full(out.storage.nbytes // 4, 5, np.float32), Array(out.storage, (out.capacity,), out.element)
        )
        raise ProblemError("out is an operand")

    return call


def with_stale_host_operands(matmul):
    """Read a host operand when it is first used."""
    earlier = {}
    return lambda a, b, **settings: matmul(
        a, earlier.setdefault(id(b), np.array(b)) if isinstance(b, np.ndarray) else b, **settings
    )


def with_float32(matmul):
    """Compute products of float64 in float32."""
    cast = lambda x: np.asarray(x).astype(np.float32)  # noqa: E731
    return lambda a, b, **settings: np.float64(matmul(cast(a), cast(b), **settings))


@pytest.mark.parametrize(
    ("step", "fault"),
    [("out_of_matmul", with_late_refusals), ("host_operands", with_stale_host_operands), ("float64", with_float32)],
)
def test_a_faulty_product_is_found(step, fault, monkeypatch):
    monkeypatch.setattr(webmm, "matmul", fault(webmm.matmul))
    assert "wrong, first at" in of_step(step, 30)


def test_results_for_an_equal_number_are_found(monkeypatch):
    right, earlier = webmm.elementwise, {}

    def call(text, **operands):
        same = {
            name: x if isinstance(x, Array | np.ndarray) else earlier.setdefault(x, x) for name, x in operands.items()
        }
        return right(text, **same)

    monkeypatch.setattr(hooks.above, "elementwise", call)
    assert "wrong, first at" in of_step("numbers", 40)


def test_a_leak_is_found(monkeypatch):
    right, held = Array.__matmul__, []
    monkeypatch.setattr(Array, "__matmul__", lambda a, b: held.append(right(a, b)) or held[-1])
    assert "bytes of arrays are left" in of_step("many_products", 2)


def test_interference_between_threads_is_found(monkeypatch):
    right, last = webmm.Device.array, {}

    def array(device, data, *dtype):
        shape = np.shape(data)
        last[shape] = data  # one place for all threads
        time.sleep(0.005)
        return right(device, last[shape], *dtype)

    monkeypatch.setattr(webmm.Device, "array", array)
    monkeypatch.setattr(sequences, "KINDS", FEW)
    seeds = [seed for seed in range(1660, 1740) if in_threads(seed)]
    assert any("wrong, first at" in check_sequence(seed) for seed in seeds)  # mostly the first; threads run at will


class Pretended:
    """A process that ends at once with success, after it wrote an output."""

    def __init__(self, program, fault):
        self.exitcode, path = 0, program.folder / program.c
        operands = [np.load(program.folder / name) for name in program.operands]
        right = kills.EXACT[program.op](operands[0], program.axis) if program.op else operands[0] @ operands[1]
        if fault == "kills":
            self.exitcode = -kills.signal.SIGKILL
        with path.open("wb") as file:
            np.save(file, right + right.dtype.type(fault in ("wrong", "kills")))
        if fault == "operand":
            np.save(program.folder / program.operands[0], operands[0] + 1)
        if fault == "rest":
            path.with_name(path.name + ".part").write_bytes(b"left")

    def join(self, seconds):
        pass

    kill = join


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", ""),
        ("wrong", "neither as before nor right"),
        ("kills", "neither as before nor right"),
        ("operand", "a.npy changed"),
        ("rest", "left after a run that succeeded"),
    ],
)
def test_faults_of_products_in_files_are_found(fault, words, monkeypatch):
    monkeypatch.setattr(kills, "start", lambda program: Pretended(program, fault))
    monkeypatch.setattr(kills, "BEFORE", (kills.nothing,))
    monkeypatch.setattr(kills, "BETWEEN", (kills.nothing,))
    monkeypatch.setattr(kills, "FORMATS", (".npy",))
    found, _ = kills.check(0)
    assert words in found
    assert bool(words) == bool(found)
