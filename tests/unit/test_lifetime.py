"""Counting the uses of a device, and destroying it after the last one."""

import threading

import pytest

from webmm.engine.lifetime import Uses


@pytest.fixture
def calls():
    return []


@pytest.fixture
def end(calls):
    return lambda uses: uses.end(lambda: calls.append(threading.current_thread().name))


@pytest.fixture
def uses():
    return Uses()


def started(work, name):
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def test_an_unused_device_ends_at_once(uses, end, calls):
    with uses.use():
        pass
    assert calls == []
    end(uses)
    assert calls == ["MainThread"]
    with uses.use():
        pass
    assert calls == ["MainThread"], "it has ended"


def test_the_end_waits_for_uses_in_other_threads(uses, end, calls):
    inside, leave = threading.Barrier(3), threading.Event()

    def work():
        with uses.use(), uses.use():
            inside.wait(10)
            leave.wait(10)

    workers = [started(work, f"worker {i}") for i in range(2)]
    inside.wait(10)
    closers = [started(lambda: end(uses), f"closer {i}") for i in range(2)]
    for closer in closers:
        closer.join(0.1)
        assert closer.is_alive()
        assert calls == []
    leave.set()
    for thread in (*workers, *closers):
        thread.join(10)
        assert not thread.is_alive(), f"{thread.name} hangs"
    assert calls


def test_end_within_a_use_does_not_wait_and_the_last_use_ends_it(uses, end, calls):
    inside, leave = threading.Event(), threading.Event()

    def work():
        with uses.use():
            inside.set()
            leave.wait(10)

    worker = started(work, "worker")
    inside.wait(10)
    with uses.use():
        with uses.use():
            end(uses)
        end(uses)
    assert calls == [], "another thread still uses it"
    leave.set()
    worker.join(10)
    assert calls == ["worker"]


def test_a_use_ends_with_an_exception(uses, end, calls):
    def fail():
        with uses.use():
            end(uses)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert calls == ["MainThread"]


def test_a_use_during_the_end_does_not_end_it_again(uses, calls):
    def last():
        with uses.use():
            calls.append("last")

    uses.end(last)
    assert calls == ["last"]
