"""Rotary embeddings: the formula in float64, pairs in both orders, views read in place, any size, refusals."""

import numpy as np
import pytest

import webmm
from webmm.errors import ProblemError

TOKENS, WIDTH = 5, 12
RNG = np.random.default_rng(0)
ANGLES = np.outer(np.arange(TOKENS), 10.0 ** -np.arange(WIDTH // 2))
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
X = RNG.standard_normal((2, TOKENS, 3, WIDTH)).astype(np.float32).swapaxes(1, 2)  # as heads are split


def reference(x, cos, sin, interleaved=False):
    """Return the pairs as complex numbers, times those of their angles."""
    pairs = x.astype(np.float64).reshape(*x.shape[:-1], -1, 2) if interleaved else None
    a, b = (pairs[..., 0], pairs[..., 1]) if interleaved else np.split(x.astype(np.float64), 2, axis=-1)
    turned = (a + 1j * b) * (cos + 1j * sin)
    parts = turned.real, turned.imag
    return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)


def near(got, expected, eps=2.0**-23):
    got = np.asarray(got).astype(np.float64)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 4 * eps * np.abs(X).max()


@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_are_rotated(device, interleaved):
    expected = reference(X, COS, SIN, interleaved)
    near(webmm.rotary(X, COS, SIN, interleaved, device=device), expected)
    x = device.array(X.swapaxes(1, 2)).swapaxes(1, 2)
    table = device.array(np.stack([COS, SIN], 1))
    cos, sin = table[:, 0], table[:, 1]
    for _ in range(2):  # the second call repeats the plan
        got = webmm.rotary(x, cos, sin, interleaved)
        assert isinstance(got, webmm.Array)
        near(got, expected)
    near(webmm.rotary(x[:, :, 3:4], cos[3:4], sin[3:4], interleaved), expected[:, :, 3:4])


def test_dtypes_and_broadcasting(device):
    half = device.array(X, "float16")
    got = webmm.rotary(half, COS, SIN)
    assert got.dtype == np.float16
    near(got, reference(half.numpy(), COS, SIN), 2.0**-11)
    near(webmm.rotary(half, half[0, 0, :, :6], half[0, 1, :, :6])[:1, :1], _of_halves(half.numpy()), 2.0**-10)
    places = np.array([[3, 0, 1, 4, 2], [1, 1, 0, 2, 3]])  # of each sequence's own
    near(
        webmm.rotary(device.array(X), COS[places][:, None], SIN[places][:, None]),
        reference(X, COS[places][:, None], SIN[places][:, None]),
    )
    near(webmm.rotary(device.array(X)[..., ::-1], COS, SIN), reference(X[..., ::-1], COS, SIN))
    assert webmm.rotary(X[:, :, :0], COS[:0], SIN[:0], device=device).shape == (2, 3, 0, WIDTH)


def _of_halves(x):
    x = x.astype(np.float64)
    return reference(x, x[0, 0, :, :6], x[0, 1, :, :6])[:1, :1]


def test_more_than_a_binding_is_cut():
    x = RNG.standard_normal((40, 64, 32)).astype(np.float32).clip(-2, 2)
    cos, sin = (each(np.arange(64 * 16.0).reshape(64, 16)).astype(np.float32) for each in (np.cos, np.sin))
    with webmm.Device(limits={"max-storage-buffer-binding-size": 2**16}) as small:
        near(webmm.rotary(small.array(x), cos, sin), reference(x, cos, sin))
        small.memory = 2**16
        near(webmm.rotary(x, cos, sin, True, device=small), reference(x, cos, sin, True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": X[..., :11]}, "an even width"),
        ({"x": X[0, 0, 0]}, "tokens, width"),
        ({"x": X.astype(np.int32)}, "int32 is not supported by rotary"),
        ({"cos": COS[:4]}, "cos must broadcast to"),
        ({"sin": SIN[:, :5]}, "sin must broadcast to"),
        ({"sin": SIN[:, :1]}, "half the width of x"),
        ({"cos": np.stack([COS] * 5)[:, None, None]}, "cos must broadcast to"),
        ({"sin": SIN.astype(np.float16)}, "sin must be float32"),
        ({"interleaved": "yes"}, "interleaved must be True or False"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    with pytest.raises(ProblemError, match=words):
        webmm.rotary(**{"x": X, "cos": COS, "sin": SIN} | change)
