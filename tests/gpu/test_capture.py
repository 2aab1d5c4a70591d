"""Captured functions: replays have the results of calls, for all arrays, in place, in threads; others are refused."""

import functools
import logging
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import webmm
from webmm import choose, log
from webmm.calls import capture
from webmm.engine import generation, replays
from webmm.engine.submissions import Submissions
from webmm.errors import FreedArrayError, MemoryLimitError, ProblemError

RNG = np.random.default_rng(7)


def drawn(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)


@pytest.fixture
def chosen(monkeypatch):
    """Return the list of problems for which kernels are chosen, which no replay adds to."""
    run, found = choose.run, []
    monkeypatch.setattr(
        choose, "run", lambda problem, *args, **more: found.append(problem) or run(problem, *args, **more)
    )
    return found


def block(device):
    """Return a function of calls with weights of its own, and these."""
    w, b = device.array(drawn(12, 12)), device.array(drawn(12))
    return lambda x: webmm.softmax(webmm.matmul(x, w, bias=b, activation="gelu"), axis=-1) + x.sum(-1, keepdims=True), w


def recorded(step, *args):
    """Call a captured function until its replays begin."""
    while not step._kept:
        step(*args)
    return step


def test_replays_have_the_results_of_calls_and_make_none(device, chosen):
    f, _ = block(device)
    with webmm.capture(f) as step:
        recorded(step, device.array(drawn(5, 12)))
        chosen.clear()
        xs = [device.array(drawn(5, 12)) for _ in range(7)]
        results = [step(x) for x in xs]
        assert not chosen
        for x, y in zip(xs, results, strict=True):  # each has a buffer of its own
            np.testing.assert_array_equal(y.numpy(), f(x).numpy())
        assert step(xs[0]).signature == f(xs[0]).signature


def test_other_shapes_layouts_and_numbers_are_recorded_apart(device):
    f, _ = block(device)
    with webmm.capture(lambda x, scale=1.0, then="gelu": webmm.elementwise(f"s * {then}(x)", x=f(x), s=scale)) as step:
        every = device.array(drawn(2, 5, 12))
        for x in (every[0], every[1], every[1, :3], every[0, ::2], device.array(drawn(5, 12))):
            for options in ({}, {"scale": 2.0}, {"scale": 0.5, "then": "relu"}):
                for _ in range(4):
                    got = step(x, **options).numpy()
                    np.testing.assert_array_equal(got, step._function(x, **options).numpy())


def test_arrays_that_it_uses_are_read_again(device):
    f, w = block(device)
    with webmm.capture(f) as step:
        x = device.array(drawn(5, 12))
        before = recorded(step, x)(x).numpy()
        w[...] = w * -2.0
        after = step(x).numpy()
        np.testing.assert_array_equal(after, f(x).numpy())
        assert (before != after).any()


def test_results_may_be_arguments_views_and_the_arrays_of_others(device):
    total = device.array(np.zeros((4, 6), np.float32))

    def count(x, y):
        total[...] = total + x
        z = x * y
        return x, z[1:], z.T, total[:, :2], y, y[2:]

    with webmm.capture(count) as step:
        x, y = (device.array(drawn(4, 6)) for _ in range(2))
        sums = np.zeros((4, 6), np.float32)
        for _ in range(6):
            got = step(x, y)
            sums += x.numpy()
            assert got[0] is x
            assert got[4] is y
            assert got[5].storage is y.storage
            np.testing.assert_array_equal(got[5].numpy(), y.numpy()[2:])
            for each, expected in zip(got[1:4], ((x * y)[1:], (x * y).T, sums[:, :2]), strict=True):
                np.testing.assert_array_equal(each.numpy(), np.asarray(expected))
            assert got[1].storage is got[2].storage
            assert got[3].storage is total.storage
            x = device.array(drawn(4, 6))


def test_weights_of_norms_may_be_views(device):
    """They are copied on the device."""
    w, x = device.array(drawn(2, 8, 2)), device.array(drawn(3, 8))
    expected = webmm.layer_norm(x.numpy(), w.numpy()[0, :, 0], w.numpy()[1, :, 1])
    with webmm.capture(lambda x: webmm.layer_norm(x, w[0, :, 0], w[1, :, 1])) as step:
        np.testing.assert_allclose(recorded(step, x)(x).numpy(), expected, atol=1e-6)


def test_a_result_is_fed_back(device):
    with webmm.capture(lambda x, n: (x * 2.0 + 1.0, n + 1)) as step:
        x, n = device.array(np.ones(5, np.float32)), device.array(np.array([0], np.int32))
        for _ in range(9):
            x, n = step(x, n)
        np.testing.assert_array_equal(x.numpy(), np.full(5, 2.0**10 - 1))
        assert n.numpy() == 9


