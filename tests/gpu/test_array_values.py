"""Arrays behave as NumPy's: assignment, copies, printing, more functions; what is not computed on devices says so."""

import logging

import einops
import numpy as np
import pytest

import webmm
import webmm.calls.array_api as xp
import webmm.einops
from webmm.engine import host
from webmm.engine.devices import named
from webmm.errors import ConfigError, ProblemError, UnsupportedError

RNG = np.random.default_rng(8)
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def same(got, expected):
    assert isinstance(got, webmm.Array)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
    assert got.shape == np.shape(expected)


ASSIGNED = {
    "row": (1, 7),
    "steps": ((slice(None), slice(None, None, 2)), [[1], [2], [3]]),
    "backwards": ((slice(None, None, -1), 1), np.array([9, 8, 7.0])),
    "one": ((2, 3), np.float64(0.1)),
    "nothing": (slice(0), 5.0),
    "new axis": ((None, Ellipsis, 0), [[4, 5, 6]]),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_assignment(device, name):
    key, value = ASSIGNED[name]
    for dtype in ("float32", "int32") if name == "row" else ("float32",):
        x, expected = device.array(MATRIX, dtype), MATRIX.astype(dtype)
        x[key] = value
        expected[key] = value
        same(x, expected)


def test_assignment_of_arrays_masks_and_narrow_types(device):
    x, expected = device.array(MATRIX), MATRIX.copy()
    x[:, 1:] = x[:, :-1]  # of itself
    expected[:, 1:] = expected[:, :-1].copy()
    x[x > 6] = -1
    expected[expected > 6] = -1
    x[0] = device.array(np.arange(4, dtype=np.int32))
    expected[0] = np.arange(4)
    x += 1
    same(x, expected + 1)
    for dtype in ("bool", "float16"):  # several in a word
        narrow, wanted = device.zeros((3, 5), dtype), np.zeros((3, 5), dtype)
        narrow[1, 1:4], wanted[1, 1:4] = 1, 1
        same(narrow, wanted)


@pytest.mark.parametrize(
    ("assign", "words"),
    [
        (lambda x: x.__setitem__((slice(None), slice(2)), np.ones(3)), "does not broadcast to the shape"),
        (lambda x: x.__setitem__([0, 2], 1), "assigned to by slices, or by a mask"),
        (lambda x: x.__setitem__(x > 1, [1, 2]), "assigned to by slices, or by a mask"),
        (lambda x: x[0].broadcast_to((3, 4)).__setitem__(0, 1), None),
        (lambda x: x[0].broadcast_to((3, 4)).__setitem__(slice(2), 1), "repeats elements"),
    ],
)
def test_refused_assignment(device, assign, words):
    x = device.array(MATRIX)
    if words is None:
        assign(x)
        return
    with pytest.raises(ProblemError, match=words):
        assign(x)
    same(x, MATRIX)


def test_methods_and_conversions(device):
    x = device.array(MATRIX)
    assert len(x) == 3
    assert [row.tolist() for row in x] == MATRIX.tolist()
    assert x.item(1, 2) == 6
    assert [10, 20, 30, 40][device.array([2])[0]] == 30
    copied = x.T.copy()
    assert copied.contiguous
    assert copied.storage is not x.storage
    assert x.ravel().storage is x.storage
    for got, expected in (
        (copied, MATRIX.T),
        (x.T.ravel(), MATRIX.T.ravel()),
        (x.flatten(), MATRIX.ravel()),
        (x.dot(x.T), MATRIX @ MATRIX.T),
        (x.clip(2, None), MATRIX.clip(2)),
        ((x / 7).round(1), (MATRIX / 7).round(1)),
        (x[device.array([2, 0])], MATRIX[[2, 0]]),
    ):
        same(got, expected)
    assert (bool(x.all()), bool(x.any())) == (False, True)
    assert x.to_device(device) is x
    with pytest.raises(TypeError, match="no length"):
        len(x[0, 0])
    with pytest.raises(TypeError, match="is not an index"):
        [1, 2][x[0, 1]]


@pytest.mark.parametrize("shape", [(), (3, 4), (1200,), (200, 7), (5, 30, 40), (7, 200)])
def test_print_is_numpys(device, shape):
    expected = RNG.normal(size=shape).astype(np.float32)
    x = device.array(expected)
    assert str(x) == str(expected)
    assert f"{x}" == str(expected)
    assert repr(x).startswith("<webmm.Array")
    x.free()
    assert str(x) == repr(x)


MORE = {
    "flip": lambda x: np.flip(x, 1),
    "roll": lambda x: np.roll(x, 2),
    "roll axes": lambda x: np.roll(x, (1, -1), (0, 1)),
    "repeat": lambda x: np.repeat(x, 2, 1),
    "repeats": lambda x: np.repeat(x, [1, 0, 2], 0),
    "tile": lambda x: np.tile(x, (2, 1, 2)),
    "tril": lambda x: np.tril(x, -1),
    "triu of bool": lambda x: np.triu(x > 2),
    "stacks": lambda x: np.vstack([np.hstack([x, x]), np.column_stack([x, x])]),
    "dstack": lambda x: np.dstack([x, x]),
    "diagonal": lambda x: np.diagonal(x, 1),
    "trace": np.trace,
    "clip": lambda x: np.clip(x, 1, 3),
    "round": lambda x: np.round(x / 3, 2),
    "any": lambda x: np.any(x, axis=1),
    "outer": lambda x: np.outer(x[0], x[1]),
    "full": lambda x: np.full_like(x, 3) + np.ones_like(x),
    "split": lambda x: np.split(x, 2, 1)[1],
    "grid": lambda x: np.meshgrid(x[0], x[1])[1],
    "einsum": lambda x: np.einsum("ii->i", x[:, :3]),
    "einsum dots": lambda x: np.einsum("...ii->...i", x[None, :, :3]),
    "einsum trace": lambda x: np.einsum("ii,ij->j", x[:, :3], x),
    "ufuncs": lambda x: np.fmax(np.hypot(x, 3.0), np.degrees(x)) * np.copysign(x, -1.0),
}


@pytest.mark.parametrize("name", MORE)
def test_more_functions_of_numpy(device, name):
    same(MORE[name](device.array(MATRIX)), MORE[name](MATRIX))


def test_the_host_is_said_once_or_refused(device, caplog, monkeypatch):
    monkeypatch.setattr(host, "_said", set())
    x = device.array(MATRIX)
    with caplog.at_level(logging.WARNING, "webmm.host"):
        same(np.cumsum(x, axis=1), MATRIX.cumsum(1))
        same(np.cumsum(x), MATRIX.cumsum())
        same(np.cbrt(x), np.cbrt(MATRIX))
        same(np.add.reduce(x), MATRIX.sum(0))
        same(np.unique(x > 3, return_counts=True)[1], [4, 8])
        assert np.allclose(x, MATRIX) is True
    said = [record.getMessage().partition("(")[0] for record in caplog.records]
    assert said == ["numpy.cumsum", "numpy.cbrt", "numpy.add.reduce", "numpy.unique", "numpy.allclose"]
    monkeypatch.setattr(device, "settings", device.settings.__class__(host_functions=False))
    with pytest.raises(UnsupportedError, match=r"numpy.cumsum\(\) is not implemented on devices, and the setting"):
        np.cumsum(x)
    with pytest.raises(ProblemError, match="cannot write to an array on a device"):
        np.add(x, x, out=x)


def labelled(name, library):
    return type(name, (), {"__module__": library})()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.ma.array([1.0, 2.0], mask=[0, 1]), r"mask would be lost; write x.filled\(value\)"),
        (labelled("matrix", "numpy"), r"write np.asarray\(x\)"),
        (labelled("NDFrame", "pandas.core.generic"), r"labels would be lost; write x.to_numpy\(dtype='float32'\)"),
        (labelled("_spbase", "scipy.sparse._base"), r"it is sparse; write x.toarray\(\)"),
        ([[1.0, 2.0], [3.0]], "the list is not an array"),
        ([2**40], "does not fit int32"),
    ],
)
def test_data_of_which_something_would_be_lost(device, data, words):
    x = device.array(MATRIX)
    for call in (device.array, lambda data: webmm.matmul(data, data, device=device), lambda data: np.add(x, data)):
        with pytest.raises(ProblemError, match=words):
            call(data)


