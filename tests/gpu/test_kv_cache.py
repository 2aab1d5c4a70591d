"""KVCache: what is appended is what its views show, in place, also while plans repeat; refusals leave it unchanged."""

from dataclasses import replace

import numpy as np
import pytest

import webmm
from webmm import choose
from webmm.calls import joined
from webmm.choose.limits import dispatch_limits
from webmm.errors import FreedArrayError, ProblemError

LAYERS, BATCH, HEADS, CAPACITY, WIDTH = 2, 2, 3, 9, 8
RNG = np.random.default_rng(0)


def drawn(tokens, width=WIDTH):
    return RNG.standard_normal((BATCH, HEADS, tokens, width)).astype(np.float32)


def made(device, dtype="float32", **more):
    return webmm.KVCache(device, LAYERS, BATCH, HEADS, CAPACITY, WIDTH, dtype, **more)


def test_views_show_what_was_appended(device):
    with made(device, value_width=5) as cache:
        assert cache.keys(1).shape == (BATCH, HEADS, 0, WIDTH)
        assert cache.nbytes == 4 * LAYERS * BATCH * HEADS * CAPACITY * (WIDTH + 5)
        parts = [(drawn(n), drawn(n, 5)) for n in (4, 1, 1, 3)]
        one = cache.append(1, *parts[0])[0]
        for k, v in parts[1:]:
            split = device.array(k.swapaxes(1, 2)).swapaxes(1, 2)  # as heads are split: read in place
            keys, values = cache.append(1, split, v)
        for got, of in ((keys, 0), (values, 1), (cache.keys(1), 0), (cache.values(1), 1)):
            np.testing.assert_array_equal(got.numpy(), np.concatenate([part[of] for part in parts], 2))
        assert keys.storage is one.storage
        np.testing.assert_array_equal(one.numpy(), parts[0][0])  # a view keeps its length
        assert cache.lengths == (0, 9)
        assert cache.length(1) == 9


def test_launches_of_all_lengths_are_kept():
    with webmm.Device() as device:
        small = device.launches.limit
        with webmm.KVCache(device, 4, 1, 1, 300, 8):
            assert device.launches.limit >= 4 * 300 > small


def test_the_layers_of_a_length_share_a_plan(device, monkeypatch):
    run, chosen = choose.run, []

    def recorded(problem, *more, **settings):
        chosen.append(problem)
        run(problem, *more, **settings)

    monkeypatch.setattr(choose, "run", recorded)
    with made(device) as cache:
        for length in (1, 2, 3):
            chosen.clear()
            for layer in range(LAYERS):
                k, v = (device.array(drawn(1)) for _ in range(2))
                cache.append(layer, k, v)
                assert np.array_equal(cache.keys(layer)[:, :, -1:].numpy(), k.numpy())
                assert np.array_equal(cache.values(layer)[:, :, -1:].numpy(), v.numpy())
            if length > 1:  # the first time, self-tests of the kernels interrupt the recording
                assert len(chosen) == 2, f"length {length}: the first layer's keys and values"


def test_other_dtypes_are_converted(device):
    with made(device, "float16") as cache:
        k = drawn(3)
        keys, values = cache.append(0, device.array(k), k.astype(np.float16))
        for got in (keys, values):
            assert got.dtype == np.float16
            np.testing.assert_array_equal(got.numpy(), k.astype(np.float16))


def test_truncated_tokens_are_overwritten(device):
    with made(device) as cache:
        first, second = drawn(6), drawn(2)
        for layer in range(LAYERS):
            cache.append(layer, first, first)
        cache.truncate(7)
        assert cache.lengths == (6, 6)
        cache.truncate(4)
        np.testing.assert_array_equal(
            cache.append(0, second, second)[1].numpy(), np.concatenate([first[:, :, :4], second], 2)
        )
        assert cache.lengths == (6, 4)
        cache.clear()
        assert cache.lengths == (0, 0)


def test_attention_in_a_loop_sees_every_token(device):
    """The second and third pass repeat the plans of the first, with other numbers and in a cache of other buffers."""

    def passed(cache):
        parts = [(drawn(1), drawn(1), drawn(1)) for _ in range(CAPACITY)]
        for n, (q, k, v) in enumerate(parts, 1):
            q, k, v = (device.array(x) for x in (q, k, v))
            got = webmm.attention(q, *cache.append(0, k, v), causal="end").numpy()
            keys, values = (np.concatenate([part[i] for part in parts[:n]], 2).astype(np.float64) for i in (1, 2))
            e = np.exp(parts[n - 1][0] @ keys.swapaxes(2, 3) / np.sqrt(WIDTH))
            np.testing.assert_allclose(got, (e / e.sum(-1, keepdims=True)) @ values, atol=2e-6)

    with made(device) as cache, made(device) as other:
        passed(cache)
        cache.clear()
        passed(cache)
        passed(other)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.append(0, drawn(4), drawn(4)), "layer 0 holds 6 of 9 tokens; 4 more do not fit"),
        (lambda c: c.append(0, drawn(2), drawn(3)), r"v must have shape \(2, 3, 2, 8\), not \(2, 3, 3, 8\)"),
        (lambda c: c.append(0, drawn(2)[0], drawn(2)), "k must have shape"),
        (lambda c: c.append(0, drawn(2), drawn(2, 4)), "v must have shape"),
        (lambda c: c.append(0, drawn(2).astype(np.int32), drawn(2)), "dtype int32 is not supported by KVCache: k"),
        (lambda c: c.append(0, c.keys(0)[:, :, :1], drawn(1)), "k is a view of the cache's layer 0"),
        (lambda c: c.append(2, drawn(2), drawn(2)), "layer 2 is out of range: the cache has 2 layers"),
        (lambda c: c.keys(-1), "layer must be at least 0"),
        (lambda c: c.length("0"), "layer must be a whole number"),
        (lambda c: c.truncate(-1), "length must be at least 0"),
        (lambda c: c.truncate(1.5), "length must be a whole number"),
        (lambda c: webmm.KVCache(c.device, 0, 1, 1, 1, 1), "layers must be at least 1"),
        (lambda c: webmm.KVCache(c.device, 1, 1, 1, 1, 1, value_width=0), "value_width must be at least 1"),
        (lambda c: webmm.KVCache(c.device, 1, 1, 1, 1, 1, "int8"), "int8 is not supported by KVCache"),
        (lambda c: webmm.KVCache("gpu", 1, 1, 1, 1, 1), "takes a webmm.Device first, not str"),
    ],
)
def test_refusals_leave_the_cache_unchanged(device, call, words):
    with made(device) as cache:
        k = drawn(6)
        cache.append(0, k, k)
        with pytest.raises(ProblemError, match=words):
            call(cache)
        assert cache.lengths == (6, 0)
        np.testing.assert_array_equal(cache.values(0).numpy(), k)