def test_the_same_array_twice_and_one_that_it_uses_are_right(device):
    w = device.array(drawn(6, 6))

    def f(x, y):
        return (x @ y + w) * y

    x, y = device.array(drawn(6, 6)), device.array(drawn(6, 6))
    with webmm.capture(f) as step:  # recorded with an array that it uses as well
        for pair in [(w, y)] * 4 + [(x, y), (y, w), (w, y)]:
            np.testing.assert_array_equal(step(*pair).numpy(), f(*pair).numpy())
        assert step._kept
    with webmm.capture(f) as step:
        recorded(step, x, y)
        for pair in ((x, y), (y, y), (x, x), (w, y), (x, w), (w, w)):
            for _ in range(4):
                np.testing.assert_array_equal(step(*pair).numpy(), f(*pair).numpy())


def test_temporaries_are_its_own(device):
    """Buffers that the function frees while it is recorded are others' afterwards."""
    w = device.array(drawn(8, 8))

    def f(x):
        with x @ w as y, y @ w as z:
            return z + y

    with webmm.capture(f) as step:
        x = device.array(drawn(8, 8))
        expected = recorded(step, x)(x).numpy()
        others = [device.array(np.full((8, 8), i, np.float32)) for i in range(12)]
        for _ in range(3):
            np.testing.assert_array_equal(step(x).numpy(), expected)
        for i, other in enumerate(others):
            np.testing.assert_array_equal(other.numpy(), i)


def test_its_memory_is_released():
    with webmm.Device() as device:
        w = device.array(drawn(64, 64))
        x = device.array(drawn(64, 64))
        step = webmm.capture(lambda x: x @ w @ w @ w)
        before = device.memory_stats().array_bytes
        recorded(step, x)
        kept = device.memory_stats().array_bytes - before
        assert 0 < kept <= 3 * x.nbytes  # of two products, and nothing of arguments and results
        y = step(device.array(drawn(64, 64)))
        assert device.memory_stats().array_bytes == before + kept + y.nbytes
        del y
        step.free()
        assert device.memory_stats().array_bytes == before
        np.testing.assert_array_equal(step(x).numpy(), (x @ w @ w @ w).numpy())
        recorded(step, x)
        del step
        assert device.memory_stats().array_bytes == before


def test_threads_share_a_captured_function(device):
    f, _ = block(device)
    step = webmm.capture(f)
    recorded(step, device.array(drawn(5, 12)))

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(10):
            x = device.array(rng.integers(-3, 4, (5, 12)).astype(np.float32))
            np.testing.assert_array_equal(step(x).numpy(), f(x).numpy())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    step.free()


def test_a_replay_is_submitted_in_parts(device, monkeypatch):
    w = device.array(drawn(8, 8))

    def f(x):
        for _ in range(20):
            x = x + x @ w * 0.0
        return x

    with webmm.capture(f) as step:
        x = device.array(drawn(8, 8))
        recorded(step, x)
        step(x)
        device.synchronize()
        submit, sizes = Submissions._submit, []
        monkeypatch.setattr(
            Submissions,
            "_submit",
            lambda self, pending, copy=None: (sizes.append(len(pending)), submit(self, pending, copy)),
        )
        step(x)
        assert len(sizes) > 1
        assert max(sizes) <= 16


def test_a_new_generation_is_recorded_again(device, chosen):
    f, _ = block(device)
    with webmm.capture(f) as step:
        x = device.array(drawn(5, 12))
        recorded(step, x)
        chosen.clear()
        generation.advance()
        np.testing.assert_array_equal(step(x).numpy(), f(x).numpy())
        assert chosen
        assert len(step._kept) == 1  # the memory of the earlier one is released


def test_a_profile_sees_every_call(device):
    f, _ = block(device)
    with webmm.capture(f) as step:
        x = device.array(drawn(5, 12))
        recorded(step, x)
        with webmm.profile(device) as profile:
            step(x)
        assert sum(event.kind == "dispatch" for event in profile.events) >= 3


def test_a_captured_function_within_another(device):
    f, _ = block(device)
    inner = webmm.capture(f)
    x = device.array(drawn(5, 12))
    recorded(inner, x)
    with webmm.capture(lambda x: inner(x) * 2.0) as outer:
        recorded(outer, x)
        np.testing.assert_array_equal(outer(x).numpy(), (f(x) * 2.0).numpy())
    inner.free()


def test_freed_arrays_are_reported(device):
    f, w = block(device)
    step = webmm.capture(f)
    x = device.array(drawn(5, 12))
    recorded(step, x)
    gone = device.array(drawn(5, 12))
    gone.free()
    with pytest.raises(FreedArrayError):
        step(gone)
    w.free()
    with pytest.raises(FreedArrayError):
        step(x)


