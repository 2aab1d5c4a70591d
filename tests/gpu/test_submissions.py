"""Calls share submissions; readers see every queued call, and errors are raised by the call they belong to."""

import contextlib
import gc
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest
import wgpu

import webmm
from webmm import Device
from webmm.engine.pool import TURNS
from webmm.engine.submissions import PER_SUBMISSION
from webmm.errors import ProblemError, WebmmError

RNG = np.random.default_rng(6)
A, B = (RNG.integers(-2, 3, (20, 20)).astype(np.float32) for _ in range(2))


@pytest.fixture
def gpu():
    with Device() as device:
        yield device


def stop_background_thread(gpu, monkeypatch):
    """Keep the background thread, which may be awake, from submitting anything."""
    monkeypatch.setattr(gpu.submissions, "_wake_thread", lambda: None)
    monkeypatch.setattr(gpu.submissions, "check", lambda: False)


def amid_calls(gpu, monkeypatch):
    """Queue calls as after many others, without a pause."""
    monkeypatch.setattr("webmm.engine.submissions.PAUSE", 1e9)
    gpu.submissions._most = PER_SUBMISSION


def hold_submissions(gpu, monkeypatch):
    """Queue every call instead of submitting it, as during a fast sequence of calls, and stop the submitting thread."""
    amid_calls(gpu, monkeypatch)
    monkeypatch.setattr("webmm.engine.submissions.BUSY", 1e9)
    stop_background_thread(gpu, monkeypatch)


