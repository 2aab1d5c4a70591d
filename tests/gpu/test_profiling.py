"""Profiles: every transfer and dispatch has an event, nested in its call; without a profile nothing is recorded."""

import json
import threading

import numpy as np
import pytest
from products import small
from rich.console import Console

import webmm
from webmm.engine import profiling, timing
from webmm.errors import ConfigError, ProblemError
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.problems.gemm import gemm

A, B = np.ones((3, 20, 30), np.float32), np.ones((3, 30, 40), np.float32)


def kinds(profile):
    return [event.kind for event in profile.events]


def run(device, kernel, problem):
    """Run `kernel` under a profile, and check its result."""
    a, b = (
        device.array(np.ones((problem.m, problem.k), np.float32)),
        device.array(np.ones((problem.k, problem.n), "f4")),
    )
    with webmm.profile(device) as found, a, b, device.empty((problem.m, problem.n)) as c:
        device.run(kernel, problem, a, b, c)
        assert (c.numpy() == problem.k).all()
    return found


def test_events_of_a_call_are_complete_and_nested(device):
    webmm.matmul(A, B, device=device)  # runs the self-test if the kernel is new
    with webmm.profile(device) as found:
        assert (webmm.matmul(A, B, device=device) == 30).all()
    assert [k for k in kinds(found) if k != "dispatch"][:4] == ["profile", "call", "upload", "upload"]
    assert kinds(found)[-1] == "download"
    whole, call, *parts = found.events
    assert whole.start == 0
    assert call.name == "matmul"
    for part in parts:
        assert call.start <= part.start <= part.end <= call.end
    for product in [event for event in found.events if event.kind == "product"]:
        assert product.amounts["operations"] > 0
        inner = [e for e in found.events if e.kind == "dispatch" and product.start <= e.start <= e.end <= product.end]
        assert inner, "a product without a dispatch"
    uploads = [event.amounts["bytes"] for event in found.events if event.kind == "upload"]
    assert uploads == [A.nbytes, B.nbytes]


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (CpuTexture(tm=4, tn=4), ["pack_b", "cpu_texture"]),
        (small(SplitK, splits=2), ["split_k", "sum_splits"]),
    ],
    ids=str,
)
def test_each_dispatch_of_a_kernel_is_timed_separately(device, kernel, names):
    problem = gemm(5, 8, 40)
    if kernel.check(problem, device.capabilities):
        pytest.skip("no subgroups here")
    dispatches = [event for event in run(device, kernel, problem).events if event.kind == "dispatch"]
    assert [event.name for event in dispatches] == names
    assert dispatches[0].end <= dispatches[1].start
    assert [event.details["kernel"] for event in dispatches] == [str(step) for step in kernel.dispatches]
    assert {event.track for event in dispatches} == {"device"}


def test_profiled_gemm_accumulates_once(device):
    c = device.array(np.ones((4, 4), np.float32))
    with webmm.profile(device) as found, c:
        webmm.gemm(device.array(np.ones((4, 2), "f4")), device.array(np.ones((2, 4), "f4")), c, beta=1.0)
        assert (c.numpy() == 3).all()
    assert "gemm" in [event.name for event in found.events if event.kind == "call"]


def test_the_trace_is_valid_for_perfetto(device, tmp_path):
    with webmm.profile(device) as found:
        webmm.matmul(A, B, device=device)
        thread = threading.Thread(target=webmm.matmul, args=(A, B), kwargs={"device": device}, name="another")
        thread.start()
        thread.join()
    found.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"device", "another"} <= set(names.values())
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(found.events)
    for event in complete:
        assert {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert event["tid"] in names
        assert (names[event["tid"]] == "device") == (event["cat"] == "dispatch")
    for tid in names:  # events of one track must nest, or Perfetto drops them
        ends = []
        for event in (event for event in complete if event["tid"] == tid):
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1] + 0.002, event
            ends.append(event["ts"] + event["dur"])
    with pytest.raises(ConfigError, match="cannot write"):
        found.save(tmp_path / "missing" / "trace.json")


def test_the_table_names_every_event(device):
    with webmm.profile(device) as found:
        webmm.matmul(A, B, device=device)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(found.table())
    for event in found.events:
        assert event.name in captured.get()
    for word in ("GB/s", "GOP/s", "share", "100%"):
        assert word in captured.get()


def test_the_clock_depends_on_the_adapter(device):
    expected = "wall" if device.info.kind == "cpu" else "timestamp"
    found = run(device, Naive(), gemm(3, 4, 5))
    assert {event.clock for event in found.events if event.kind == "dispatch"} == {expected}


def test_timestamps_are_within_the_call(device, monkeypatch):
    if "timestamp-query" not in device.capabilities.features:
        pytest.skip("the device has no timestamps")
    monkeypatch.setattr(timing, "clock_of", lambda device: "timestamp")
    with webmm.Device(device.info.index) as fresh:  # no texture has been used yet, which breaks lavapipe's timestamps
        run(fresh, Tile2D(), gemm(64, 64, 64))
        found = run(fresh, Tile2D(), gemm(64, 64, 64))
    (dispatch,) = [event for event in found.events if event.kind == "dispatch"]
    (product,) = [event for event in found.events if event.kind == "product"]
    assert dispatch.clock == "timestamp"
    assert 0 < dispatch.duration <= product.duration
    assert product.start <= dispatch.start <= dispatch.end <= product.end


def test_implausible_timestamps_are_replaced_by_the_wall_clock(device, monkeypatch):
    def implausible(device, launches):
        timing.submit(device, *launches)
        return [(0.0, 1e6)]

    monkeypatch.setattr(timing, "clock_of", lambda device: "timestamp")
    monkeypatch.setattr(timing, "intervals", implausible)
    found = run(device, Naive(), gemm(3, 4, 5))
    (dispatch,) = [event for event in found.events if event.kind == "dispatch"]
    assert (dispatch.name, dispatch.clock) == ("naive", "wall")
    assert dispatch.duration < 1e6


def test_nothing_is_recorded_without_a_profile(device, monkeypatch):
    with webmm.profile(device) as found:
        pass
    count = len(found.events)

    def fail(*_, **__):
        raise AssertionError("a profile was used")

    for name in ("span", "run", "_add"):
        monkeypatch.setattr(profiling.Profile, name, fail)
    assert (webmm.matmul(A, B, device=device) == 30).all()
    assert device.profile is None
    assert len(found.events) == count == 1


def test_one_profile_at_a_time_and_none_after_an_error(device):
    with (
        webmm.profile(device),
        pytest.raises(ConfigError, match="already"),
        webmm.profile(device),
    ):
        pass
    with pytest.raises(ProblemError), webmm.profile(device):
        webmm.matmul(A, A, device=device)
    assert device.profile is None