@pytest.mark.parametrize(
    ("doing", "words"),
    [
        (lambda x: x + x.numpy(), "uploading"),
        (lambda x: x * float(x[0, 0]), "downloading"),
        (lambda x: x + x.device.zeros((2, 2)), "clearing"),
        (lambda x: (x.device.synchronize(), x + x)[1], "waiting"),
    ],
)
def test_what_more_than_dispatches_do_is_refused(device, doing, words):
    step = webmm.capture(doing)
    x = device.array(drawn(2, 2))
    step(x)
    step(x)
    with pytest.raises(ProblemError, match=words):
        step(x)


def test_too_little_memory_for_its_own_arrays_is_reported(device, monkeypatch):
    w = device.array(drawn(4, 4))

    def f(x):
        with x @ w as y:
            return y @ w

    x = device.array(drawn(4, 4))
    expected = f(x).numpy()  # tests the kernels

    def full(*_):
        raise MemoryLimitError("the device is out of memory")

    step = webmm.capture(f)
    with monkeypatch.context() as patch:
        patch.setattr(replays.allocate, "new", full_after(2, replays.allocate.new, full))
        np.testing.assert_array_equal(step(x).numpy(), expected)
    assert not step._kept
    np.testing.assert_array_equal(recorded(step, x)(x).numpy(), expected)
    step.free()


def full_after(count, new, full):
    """Return `new` for so many allocations of a call, and `full` from then on."""
    left = iter([new] * count)
    return lambda *args: next(left, full)(*args)


def test_what_is_no_function_is_refused():
    with pytest.raises(ProblemError, match=r"capture\(\) takes a function of arrays, not int"):
        webmm.capture(5)


def test_other_arguments_and_results_are_refused(device):
    x = device.array(drawn(2, 2))
    weights = webmm.quantize_blocks(drawn(32, 2)).to(device)
    for args in ((drawn(2, 2),), (), (2.0,), (x, drawn(2, 2)), (x, [x]), (x, weights)):
        with pytest.raises(ProblemError, match="takes device arrays, at least one"):
            webmm.capture(lambda *xs: xs[0])(*args)
    for result in (1.0, None, [x], (x, 2), drawn(2, 2)):
        with pytest.raises(ProblemError, match="returns an Array, or a tuple of them"):
            webmm.capture(lambda x, result=result: result)(x)


def test_a_cache_is_appended_to_at_a_place_of_the_device(device):
    q, k, v = (RNG.standard_normal((2, 3, 9, 8)).astype(np.float32) for _ in range(3))
    with webmm.KVCache(device, 1, 2, 3, 9, 8) as cache, webmm.KVCache(device, 1, 2, 3, 9, 8) as usual:

        def attend(q, k, v, at):
            return webmm.attention(q, *cache.append(0, k, v, at=at), causal="end", lengths=at + 1), at + 1

        with webmm.capture(attend) as step:
            at = device.array(np.zeros(2, np.int32))
            for i in range(9):
                one = [device.array(x[:, :, i : i + 1]) for x in (q, k, v)]
                got, at = step(*one, at)
                expected = webmm.attention(one[0], *usual.append(0, *one[1:]), causal="end")
                np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
            assert step._kept
        np.testing.assert_array_equal(cache._keys[0].numpy(), k)
        assert cache.lengths == (0,)


def test_appending_at_a_number_cannot_be_captured(device):
    with webmm.KVCache(device, 1, 1, 1, 4, 8) as cache:
        one = device.array(np.ones((1, 1, 1, 8), np.float32))
        with pytest.raises(ProblemError, match="appends to a KVCache at="):
            webmm.capture(lambda x: cache.append(0, x, x)[0])(one)
        assert cache.lengths == (0,)


def test_an_object_that_is_called_has_names_of_its_own(device):
    class Layer:
        def __init__(self, inner):
            self._function = self._kept = inner

        def __call__(self, x):
            return self._function(x) * 2.0

    x = device.array(drawn(3))
    with webmm.capture(Layer(lambda x: x + 1.0)) as step:
        for _ in range(3):
            np.testing.assert_array_equal(step(x).numpy(), (x.numpy() + 1) * 2)


Pair = namedtuple("Pair", "x y")


def test_tuples_are_plain_and_of_host_values(device):
    x = device.array(drawn(3))
    for other in (Pair(1, 2), (x,), (1, (x, 2)), ([1],)):
        with pytest.raises(ProblemError, match="numbers or words beside them"):
            webmm.capture(lambda x, other: x * 2.0)(x, other)
    with pytest.raises(ProblemError, match="a tuple of them"):
        webmm.capture(lambda x: Pair(x, x))(x)
    with webmm.capture(lambda x, sizes: x * sizes[0]) as step:
        for sizes in ((2.0, (3, 4)), (3.0, (3, 4)), (True, (3, 4)), (1, (3, 4))) * 3:
            np.testing.assert_array_equal(step(x, sizes).numpy(), x.numpy() * sizes[0])