def test_consecutive_calls_share_submissions(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    _ = a @ b
    hold_submissions(gpu, monkeypatch)
    gpu.synchronize()
    before = gpu.submissions.count
    results = [webmm.matmul(a, b, alpha=float(i)) for i in range(3 * PER_SUBMISSION)]
    assert gpu.submissions.count - before == 3
    assert all(np.array_equal(c.numpy(), i * (A @ B)) for i, c in enumerate(results))


def test_submissions_grow_as_long_as_calls_follow_one_another(gpu, monkeypatch):
    a = gpu.array(A)
    _ = a @ a
    monkeypatch.setattr("webmm.engine.submissions.BUSY", 1e9)
    stop_background_thread(gpu, monkeypatch)
    gpu.synchronize()
    for _ in range(2):
        monkeypatch.setattr("webmm.engine.submissions.PAUSE", 0.0)
        before = gpu.submissions.count
        _ = a @ a
        assert gpu.submissions.count == before + 1, "the first call after a pause waits"
        monkeypatch.setattr("webmm.engine.submissions.PAUSE", 1e9)
        for count in (2, 4, 8, PER_SUBMISSION, PER_SUBMISSION):
            before = gpu.submissions.count
            kept = [a @ a for _ in range(count)]
            assert gpu.submissions.count == before + 1
            assert not gpu.submissions.pending
    assert np.array_equal(kept[-1].numpy(), A @ A)


READERS = {
    "numpy": lambda gpu, c: c.numpy(),
    "a view": lambda gpu, c: c[:, 3:].numpy()[0, 0] and c.numpy(),
    "download": lambda gpu, c: gpu.download(c, np.empty((20, 20), np.float32)),
    "dlpack": lambda gpu, c: np.from_dlpack(c),
    "asarray": lambda gpu, c: np.asarray(c),
    "copied": lambda gpu, c: _assigned(gpu, c).numpy(),
    "synchronized": lambda gpu, c: gpu.synchronize() or _raw(gpu, c),
    "flushed": lambda gpu, c: gpu.flush() or _raw(gpu, c),
    "within using": lambda gpu, c: _in_using(gpu, c),
}


def _assigned(gpu, c):
    target = gpu.empty(c.shape)
    gpu.assign(target, c)
    return target


def _raw(gpu, c):
    assert not gpu.submissions.pending
    data = gpu.wgpu_device.queue.read_buffer(c.storage.buffer, 0, c.nbytes)
    return np.frombuffer(data, np.float32).reshape(c.shape)


def _in_using(gpu, c):
    with gpu.using("reading"):
        return _raw(gpu, c)


@pytest.mark.parametrize("reader", READERS)
def test_reading_submits_queued_calls_first(reader, gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    _ = a @ b
    hold_submissions(gpu, monkeypatch)
    for factor in (2.0, 3.0, 4.0):
        c = webmm.matmul(a, b, alpha=factor)
        assert gpu.submissions.pending
        assert np.array_equal(READERS[reader](gpu, c), factor * (A @ B))


def test_an_upload_comes_after_queued_calls(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    _ = a @ b
    hold_submissions(gpu, monkeypatch)
    c = a @ b
    gpu.upload(B, a)
    assert np.array_equal((a @ b).numpy(), B @ B)
    assert np.array_equal(c.numpy(), A @ B)


def test_the_first_call_after_a_pause_does_not_wait(gpu):
    a, b = gpu.array(A), gpu.array(B)
    for _ in range(2):
        _ = a @ b
    gpu.synchronize()
    time.sleep(0.01)
    _ = a @ b
    assert not gpu.submissions.pending


def count_submissions(gpu, monkeypatch):
    """Return a list to which each submission of the engine adds its number of dispatches and whether it copies."""
    submit, seen = gpu.engine.submit, []

    def counted(device, dispatches, copy=None):
        seen.append((len(dispatches), copy is not None))
        submit(device, dispatches, copy)

    monkeypatch.setattr(gpu.engine, "submit", counted)
    return seen


def test_a_read_is_submitted_with_the_launches_before_it(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    _ = (a @ b).numpy(), (a @ b) @ b
    hold_submissions(gpu, monkeypatch)
    gpu.synchronize()
    seen = count_submissions(gpu, monkeypatch)
    c = (a @ b) @ b
    assert np.array_equal(c.numpy(), A @ B @ B)
    assert np.array_equal(c.numpy(), A @ B @ B)
    assert seen == [(2, True), (0, True)]


def test_a_call_on_numpy_arrays_is_one_submission(gpu, monkeypatch):
    for _ in range(2):
        webmm.matmul(A, B, device=gpu)
        webmm.reduce(A, "sum", 1, device=gpu)
    stop_background_thread(gpu, monkeypatch)
    seen = count_submissions(gpu, monkeypatch)
    assert np.array_equal(webmm.matmul(A, B, device=gpu), A @ B)
    assert seen == [(1, True)]
    assert np.array_equal(webmm.reduce(A, "sum", 1, device=gpu), A.sum(1))
    assert seen == 2 * [(1, True)]


@pytest.mark.parametrize("fails", [False, True])
def test_products_of_numpy_arrays_leave_nothing_held(gpu, monkeypatch, fails):
    def refuse(*_):
        raise ProblemError("refused")

    a = gpu.array(A)
    with monkeypatch.context() as patch:
        if fails:  # while launches are held
            patch.setattr("webmm.calls.product._uploaded", refuse)
        with pytest.raises(ProblemError, match="refused") if fails else contextlib.nullcontext():
            webmm.matmul(A, B, device=gpu)
    gpu.synchronize()
    monkeypatch.setattr("webmm.engine.submissions.PAUSE", 0.0)
    before = gpu.submissions.count
    _ = a @ a
    assert gpu.submissions.count == before + 1


def test_launches_of_other_threads_are_not_held(gpu):
    a = gpu.array(A)
    c = a @ a
    time.sleep(0.1)  # until the background thread sleeps
    with gpu.submissions.held():
        c = a @ a
        start = time.perf_counter()
        while gpu.submissions.pending:
            assert time.perf_counter() - start < 5, "nobody submits the launch"
            time.sleep(0.001)
    assert np.array_equal(c.numpy(), A @ A)


def test_a_refused_product_of_numpy_arrays_raises_its_error(gpu, monkeypatch):
    assert np.array_equal(webmm.matmul(A, B, device=gpu), A @ B)
    launches = [p.launch for p in gpu.launches.kept.values()]
    refuse_pipelines(gpu, monkeypatch, [p for launch in launches for p, *_ in launch.dispatches])
    for _ in range(2):
        with pytest.raises(WebmmError, match="refused on purpose"):
            webmm.matmul(A, B, device=gpu)
    monkeypatch.undo()
    assert np.array_equal(webmm.matmul(A, B, device=gpu), A @ B)


def test_unread_results_are_submitted_after_a_while(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    _ = a @ b
    amid_calls(gpu, monkeypatch)
    for pause in (0.0, 0.1):  # also if the thread sleeps
        time.sleep(pause)
        _ = a @ b
        assert gpu.submissions.pending
        submitted_in_background(gpu)


def submitted_in_background(gpu):
    """Wait until nothing is pending."""
    until = time.perf_counter() + 5
    while gpu.submissions.pending and time.perf_counter() < until:
        time.sleep(0.001)
    assert not gpu.submissions.pending


def test_calls_on_a_shared_device_are_submitted_at_once():
    with Device() as gpu:
        shared = Device.from_wgpu(gpu.wgpu_device)
        a, b = shared.array(A), shared.array(B)
        for _ in range(3):
            before = shared.submissions.count
            c = a @ b
            assert shared.submissions.count == before + 1
            assert np.array_equal(_raw(shared, c), A @ B)
        shared.close()


def test_calls_on_a_wrapped_buffer_are_submitted_at_once(gpu):
    usage = gpu.engine.api.BufferUsage
    buffer = gpu.wgpu_device.create_buffer(size=1600, usage=usage.STORAGE | usage.COPY_SRC)
    a, c = gpu.array(A), gpu.wrap(buffer, (20, 20))
    for factor in (1.0, 2.0, 3.0):
        webmm.gemm(a, a, c, alpha=factor)
        assert np.array_equal(_raw(gpu, c), factor * (A @ A))


def refuse_pipelines(gpu, monkeypatch, pipelines):
    """Make the engine refuse submissions that contain a dispatch of one of `pipelines`."""
    submit = gpu.engine.submit

    def refuse(device, dispatches, copy=None):
        if any(pipeline in pipelines for pipeline, *_ in dispatches):
            raise wgpu.GPUValidationError("refused on purpose")
        submit(device, dispatches, copy)

    monkeypatch.setattr(gpu.engine, "submit", refuse)


def test_a_refused_call_affects_only_dependent_calls(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    good = a @ b
    gelu = webmm.gelu(a)
    pipeline = pipeline_of(gpu, gelu)
    hold_submissions(gpu, monkeypatch)
    refuse_pipelines(gpu, monkeypatch, [pipeline])
    first = a @ b
    bad = webmm.gelu(first)
    dependent = bad @ b
    later = first @ b
    gpu.synchronize()
    assert np.array_equal(first.numpy(), A @ B)
    assert np.array_equal(later.numpy(), A @ B @ B)
    assert np.array_equal(good.numpy(), A @ B)
    for result in (bad, dependent):
        for use in (lambda x: x.numpy(), lambda x: x @ b, webmm.gelu, lambda x: x[0].numpy()):
            with pytest.raises(WebmmError, match="refused on purpose"):
                use(result)
    del bad, dependent
    monkeypatch.undo()
    assert np.array_equal((a @ b).numpy(), A @ B)
    assert all(np.isfinite(webmm.gelu(a).numpy()).all() for _ in range(10)), "buffers must be usable again"


def test_the_background_thread_survives_a_refused_call(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    first, gelu = a @ b, webmm.gelu(a)
    amid_calls(gpu, monkeypatch)
    refuse_pipelines(gpu, monkeypatch, [pipeline_of(gpu, gelu)])
    bad = webmm.gelu(first)
    submitted_in_background(gpu)
    unread = first @ b
    submitted_in_background(gpu)
    with pytest.raises(WebmmError, match="refused on purpose"):
        bad.numpy()
    assert np.array_equal(unread.numpy(), A @ B @ B)


def pipeline_of(gpu, result):
    (key,) = result.storage.block.launches
    return gpu.launches.kept[key].launch.pipeline


def test_errors_are_raised_by_the_call_they_belong_to(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    _ = a @ b
    pipeline = pipeline_of(gpu, webmm.gelu(a))
    hold_submissions(gpu, monkeypatch)
    refuse_pipelines(gpu, monkeypatch, [pipeline])
    bad, flush = webmm.gelu(a), gpu.submissions.flush
    queued = gpu.submissions.pending.pop()

    def flush_after_another(*written):  # as if another thread had queued a call in the meantime
        gpu.submissions.pending.append(queued)
        flush(*written)

    monkeypatch.setattr(gpu.submissions, "shared", True)
    monkeypatch.setattr(gpu.submissions, "flush", flush_after_another)
    c = a @ b
    monkeypatch.setattr(gpu.submissions, "flush", flush)
    assert np.array_equal(c.numpy(), A @ B)
    with pytest.raises(WebmmError, match="refused on purpose"):
        bad.numpy()


def test_the_buffer_of_a_refused_result_can_be_reused(gpu, monkeypatch):
    a, b = gpu.array(A), gpu.array(B)
    pipeline = pipeline_of(gpu, webmm.gelu(a))
    for _ in range(2):
        _ = a @ b
    gpu.synchronize()
    with monkeypatch.context() as patch:
        hold_submissions(gpu, patch)
        refuse_pipelines(gpu, patch, [pipeline])
        for _ in range(2 * TURNS):
            webmm.gelu(a)
        gpu.synchronize()
    results = [a @ b for _ in range(4 * TURNS)]
    assert all(np.array_equal(c.numpy(), A @ B) for c in results)


def test_a_call_submitted_at_once_raises_its_error(gpu, monkeypatch):
    a = gpu.array(A)
    _ = webmm.gelu(a)
    gpu.submissions.shared = True
    launches = [p.launch for p in gpu.launches.kept.values()]
    refuse_pipelines(gpu, monkeypatch, [p for launch in launches for p, *_ in launch.dispatches])
    for _ in range(2):
        with pytest.raises(WebmmError, match="refused on purpose"):
            webmm.gelu(a)
    monkeypatch.undo()
    assert np.isfinite(webmm.gelu(a).numpy()).all()


def test_the_engine_itself_refuses_a_bad_dispatch(gpu):
    a, b = gpu.array(A), gpu.array(B)
    c = a @ b
    (key,) = c.storage.block.launches
    ((pipeline, group, _, offset),) = gpu.launches.kept[key].launch.dispatches
    with pytest.raises(wgpu.GPUError, match="65536"):
        gpu.engine.submit(gpu.wgpu_device, [(pipeline, group, grid, offset) for grid in ((1, 1, 1), (65536, 1, 1))])
    assert np.array_equal((a @ b).numpy(), A @ B)


def test_closing_with_queued_calls(monkeypatch):
    for _ in range(5):
        gpu = Device()
        hold_submissions(gpu, monkeypatch)
        a = gpu.array(A)
        for _ in range(3):
            _ = a @ a
        gpu.close()
        monkeypatch.undo()


def test_an_unreferenced_device_ends_its_thread(monkeypatch):
    gpu = Device()
    amid_calls(gpu, monkeypatch)
    a = gpu.array(A)
    for _ in range(3):
        _ = a @ a
    thread, gone = gpu.submissions.thread, weakref.ref(gpu)
    assert thread
    del gpu, a, _
    until = time.perf_counter() + 10
    while (gone() or thread.is_alive()) and time.perf_counter() < until:
        gc.collect()
        time.sleep(0.01)
    assert gone() is None
    assert not thread.is_alive()


def test_a_program_may_end_with_queued_calls():
    code = """
import numpy as np, webmm
a = webmm.Device().array(np.ones((64, 64), np.float32))
for _ in range(20):
    b = a @ a
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
