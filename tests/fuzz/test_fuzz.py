"""Random problems of every op, always the same ones; `make fuzz` tries other seeds. Planted faults are found."""

import numpy as np
import pytest
from draw import GROUP
from fuzz import KINDS, check, kind_of, opened
from table import DEVICES, OPS

import webmm
from webmm import Array

COUNT, EACH = 500, 10  # problems in total, and per group (of similar shaders)
SEEDS = [group * GROUP + i for group in range(COUNT // EACH) for i in range(EACH)]


@pytest.fixture(scope="module", autouse=True)
def devices():
    yield
    for name in DEVICES:
        opened(name).close()
    opened.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_random_problems(kind):
    failed = [words for seed in SEEDS if kind_of(seed) == kind and (words := check(seed))]
    assert not failed, "\n".join(failed)


def seeds_of(kind):
    """Return seeds of problems of this kind: an op, or "sequence"."""
    return [seed for seed in SEEDS if kind_of(seed) == kind][:EACH]


def one_wrong(result):
    host = np.array(result if isinstance(result, np.ndarray | np.generic) else result.numpy())
    if host.size:
        host.flat[host.size // 2] = -host.flat[host.size // 2] + 3
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
    found = [check(seed) for seed in seeds_of("sequence")]
    assert any("wrong, first at" in words for words in found), found
    assert all("AssertionError" in words for words in found if words), found


def test_zeros_that_are_not_zero_are_found(monkeypatch):
    zeros = webmm.Device.zeros

    def dirty(device, shape, dtype="float32"):
        made = zeros(device, shape, dtype)
        if made.size:
            device.upload(np.full(shape, 5.0), made)
        return made

    monkeypatch.setattr(webmm.Device, "zeros", dirty)
    assert any("(5.0), not 0.0" in check(seed) for seed in seeds_of("sequence"))