def test_arrays_of_other_threads_are_refused(device):
    with ThreadPoolExecutor(1) as pool:
        step = webmm.capture(lambda x: pool.submit(lambda: x * 2.0).result() + 1.0)
        step(device.array(drawn(3)))
        step(device.array(drawn(3)))
        with pytest.raises(ProblemError, match="using an array that is not made by its dispatches"):
            step(device.array(drawn(3)))


def test_arrays_that_are_kept_when_it_is_recorded_stay_as_they_are(device):
    kept = []

    def f(x):
        kept.append(x * 2.0)
        return kept[-1] + 1.0

    with webmm.capture(f) as step:
        xs = [device.array(drawn(3)) for _ in range(6)]
        for x in xs:
            step(x)
        for x, y in zip(xs, kept, strict=False):
            np.testing.assert_array_equal(y.numpy(), x.numpy() * 2)


def test_the_log_of_each_call_prevents_recording(device):
    step, level = webmm.capture(lambda x: x * 2.0), log.profile.level
    log.profile.setLevel(logging.DEBUG)
    try:
        for _ in range(5):
            step(device.array(drawn(3)))
        assert not step._kept
    finally:
        log.profile.setLevel(level)


def test_failures_do_not_add_up(device):
    late = []

    def f(x):
        if late:
            late.pop()
            x.numpy()
        return x * 2.0

    with webmm.capture(f) as step:
        for _ in range(4):
            step.free()
            late.append(1)
            for _ in range(4):
                step(device.array(drawn(3)))
            assert step._kept


def sums(factor, x):
    return functools.reduce(lambda y, _: y + x * factor, range(40), x)


def test_replays_with_new_arguments_prepare_nothing(monkeypatch):
    """The buffers of what was recorded are those of the replay, so that few are left for arguments and results."""
    with webmm.Device() as device:
        factors = 1.0, 2.0
        steps = [webmm.capture(functools.partial(sums, factor)) for factor in factors]
        x, prepare, made = device.array(drawn(4, 4)), device.launches.prepare, []
        monkeypatch.setattr(device.launches, "prepare", lambda *args: made.append(args) or prepare(*args))
        for count in (10, 4):
            made.clear()
            for _ in range(count):
                results = [step(x + 1.0) for step in steps]
        assert not made
        for factor, result in zip(factors, results, strict=True):
            np.testing.assert_array_equal(result.numpy(), (1 + 40 * factor) * (x.numpy() + 1))


def test_other_numbers_and_words_are_no_failures(device):
    """Those of a signature count, and many of the same arrays."""
    late = []

    def f(x, i):
        if i in late:
            x.numpy()
        return x * float(i)

    x = device.array(drawn(3))
    with webmm.capture(f) as step:
        late += range(capture.MOST_ATTEMPTS + 1)
        for i in late[:-2]:
            step(x, i)
        with pytest.raises(ProblemError, match="last by downloading"):
            step(x, late[-2])
        step.free()
        for _ in range(capture.ATTEMPTS - 1):
            step(x, 0)
        with pytest.raises(ProblemError, match="last by downloading"):
            step(x, 0)
        step(x, 1)


def test_each_device_has_its_own_and_closed_ones_are_dropped():
    made = []
    with webmm.capture(lambda x: (made.append(1), x * 2.0)[1]) as step:
        for _ in range(3):
            with webmm.Device() as gpu:
                x = gpu.array(drawn(3))
                recorded_before, made[:] = len(made), []
                for _ in range(6):
                    np.testing.assert_array_equal(step(x).numpy(), x.numpy() * 2)
                assert len(made) < 4, recorded_before
        assert len(step._kept) == 1


def test_an_array_that_is_only_returned(device):
    w = device.array(drawn(3))
    with webmm.capture(lambda x: (x * 2.0, w, w[1:])) as step:
        for _ in range(4):
            _, same, part = step(device.array(drawn(3)))
            assert same.storage is part.storage is w.storage
        assert step._kept


def test_two_arrays_over_a_buffer_of_others(device):
    owner = device.array(drawn(4))  # kept: the pool lends the buffers of arrays that are gone
    w, x = (device.wrap(owner.storage.buffer, (4,)) for _ in range(2))

    def f(x):
        w[...] = x
        return w + 0.0

    with webmm.capture(f) as step:
        other = device.array(drawn(4))
        recorded(step, other)
        for y in (step(x), w + 0.0):  # no dispatch that reads and writes the buffer was refused
            np.testing.assert_array_equal(y.numpy(), other.numpy())
