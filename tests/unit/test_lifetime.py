"""Who uses a device, and when it may go."""

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


def test_what_nobody_uses_ends_at_once(uses, end, calls):
    with uses.use():
        pass
    assert calls == []
    end(uses)
    assert calls == ["MainThread"]
    with uses.use():
        pass
    assert calls == ["MainThread"], "it has ended"


def test_the_end_waits_for_all_that_is_under_way_in_other_threads(uses, end, calls):
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


def test_within_a_use_nothing_is_waited_for_and_the_last_one_out_ends_it(uses, end, calls):
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
    assert calls == [], "another thread is within a use"
    leave.set()
    worker.join(10)
    assert calls == ["worker"]


def test_a_use_that_fails_is_over(uses, end, calls):
    def fail():
        with uses.use():
            end(uses)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert calls == ["MainThread"]


def test_what_is_used_while_it_ends_ends_once(uses, calls):
    def last():
        with uses.use():
            calls.append("last")

    uses.end(last)
    assert calls == ["last"]