def test_lists_are_float32_or_int32(device):
    assert device.array([1.0, 2.0]).dtype == np.float32
    assert device.array([[1, 2]]).dtype == np.int32
    assert device.array([True]).dtype == np.bool_
    assert device.array([0.1], "float64").numpy()[0] == 0.1
    assert device.array([np.float64(0.1)]).dtype == np.float64  # it has a dtype
    np.testing.assert_array_equal(webmm.matmul([[1, 2], [3, 4]], [[1], [1]], device=device), [[3], [7]])


def test_devices_by_name(device):
    assert named("cpu") is named(device.info.index) is named(f"wgpu:{device.info.index}")
    np.testing.assert_array_equal(webmm.matmul(MATRIX.T, MATRIX, device="cpu"), MATRIX.T @ MATRIX)
    assert xp.asarray([1.0], device="cpu").device is named("cpu")
    with pytest.raises(ConfigError, match="no adapter matches 'nonesuch'"):
        webmm.reduce(MATRIX, "sum", device="nonesuch")
    with pytest.raises(ConfigError, match="device must be a Device, or a name"):
        named(1.5)


def test_inspection(device, monkeypatch):
    monkeypatch.setattr(xp, "default_device", lambda: device)
    assert xp.isdtype(xp.float16, ("bool", "real floating"))
    assert not xp.isdtype(xp.int32, xp.float32)
    assert xp.result_type(xp.float16, xp.float32, 1) == xp.float32
    assert xp.can_cast(xp.float16, xp.float32)
    info = xp.__array_namespace_info__()
    assert info.dtypes(kind="integral") == {"int32": xp.int32}
    assert info.default_dtypes()["indexing"] == xp.int32
    for kinds in ((xp.int32, xp.float32), (xp.int32, 1.5), (1, 2)):
        with pytest.raises(ProblemError, match="no common dtype"):
            xp.result_type(*kinds)
    same(xp.arange(1, 7, 2), [1, 3, 5])
    same(xp.linspace(0, 1, 4, endpoint=False), [0, 0.25, 0.5, 0.75])
    same(xp.eye(2, 3, k=1), np.eye(2, 3, 1))
    same(xp.std(xp.asarray(MATRIX), axis=0, correction=1), MATRIX.std(0, ddof=1))
    same(xp.unstack(xp.asarray(MATRIX), axis=1)[2], MATRIX[:, 2])
    same(xp.isnan(xp.asarray([1, 2])), [False, False])


def test_einops_computes_on_the_device(device):
    x = device.array(MATRIX)
    same(einops.rearrange(x, "a (b c) -> c a b", c=2), MATRIX.reshape(3, 2, 2).transpose(2, 0, 1))
    same(einops.reduce(x, "a b -> b", "mean"), MATRIX.mean(0))
    same(einops.repeat(x, "a b -> a b 2"), np.repeat(MATRIX[..., None], 2, 2))
    same(einops.einsum(x, x, "a b, c b -> a c"), MATRIX @ MATRIX.T)
    same(einops.pack([x, x], "* b")[0], np.concatenate([MATRIX, MATRIX]))
    same(einops.rearrange([x, x], "n a b -> a n b"), np.stack([MATRIX, MATRIX], 1))
