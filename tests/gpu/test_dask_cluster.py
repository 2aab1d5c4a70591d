"""Products of arrays and files by two workers, which share one adapter as if it were two GPUs; killed workers."""

import os
import signal
import subprocess
import sys
import time

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from filelock import FileLock

import webmm.dask
from webmm.dask import workers
from webmm.engine.device import default_device
from webmm.errors import ProblemError
from webmm.measure.verify import bound, worst_error
from webmm.problems.gemm import gemm

RNG = np.random.default_rng(9)
SECONDS = 60  # timeout


@pytest.fixture(scope="module")
def client():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBMM_SELFTEST", "off")
        patch.setenv("WEBMM_ADAPTER", "cpu")
        with webmm.dask.cluster(workers=2) as cluster, Client(cluster) as client:
            client.wait_for_workers(2, timeout=SECONDS)
            client.run(use_naive)
            yield client


def use_naive():
    """Make workers compute small products with the kernel that compiles fastest."""
    from webmm import choose
    from webmm.kernels.gemm.naive import Naive
    from webmm.problems.gemm import Gemm

    chosen = choose.choose
    small = lambda p: isinstance(p, Gemm) and p.flops < 10**7  # noqa: E731
    choose.choose = lambda p, *rest, **more: Naive() if small(p) else chosen(p, *rest, **more)