def test_a_freed_cache_is_refused(device):
    cache = made(device)
    held = device.memory_stats().array_bytes
    cache.free()
    cache.free()
    assert device.memory_stats().array_bytes < held
    for call in (lambda: cache.keys(0), lambda: cache.append(0, drawn(1), drawn(1))):
        with pytest.raises(FreedArrayError):
            call()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_places_of_new_tokens_are_read_on_the_device(device, dtype):
    with made(device, dtype, value_width=5) as cache:
        expected = [np.zeros((BATCH, HEADS, CAPACITY, width), np.float32) for width in (WIDTH, 5)]
        for x, start in zip((cache._keys[1], cache._values[1]), expected, strict=True):
            x[...] = start
        for places, tokens in (([3, 0], 2), ([8, 8], 1), ([-4, 7], 3), ([99, 5], 4), ([0, 0], 9), ([2], 1)):
            given = [RNG.integers(-8, 9, x[:, :, :tokens].shape).astype(np.float32) for x in expected]
            at = device.array(np.array(places[::-1], np.int32))[::-1]
            split = device.array(given[0].swapaxes(1, 2)).swapaxes(1, 2)  # read in place
            got = cache.append(1, split, given[1], at=at)
            for x, new, whole in zip(got, given, expected, strict=True):
                for entry, place in enumerate(np.broadcast_to(np.clip(places, 0, CAPACITY - tokens), BATCH)):
                    whole[entry, :, place : place + tokens] = new[entry]
                np.testing.assert_array_equal(x.numpy().astype(np.float32), whole)
        assert cache.lengths == (0, 0)


def test_places_that_are_none_are_refused(device):
    with made(device) as cache:
        one = drawn(1)
        for at, words in (
            (3, "at must be an int32 array on the device, not int"),
            (np.zeros(1, np.int32), "not ndarray"),
            (device.array(np.zeros(1, np.float32)), r"shape \(1,\) or \(2,\), not float32 of \(1,\)"),
            (device.array(np.zeros((1, 2), np.int32)), r"not int32 of \(1, 2\)"),
        ):
            with pytest.raises(ProblemError, match=words):
                cache.append(0, one, one, at=at)
        with pytest.raises(ProblemError, match="10 more do not fit"):
            cache.append(0, drawn(10), drawn(10), at=device.array(np.zeros(1, np.int32)))
        with webmm.Device() as other, pytest.raises(ProblemError, match="different devices"):
            cache.append(0, one, one, at=other.array(np.zeros(1, np.int32)))


def test_views_of_its_own_layer_are_refused(device):
    """Before keys are written."""
    x = np.ones((1, 1, 4, 4), np.float32)
    with webmm.KVCache(device, 2, 1, 1, 8, 4) as cache:
        cache.append(0, x, x)
        new, at = device.array(7 * x), device.array(np.array([2], np.int32))
        for more in ({}, {"at": at}):
            with pytest.raises(ProblemError, match="v is a view of the cache's layer 0; pass a copy of it"):
                cache.append(0, new, cache.values(0), **more)
            with pytest.raises(ProblemError, match="k is a view of the cache's layer 0"):
                cache.append(0, cache.keys(0), new, **more)
            np.testing.assert_array_equal(cache.keys(0).numpy(), x)
        cache.append(1, cache.keys(0), cache.values(0))
        np.testing.assert_array_equal(cache.values(1).numpy(), x)


def test_places_in_a_cache_beyond_a_binding(device, monkeypatch):
    """Each dispatch binds a part of the heads."""
    limits = dispatch_limits(device)
    with made(device) as cache:
        monkeypatch.setattr(joined, "dispatch_limits", lambda _: replace(limits, binding=2 * 4 * CAPACITY * WIDTH))
        k, v = drawn(2), drawn(2)
        got = cache.append(0, k, v, at=device.array(np.array([4], np.int32)))
        for x, new in zip(got, (k, v), strict=True):
            np.testing.assert_array_equal(x[:, :, 4:6].numpy(), new)
