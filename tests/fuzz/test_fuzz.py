"""Random problems of every op, always the same ones here: `make fuzz` draws as many others as there is time for."""

import numpy as np
import pytest
from draw import GROUP
from fuzz import check, opened
from table import DEVICES, OPS

import webmm

COUNT, EACH = 500, 10  # problems, and of one group, whose shaders are alike
SEEDS = [group * GROUP + i for group in range(COUNT // EACH) for i in range(EACH)]


@pytest.fixture(scope="module", autouse=True)
def devices():
    yield
    for name in DEVICES:
        opened(name).close()
    opened.cache_clear()


@pytest.mark.parametrize("op", range(len(OPS)), ids=list(OPS))
def test_random_problems(op):
    failed = [words for seed in SEEDS if seed // GROUP % len(OPS) == op and (words := check(seed))]
    assert not failed, "\n".join(failed)


def of(op):
    """Return seeds of problems of an op."""
    return [seed for seed in SEEDS if seed // GROUP % len(OPS) == list(OPS).index(op)][:EACH]


def one_wrong(result):
    host = np.array(result if isinstance(result, np.ndarray | np.generic) else result.numpy())
    if host.size:
        host.flat[host.size // 2] = -host.flat[host.size // 2] + 3
    return host


@pytest.mark.parametrize("op", OPS)
def test_one_wrong_element_is_found(op, monkeypatch):
    right = getattr(webmm, op)
    monkeypatch.setattr(webmm, op, lambda *args, **kwargs: one_wrong(right(*args, **kwargs)))
    found = [check(seed) for seed in of(op)[:3]]
    assert any("1 of" in words and "wrong, first at" in words for words in found), found


def test_a_stray_write_is_found(monkeypatch):
    right = webmm.gemm

    def stray(a, b, c, **factors):
        result = right(a, b, c, **factors)
        storage = c.storage
        everything = np.frombuffer(c.device.wrap(storage.buffer, (storage.nbytes,), "uint8").numpy(), np.uint8).copy()
        everything[-1] ^= 1  # of the poison behind c
        c.device.wgpu_device.queue.write_buffer(storage.buffer, storage.nbytes // 4 * 4 - 4, everything[-4:])
        return result

    monkeypatch.setattr(webmm, "gemm", stray)
    found = [check(seed) for seed in of("gemm")[:3]]
    assert all("around c changed" in words for words in found), found


def test_the_same_seed_is_the_same_problem(monkeypatch):
    seen = []
    monkeypatch.setattr(webmm, "gelu", lambda x, *args, **kwargs: seen.append(np.array(x)) or 1 / 0)
    words = [check(seed) for seed in of("gelu")[:2] * 2]
    assert words[:2] == words[2:]
    assert all("ZeroDivisionError" in each for each in words)
    assert np.array_equal(seen[0], seen[2])
    assert seen[0].shape != seen[1].shape or not np.array_equal(seen[0], seen[1])