def whole(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


def pids(client):
    return client.run(os.getpid)


def resources(dask_scheduler):
    return [worker.resources for worker in dask_scheduler.workers.values()]


def test_each_worker_has_an_adapter_and_the_resource(client):
    # Asked of the scheduler itself: a client's scheduler_info() may be from before the workers came.
    assert client.run_on_scheduler(resources) == [{"webmm": 1}] * 2
    assert set(client.run(lambda: os.environ["WEBMM_ADAPTER"]).values()) == {"0"}
    assert workers.count() == 2
    assert len(set(pids(client).values()) | {os.getpid()}) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_odd_chunks_bias_and_activation(client, dtype):
    a, b, bias = whole(131, 77, dtype=dtype), whole(77, 65, dtype=dtype), whole(65, dtype=dtype)
    x, y = da.from_array(a, chunks=((1, 100, 30), (33, 44))), da.from_array(b, chunks=((70, 7), 13))
    for tile in ((50, 40, 77), (70, 70, 30)):
        c = webmm.dask.matmul(x, y, bias=bias, activation="relu", tile=tile, memory=2**14)
        np.testing.assert_array_equal(c.compute(), np.maximum(a.astype(np.float64) @ b + bias, 0))


def test_a_killed_worker_does_not_change_the_result(client, tmp_path):
    """Its tiles are computed by the other worker or by its replacement."""
    a, b = whole(240, 60), whole(60, 200)

    def slowly(block):
        time.sleep(0.3)
        return block

    x = da.from_array(a, chunks=(20, 60)).map_blocks(slowly, dtype=a.dtype)
    future = client.compute(webmm.dask.matmul(x, da.from_array(b, chunks=60), tile=(20, 200, 60)))
    before = pids(client)
    deadline = time.monotonic() + SECONDS
    while sum(map(len, client.has_what().values())) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not future.done(), "the product finished before a worker could be killed"
    os.kill(next(iter(before.values())), signal.SIGKILL)
    np.testing.assert_array_equal(future.result(timeout=SECONDS), a @ b)
    client.wait_for_workers(2, timeout=SECONDS)
    assert set(pids(client).values()) != set(before.values())


def slow_down_files():
    """Delay each tile of a product of files."""
    from webmm.dask import ops

    multiply = ops.matmul
    ops.matmul = lambda *args, **more: (time.sleep(0.2), multiply(*args, **more))[1]


def test_a_worker_killed_while_writing_files_does_not_change_the_result(client, tmp_path):
    """Its current and remaining tiles are computed by the other worker or by its replacement."""
    a, b, calls = whole(240, 60), whole(60, 200), []
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    client.wait_for_workers(2, timeout=SECONDS)
    client.run(slow_down_files)
    before = set(pids(client).values())
    victim = min(before)

    def progress(done, total):
        calls.append((done, total))
        if done == 3:
            os.kill(victim, signal.SIGKILL)

    paths = (tmp_path / f"{name}.npy" for name in "abc")
    c = webmm.dask.multiply_files(*paths, client=client, tile=(40, 50), progress=progress)
    np.testing.assert_array_equal(np.load(c), a @ b)
    assert calls == [(i, 24) for i in range(1, 25)]
    client.wait_for_workers(2, timeout=SECONDS)
    after = set(pids(client).values())
    assert victim not in after
    assert len(after & before) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b.npy", "c.npy"]


MEBI = 2**20


def record_memory():
    """Record the largest number of bytes that arrays of a worker's device hold at a time."""
    device = default_device()
    device.trim()
    pool = device.pool
    make, pool.most = pool._make, 0

    def recording(size):
        pool.most = max(pool.most, pool.lent_bytes + size)
        return make(size)

    pool._make = recording


def recorded_memory():
    """Return the bytes that `record_memory()` recorded."""
    return default_device().pool.most


def random_file(path, shape, seed):
    """Return a memory map of a new file of random numbers, written in pieces."""
    found, rng = np.lib.format.open_memmap(path, "w+", np.float32, shape), np.random.default_rng(seed)
    for rows in np.array_split(np.arange(shape[0]), 16):
        found[rows[0] : rows[-1] + 1] = rng.random((len(rows), shape[1]), np.float32) - np.float32(0.5)
    found.flush()
    return found


@pytest.mark.parametrize(
    ("shape", "tile", "mebi"),
    [
        pytest.param((192, 192, 209_000), (96, 192), 32, id="long k", marks=pytest.mark.long),
        pytest.param((9_000, 8_800, 64), (2_250, 2_200), 32, id="large C", marks=pytest.mark.long),
        pytest.param((4_500, 4_400, 32), (1_125, 1_100), 8, id="smaller C"),
    ],
)
def test_operands_ten_times_as_large_as_the_workers_memory(client, tmp_path, shape, tile, mebi):
    m, n, k = shape
    a, b = random_file(tmp_path / "a.npy", (m, k), 1), random_file(tmp_path / "b.npy", (k, n), 2)
    assert a.nbytes + b.nbytes + 4 * m * n >= 9.5 * mebi * MEBI
    assert 2 * m * n * k <= 100e9
    paths = [tmp_path / f"{name}.npy" for name in "abc"]
    client.wait_for_workers(2, timeout=SECONDS)
    client.run(record_memory)
    webmm.dask.multiply_files(*paths, client=client, tile=tile, memory=mebi * MEBI)
    assert all(0 < most <= mebi * MEBI for most in client.run(recorded_memory).values())
    c = np.load(paths[2], mmap_mode="r")
    rows, columns = (np.unique(np.linspace(0, length - 1, 24).astype(int)) for length in (m, n))
    errors = worst_error(c[rows], a[rows], b), worst_error(c[:, columns], a, b[:, columns])
    assert max(errors) <= bound(gemm(m, n, k))


def test_products_of_files_in_little_memory(client, tmp_path):
    shapes = {"a": (300, 410), "b": (410, 251)}
    for name, shape in shapes.items():
        np.save(tmp_path / f"{name}.npy", whole(*shape))
    calls, (a, b, c) = [], (tmp_path / f"{name}.npy" for name in "abc")
    size = sum(m * n * 4 for m, n in (*shapes.values(), (300, 251)))
    room = 2**16
    assert size > 15 * room
    more = {"client": client, "tile": (160, 130), "memory": room, "progress": lambda *step: calls.append(step)}
    webmm.dask.multiply_files(a, b, c, **more)
    np.testing.assert_array_equal(np.load(c), np.load(a).astype(np.float64) @ np.load(b))
    assert calls == [(i, 4) for i in range(1, 5)]


@pytest.fixture
def plain_cluster():
    """A cluster whose workers have no adapters assigned."""
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client


def test_a_cluster_without_adapters_is_refused(plain_cluster):
    x = da.ones((4, 4), dtype=np.float32)
    with pytest.raises(ProblemError, match=r"none of the cluster's 1 workers has a device .*webmm\.dask\.cluster"):
        webmm.dask.matmul(x, x)


def test_the_plugin_gives_each_worker_of_any_cluster_an_adapter(plain_cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(workers.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("WEBMM_ADAPTER", "cpu")
    plain_cluster.register_plugin(webmm.dask.Adapters())
    assert workers.count() == 1
    assert os.environ["WEBMM_ADAPTER"] == "0"
    with pytest.raises(TimeoutError):
        FileLock(next(tmp_path.glob("webmm-adapter-*")), timeout=0).acquire()
    second = webmm.dask.Adapters()
    second.name = "of another worker here"
    with pytest.raises(Exception, match=r"all 1 adapters of .* are in use by other workers; start fewer"):
        plain_cluster.register_plugin(second)


def test_the_command(tmp_path):
    a, b = whole(120, 50), whole(50, 70)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    command = [sys.executable, "-m", "webmm", "run", "a.npy", "b.npy", "-o", "c.npy", "--adapter", "cpu"]
    environment = {**os.environ, "WEBMM_SELFTEST": "off"}
    for more, words in (
        (["--workers", "2", "--memory", "1MB"], "by 2 workers in "),
        (["--workers", "1"], "exists; --force"),
    ):
        done = subprocess.run(
            command + more, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert words in done.stderr.splitlines()[-1]
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), a @ b)
