"""The pool reuses buffers, never while their contents are needed, and bounds the memory of idle ones."""

import gc
import threading

import numpy as np
import pytest

import webmm
from webmm import Device
from webmm.engine.pool import TURNS
from webmm.errors import MemoryLimitError, UnsupportedError

RNG = np.random.default_rng(3)
A, B = (RNG.integers(-3, 4, (40, 40)).astype(np.float32) for _ in range(2))


@pytest.fixture
def gpu():
    with Device() as device:
        yield device


def uid(array):
    return array.storage.block.uid


def test_freed_buffers_are_reused_in_rotation(gpu):
    arrays = [gpu.empty((1000,)) for _ in range(TURNS)]
    first = [uid(array) for array in arrays]
    assert len(set(first)) == TURNS
    arrays[0].free()
    assert uid(gpu.empty((1000,))) not in first, "too few are idle: consecutive results must not wait for each other"
    del arrays
    gc.collect()
    assert uid(gpu.empty((1000,))) in first
    assert gpu.memory_stats().pool_bytes


def test_a_buffer_in_use_is_not_reused(gpu):
    views = [gpu.empty((8, 4))[2:, 1] for _ in range(20)]  # only a view of each array is left
    gc.collect()
    assert len({uid(view) for view in [*views, *(gpu.empty((8, 4)) for _ in range(20))]}) >= 20
    kept = {uid(view) for view in views}
    assert not kept & {uid(gpu.empty((8, 4))) for _ in range(50)}


def test_zeros_are_zero_in_reused_buffers(gpu):
    for _ in range(3 * TURNS):
        gpu.array(np.full(500, np.nan, np.float32)).free()
    assert not gpu.zeros((500,)).numpy().any()
    # so is a product over no elements
    assert not webmm.matmul(gpu.empty((20, 0)), gpu.empty((0, 25))).numpy().any()


def test_a_result_may_be_dropped_while_its_product_is_queued(gpu):
    a, b = gpu.array(A), gpu.array(B)
    for _ in range(10):
        x = a @ b
        y = x @ b
        del x  # its buffer is idle before y is computed
        others = [gpu.array(np.full((40, 40), i, np.float32)) for i in range(2 * TURNS)]
        assert np.array_equal(y.numpy(), A @ B @ B)
        assert [int(other.numpy()[0, 0]) for other in others] == list(range(2 * TURNS))
        del others


def test_an_operand_freed_while_queued_is_read_first(gpu):
    b = gpu.array(B)
    for i in range(10):
        a = gpu.array(A * i)
        results = [a @ b for _ in range(3)]
        a.free()
        filled = [gpu.array(np.full((40, 40), np.nan, np.float32)) for _ in range(2 * TURNS)]
        assert all(np.array_equal(c.numpy(), A @ B * i) for c in results)
        del filled


def test_a_buffer_in_a_garbage_cycle_is_reused(gpu):
    gc.collect()
    gc.freeze()  # hundreds of collections need not visit what earlier tests have left
    for _ in range(2 * TURNS):
        cycle = [gpu.empty((100,))]
        cycle.append(cycle)
        del cycle
        gc.collect()  # finalises all objects of the cycle
    gc.unfreeze()
    for value in range(2 * TURNS):
        assert gpu.array(np.full(100, value, np.float32)).numpy()[50] == value


def test_results_may_be_dropped_in_any_order(gpu):
    a, b = gpu.array(A), gpu.array(B)
    order = np.random.default_rng(5)
    held = []
    for step in range(400):
        held.append((step % 7, webmm.matmul(a, b, alpha=float(step % 7))))
        while len(held) > order.integers(1, 12):
            factor, c = held.pop(order.integers(len(held)))
            assert step % 5 or np.array_equal(c.numpy(), A @ B * factor)
            del c


def test_threads_share_the_pool(gpu):
    a, b = gpu.array(A), gpu.array(B)
    failures = []

    def work(factor):
        try:
            for _ in range(60):
                c = webmm.matmul(a, b, alpha=factor)
                d = webmm.gelu(c)
                del d
                assert np.array_equal(c.numpy(), A @ B * factor)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[0]


def test_the_pool_is_bounded(gpu):
    gpu.pool.limit = 3 * 2**20
    for size in (2**18, 2**18 + 2**17, 2**19):  # elements: 1, 1.5 and 2 MiB
        gpu.empty((size,)).free()
    stats = gpu.memory_stats()
    assert stats.pool_bytes <= stats.pool_limit == 3 * 2**20
    assert uid(gpu.empty((2**19,))) >= 0
    gpu.empty((2**22,))  # its destructor checks the pool's limit, since the buffer is large
    gc.collect()
    assert gpu.memory_stats().pool_bytes <= 3 * 2**20
    gpu.trim()
    assert gpu.memory_stats().pool_bytes == 0


def test_idle_buffers_are_released_when_memory_runs_out(gpu, monkeypatch):
    gpu.empty((2**18,)).free()
    make, refused = gpu.pool._make, []

    def short(size):
        if not refused:
            refused.append(size)
            raise MemoryLimitError("full")
        return make(size)

    monkeypatch.setattr(gpu.pool, "_make", short)
    with gpu.empty((2**19,)) as x:
        assert refused
        assert x.size == 2**19
        assert gpu.memory_stats().pool_bytes == 0
    refused.clear()
    gpu.trim()
    with pytest.raises(MemoryLimitError):
        gpu.empty((2**19,))


def test_sizes_are_rounded_up_within_the_limits(gpu):
    assert [gpu.pool.size(n) for n in (0, 1, 17, 4096)] == [16, 16, 32, 4096]
    assert gpu.pool.size(2**20 + 1) == 2**20 + 2**17
    most = gpu.capabilities.limit("max-storage-buffer-binding-size")
    assert gpu.pool.size(most - 100) <= most
    with pytest.raises(UnsupportedError, match="max-buffer-size"):
        gpu.empty((gpu.capabilities.limit("max-buffer-size") // 4 + 8,))


def test_a_wrapped_buffer_is_not_pooled(gpu):
    usage = gpu.engine.api.BufferUsage
    buffer = gpu.wgpu_device.create_buffer(size=64, usage=usage.STORAGE | usage.COPY_SRC)
    for _ in range(2 * TURNS):
        gpu.wrap(buffer, (16,)).free()
    assert all(gpu.empty((16,)).storage.buffer is not buffer for _ in range(3 * TURNS))
