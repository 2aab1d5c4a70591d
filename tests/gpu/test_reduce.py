"""Public calls: webmm.reduce, softmax, layer and RMS normalisation, GELU, with NumPy's shapes, values and errors."""

import dataclasses
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webmm
from tests.sampled import crossed, sampled
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.kernels.elementwise.map import Map
from webmm.kernels.normalise.row_tiles import RowTiles
from webmm.kernels.normalise.rows import Rows
from webmm.kernels.normalise.strips import Strips
from webmm.problems.elementwise import Elementwise
from webmm.problems.normalise import Normalisation
from webmm.problems.reduce import OPERATIONS, Span, reduction
from webmm.wgsl.activations import gelu, gelu_tanh

NUMPY = {
    **{"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min},
    **{"argmax": np.argmax, "argmin": np.argmin},
}
OF_INTEGERS = [name for name, operation in OPERATIONS.items() if operation.integers]


def by_numpy(x, op, axis=None, keepdims=False):
    """Return NumPy's result, in float64, or in int32 for integers."""
    if x.dtype == np.int32:
        dtype = {"dtype": np.int32} if op in ("sum", "prod") else {}
        return NUMPY[op](x, axis=axis, keepdims=keepdims, **dtype)
    x = x.astype(np.float64)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if op in NUMPY:
            return NUMPY[op](x, axis=axis, keepdims=keepdims)
        axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        for a in sorted((a % x.ndim for a in axes), reverse=True):
            x = np.logaddexp.reduce(x, axis=a, keepdims=keepdims)
        return x


def assert_same(got, want, tolerance=2e-6):
    got = got.numpy() if isinstance(got, webmm.Array) else np.asarray(got)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


# reduce()


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("shape", [(7,), (5, 9), (3, 4, 5), (2, 3, 4, 5), (2, 1, 3)], ids=str)
def test_every_axis(device, op, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for axis in (None, *range(-len(shape), len(shape))):
        for keepdims in (False, True):
            got = webmm.reduce(x, op, axis, keepdims, device=device)
            assert got.dtype == (np.int32 if OPERATIONS[op].index else np.float32)
            assert_same(got, by_numpy(x, op, axis, keepdims))


@pytest.mark.parametrize("op", OF_INTEGERS)
@pytest.mark.parametrize("shape", [(7,), (5, 9), (3, 4, 5), (2, 3, 4, 5)], ids=str)
def test_int32_wraps_around_like_numpy(device, op, shape):
    x = (
        np.random.default_rng(0).integers(-(2**31), 2**31, shape, np.int32) | 1
    )  # odd: products of even numbers would become 0
    with device.array(x) as array:
        for axis in (None, *range(len(shape))):
            for got in (webmm.reduce(x, op, axis, device=device), webmm.reduce(array, op, axis).numpy()):
                assert got.dtype == np.int32
                np.testing.assert_array_equal(got, by_numpy(x, op, axis))
        for view in (array.T, array[::2], array[..., 1:]):
            np.testing.assert_array_equal(webmm.reduce(view, op, 0).numpy(), by_numpy(view.numpy(), op, 0))


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_row_larger_than_a_binding_is_reduced_in_pieces(op):
    rng = np.random.default_rng(1)
    with webmm.Device(limits={"max-storage-buffer-binding-size": 2**14}) as small:
        for dtype in ("float32", *(["int32"] if op in OF_INTEGERS else [])):
            anything = rng.integers(-(2**31), 2**31, (3, 10_001), np.int32) | 1
            x = anything if dtype == "int32" else rng.random((3, 10_001))
            x = (np.exp(x - 0.5) ** 0.05 if op == "prod" and dtype == "float32" else x).astype(dtype)
            for given in (x, x[::-1], small.array(x)):
                want = by_numpy(np.asarray(given), op, 1)
                got = np.asarray(webmm.reduce(given, op, 1, device=small))
                np.testing.assert_allclose(got, want, 0 if dtype == "int32" else 1e-4)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        *(
            ("sum", np.int32([1, 3])),
            ("max", np.int32([1, 1])),
            ("argmax", np.int32([2, 0])),
            ("any", np.int32([1, 1])),
        ),
        *(("mean", np.float32([1 / 3, 1])), ("var", np.float32([2 / 9, 0]))),
    ],
)
def test_booleans_count(device, op, expected):
    """As int32, or as float32 for operations and results of floats."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for truth in (device.array(x) > 1, x > 1):
        got = np.asarray(webmm.reduce(truth, op, 1))
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert got.dtype == (bool if op == "any" else expected.dtype)
    for op, dtype in (("sum", "float32"), ("prod", "float16"), ("max", "float32")):
        got = webmm.reduce(x > 1, op, 1, out_dtype=dtype, device=device)
        assert got.dtype == dtype
        assert got.tolist() == getattr(x > 1, op)(axis=1).astype(float).tolist()


def test_several_and_no_axes(device):
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    for axis in ((0, 1), (1, 2), (-1, -2), (0, 2), (3, 0, 1), (0, 1, 2, 3), ()):
        assert_same(webmm.reduce(x, "sum", axis, device=device), by_numpy(x, "sum", axis))
        assert_same(webmm.reduce(x, "max", axis, True, device=device), by_numpy(x, "max", axis, True))
    assert_same(webmm.reduce(np.float32(3), "sum", device=device), 3)


VIEWS = {
    "strided rows": lambda x: x[::2],
    "columns cut off": lambda x: x[:, 1:6, 2:],
    "transposed": lambda x: x.T,
    "every third": lambda x: x[:, :, ::3],
    "backwards": lambda x: x[:, ::-1],
    "new axis": lambda x: x[:, None, 2],
    "one element": lambda x: x[3:4, 2:3, 1:2],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_stay_on_the_device(device, view):
    x = np.random.default_rng(2).standard_normal((6, 7, 12)).astype(np.float32)
    with device.array(x) as array:
        for axis in (0, 1, 2, None, (0, 1), (0, 2)):
            got = webmm.reduce(view(array), "sum", axis)
            assert isinstance(got, webmm.Array)
            assert_same(got, by_numpy(view(x), "sum", axis))
        assert_same(webmm.reduce(view(array), "argmax", 1), by_numpy(view(x), "argmax", 1))
        assert_same(webmm.reduce(view(array), "argmax"), by_numpy(view(x), "argmax"))


def test_a_broadcast_view_of_many_strides(device):
    x = np.random.default_rng(3).standard_normal((4, 1, 3)).astype(np.float32)
    with device.array(x) as array:
        wide = array.broadcast_to((2, 4, 5, 3))
        for axis in (0, 1, 2, 3):
            assert_same(webmm.reduce(wide, "sum", axis), by_numpy(np.broadcast_to(x, (2, 4, 5, 3)), "sum", axis))


@pytest.mark.parametrize("op", OPERATIONS)
def test_empty_operands(device, op):
    for shape, axis in (((0, 3), 0), ((0, 3), 1), ((0,), None), ((0, 0), 1), ((3, 0), 0)):
        x = np.zeros(shape, np.float32)
        try:
            want = by_numpy(x, op, axis) if op != "logsumexp" else np.full(np.sum(x, axis=axis).shape, -np.inf)
        except ValueError:
            with pytest.raises(ProblemError, match="over no elements"):
                webmm.reduce(x, op, axis, device=device)
        else:
            assert_same(webmm.reduce(x, op, axis, device=device), want)


def test_float16(device):
    x = np.random.default_rng(4).standard_normal((3, 600)).astype(np.float16)
    got = webmm.reduce(x, "sum", 1, device=device)
    assert got.dtype == np.float16
    assert_same(got, by_numpy(x, "sum", 1), 2e-3)
    got = webmm.reduce(np.full((2, 2000), 100, np.float16), "sum", 1, device=device)
    assert np.isinf(got).all()  # as in NumPy: 200,000 overflows float16
    got = webmm.reduce(np.full((2, 2000), 100, np.float16), "sum", 1, out_dtype="float32", device=device)
    assert got.tolist() == [200_000, 200_000]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: webmm.reduce(x, "median"), "choose from sum, mean, prod, max, min, argmax, argmin, logsumexp"),
        (lambda x: webmm.reduce(x, "sum", 2), "axis 2 is out of range"),
        (lambda x: webmm.reduce(x, "sum", (0, -2)), "twice"),
        (lambda x: webmm.reduce(x, "argmax", (0, 1)), "one axis"),
        (lambda x: webmm.reduce(x, "sum", [0, 1]), "an axis must be an integer"),
        (lambda x: webmm.softmax(x, None), "an axis must be an integer"),
        (lambda x: webmm.softmax(x, 0.5), "an axis must be an integer"),
        (lambda x: webmm.reduce(x, "argmax", 0, out_dtype="float32"), "results in int32"),
        (lambda x: webmm.reduce(x.astype(int), "sum"), "cast"),
        (lambda x: webmm.reduce(x.astype(np.uint8), "sum"), "cast to one of float32"),
        (
            lambda x: webmm.reduce(x.astype(np.int32), "mean"),
            r"mean is of floats, not of int32; cast its operand, e\.g\.",
        ),
        (lambda x: webmm.reduce(x.astype(np.int32)[:0], "logsumexp", 0), "logsumexp is of floats"),
        (lambda x: webmm.reduce(x.astype(np.int32)[:0], "argmin", 0), r"argmin over no elements: x has shape \(0, 3\)"),
        (lambda x: webmm.reduce(x.astype(np.int32), "sum", out_dtype="float16"), "results in int32, not in float16"),
        (lambda x: webmm.reduce(x, "prod", out_dtype="int32"), "dtype int32 is not supported by reductions"),
        (lambda x: webmm.reduce(x, "argmin", (0, 1)), "one axis"),
        (lambda x: webmm.layer_norm(x, np.ones(4, np.float32)), re.escape("must have shape (3,)")),
        (lambda x: webmm.rms_norm(x, np.ones(3, np.float16)), "dtype float32"),
        (lambda x: webmm.softmax(x, 5), "out of range"),
        (lambda x: webmm.softmax(np.float32(1)), "out of range"),
        (lambda x: webmm.gelu(x.astype(np.uint8)), "not supported"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ProblemError, match=words):
        call(np.ones((2, 3), np.float32))


shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 31, 64, 130]), min_size=1, max_size=4).filter(
    lambda shape: np.prod(shape) <= 40_000
)


def test_any_shape_axis_and_operation(device):
    @settings(max_examples=60)
    @given(shapes, st.sampled_from(sorted(OPERATIONS)), st.booleans(), st.data())
    def check_drawn(shape, op, keepdims, data):
        axes = range(-len(shape), len(shape))
        axis = data.draw(st.one_of(st.none(), st.sampled_from(axes)))
        x = np.random.default_rng(len(shape)).integers(-8, 9, shape).astype(np.float32)
        x = np.sign(x - 0.5) * 2 ** (x % 2 - 0.5) if op == "prod" else x
        assert_same(webmm.reduce(x, op, axis, keepdims, device=device), by_numpy(x, op, axis, keepdims))

    check_drawn()


def test_arrays_larger_than_a_binding_take_several_dispatches():
    x = np.random.default_rng(5).standard_normal((300, 16, 16)).astype(np.float32)
    with webmm.Device(limits={"max-storage-buffer-binding-size": 2**16}) as small, small.array(x) as array:
        for axis in (1, 2):
            assert_same(webmm.reduce(array, "sum", axis), by_numpy(x, "sum", axis))
        # 300 elements that cancel out; the sum of each part is rounded once more
        assert (
            np.abs(webmm.reduce(array, "sum", 0).numpy() - by_numpy(x, "sum", 0)).max() < 1e-7 * np.abs(x).sum(0).max()
        )
        e = np.exp(x.astype(np.float64))
        assert_same(webmm.softmax(array, 1), e / e.sum(axis=1, keepdims=True))


# Normalisations and GELU


def softmax(x, axis=-1):
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)


def layer_norm(x, weight=1.0, bias=0.0, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


def rms_norm(x, weight=1.0, eps=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


@pytest.mark.parametrize("shape", [(1,), (5, 1), (3, 130), (2, 3, 64), (2, 3, 4, 33)], ids=str)
def test_normalisations(device, shape):
    rng = np.random.default_rng(6)
    x = (rng.standard_normal(shape) * 3 + 1).astype(np.float32)
    weight, bias = rng.standard_normal((2, shape[-1])).astype(np.float32)
    wide = x.astype(np.float64)
    for axis in range(-len(shape), len(shape)):
        assert_same(webmm.softmax(x, axis, device=device), softmax(wide, axis), 1e-5)
    assert_same(webmm.layer_norm(x, device=device), layer_norm(wide), 2e-5)
    assert_same(webmm.layer_norm(x, weight, bias, 1e-3, device=device), layer_norm(wide, weight, bias, 1e-3), 2e-5)
    assert_same(webmm.layer_norm(x, bias=bias, device=device), layer_norm(wide, bias=bias), 2e-5)
    assert_same(webmm.rms_norm(x, device=device), rms_norm(wide), 1e-5)
    assert_same(webmm.rms_norm(x, weight, 1e-2, device=device), rms_norm(wide, weight, 1e-2), 1e-5)
    assert_same(webmm.gelu(x, device=device), gelu(wide), 1e-5)
    assert_same(webmm.gelu(x, approximate=True, device=device), gelu_tanh(wide), 1e-5)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_normalisations_of_views(device, view):
    x = np.random.default_rng(7).standard_normal((6, 7, 12)).astype(np.float32)
    wide = view(x.astype(np.float64))
    with device.array(x) as array, device.array(np.arange(24, dtype=np.float32)) as weights:
        assert_same(webmm.softmax(view(array), 1), softmax(wide, 1), 1e-5)
        weight = weights[1 : 1 + 2 * wide.shape[-1] : 2] if wide.shape[-1] < 12 else weights[5:17]
        assert_same(webmm.rms_norm(view(array), weight), rms_norm(wide, weight.numpy()), 1e-5)
        assert_same(webmm.gelu(view(array)), gelu(wide), 1e-5)


def test_softmax_of_empty_rows(device):
    assert webmm.softmax(np.zeros((3, 0), np.float32), device=device).shape == (3, 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("length", [64, 65])
def test_normalisations_of_16_bit_types(device, dtype, tolerance, length):
    dtype = dtype_of(dtype).numpy
    x = np.random.default_rng(8).standard_normal((3, length)).astype(dtype)
    wide = x.astype(np.float64)
    for got, want in (
        (webmm.softmax(x, device=device), softmax(wide)),
        (webmm.softmax(x, 0, device=device), softmax(wide, 0)),
        (webmm.layer_norm(x, device=device), layer_norm(wide)),
        (webmm.rms_norm(x, np.full(length, 2, dtype), device=device), rms_norm(wide, 2)),
        (webmm.gelu(x, device=device), gelu(wide)),
    ):
        assert got.dtype == dtype
        assert_same(got, want, tolerance)


def test_softmax_of_special_values(device):
    inf, nan = np.inf, np.nan
    x = np.array([[1e30, 0, 1], [-inf, 0, 0], [-inf] * 3, [inf, 0, 1], [nan, 0, 1], [-1e38, -2e38, -3e38]], np.float32)
    for length in (3, 4):  # single elements, and vec4
        rows = np.concatenate([x, x[:, 1:2]], axis=1)[:, :length]
        assert_same(webmm.softmax(rows, device=device), softmax(rows.astype(np.float64)), 1e-6)


def test_variance_with_a_large_mean(device):
    x = (1000 + np.random.default_rng(9).standard_normal((2, 500)) * 0.1).astype(np.float32)
    assert_same(webmm.layer_norm(x, device=device), layer_norm(x.astype(np.float64)), 2e-3)


# Rows of 200 elements stay in registers with the first three settings, rows of 301 only with the last.
ROWS = [Rows(32, 2), Rows(64, 1, "subgroup"), Rows(8, 8, "alone"), Rows(8, 4, "alone"), Rows(1, 1), Rows(32, 4)]
SPLIT_ROWS = [
    Rows(32, 1, splits=2),
    Rows(64, 1, "subgroup", 4),
    Rows(1, 2, splits=8),
]  # the last has more splits than needed


@pytest.mark.parametrize("kernel", sampled([*ROWS, *SPLIT_ROWS]), ids=str)
def test_settings_of_row_normalisations(device, kernel):
    rng = np.random.default_rng(10)
    for function, reference in {"softmax": softmax, "layer_norm": layer_norm, "rms_norm": rms_norm}.items():
        for length in (200, 301):
            problem = _normalisation(function, 5, length)
            if kernel.check(problem, device.capabilities):
                continue
            x = rng.standard_normal((5, length)).astype(np.float32)
            y = device.array(np.full((5, length), -77, np.float32))
            device.run(kernel, problem, device.array(x), y)
            assert_same(y, reference(x.astype(np.float64)), 1e-5)


STRIPS = [
    *(Strips(8, 4, 2), Strips(8, 8, 8), Strips(5, 1, 4), Strips(1, 64, 1), Strips(8, 4, 2, 2), Strips(6, 1, 1, 8)),
    *(Strips(8, 4, 2, 3), Rows(8, 2)),
]


@pytest.mark.parametrize(
    ("kernel", "shape"), crossed(STRIPS, [(2, 37, 8), (1, 100, 36), (3, 8, 5), (2, 32, 32)]), ids=str
)
def test_softmax_of_columns(device, kernel, shape):
    x = np.random.default_rng(11).standard_normal(shape).astype(np.float32)
    x[0, 3, 1], x[0, 2, 2], x[0, :, 3], x[-1, 5, 0] = np.nan, np.inf, -np.inf, -np.inf
    dtype = dtype_of("float32")
    for offset in (0, 3):
        span = dataclasses.replace(Span.dense(*shape[1:]), offset=offset)
        problem = Normalisation("logsumexp", *shape, dtype, dtype, span, y_offset=offset)
        y = device.array(np.full(x.size + offset + 4, -77, np.float32))
        device.run(kernel, problem, device.array(np.concatenate([np.full(offset, np.nan, np.float32), x.ravel()])), y)
        result = y.numpy()
        assert_same(result[offset : offset + x.size].reshape(shape), softmax(x.astype(np.float64), 1), 1e-5)
        assert (result[:offset] == -77).all()
        assert (result[offset + x.size :] == -77).all()


TILES = [
    RowTiles(64, 1, 3, load="tile"),
    RowTiles(64, 4, 6, load="tile"),
    RowTiles(128, 8, 4, "subgroup", "tile"),
    RowTiles(64, 4, 2),
    RowTiles(32, 8, 4, "subgroup"),
]


@pytest.mark.parametrize(("dtype", "kernel"), crossed(["float32", "float16", "bfloat16"], TILES, step=5), ids=str)
def test_tiles_of_short_rows(device, kernel, dtype):
    rng, element = np.random.default_rng(12), dtype_of(dtype)
    for function, reference in {"softmax": softmax, "layer_norm": layer_norm, "rms_norm": rms_norm}.items():
        for rows, length, offset in ((301, kernel.step, 0), (130, kernel.step - 3, 0), (7, 9, 2)):
            span, scaled = Span(length, 1, 1, offset), function != "softmax"
            problem = dataclasses.replace(
                _normalisation(function, rows, length),
                **{
                    "dtype": element,
                    "out_dtype": element,
                    "x": span,
                    "y_offset": offset,
                    "weight": scaled,
                    "bias": scaled,
                },
            )
            if kernel.check(problem, device.capabilities):
                continue
            x = rng.standard_normal((rows, length)).astype(element.numpy)
            if not scaled:
                x[1, 3], x[2, 2], x[3], x[4, 5] = np.nan, np.inf, -np.inf, -np.inf
            weight, bias = (rng.random(length).astype(element.numpy) for _ in range(2))
            want = reference(x.astype(np.float64))
            want = want * weight.astype(np.float64) + bias.astype(np.float64) if scaled else want
            y = device.array(np.full(x.size + offset + 4, -77, element.numpy))
            vectors = [device.array(weight), device.array(bias)] if scaled else []
            flat = np.concatenate([np.full(offset, np.nan, element.numpy), x.ravel()])
            device.run(kernel, problem, device.array(flat), y, *vectors)
            got = y.numpy().astype(np.float64)
            tolerance = 1e-5 if dtype == "float32" else 2e-2
            assert_same(got[offset : offset + x.size].reshape(x.shape), want, tolerance)
            assert (np.delete(got, slice(offset, offset + x.size)) == -77).all()


def test_variance_of_parts_with_a_large_mean(device):
    x = (1000 + np.random.default_rng(9).standard_normal((2, 5000)) * 0.1).astype(np.float32)
    y = device.array(np.full(x.shape, -77, np.float32))
    device.run(Rows(32, 1, splits=8), _normalisation("layer_norm", *x.shape), device.array(x), y)
    assert_same(y, layer_norm(x.astype(np.float64)), 2e-3)


def _normalisation(function, rows, length):
    operation, dtype = "logsumexp" if function == "softmax" else "sum", reduction(1, 1).dtype
    return Normalisation(
        operation, rows, length, 1, dtype, dtype, Span.dense(length, 1), function=function, epsilon=1e-5
    )


@pytest.mark.parametrize("dialect", ["naga", "tint"])
def test_to_json_holds_everything_another_host_needs(dialect):
    for kernel, problem in (
        (Rows(64, 1, "subgroup"), _normalisation("softmax", 5, 64)),
        (Map(), Elementwise("gelu", 100, reduction(1, 1).dtype)),
    ):
        data = webmm.render(kernel, problem, dialect).to_json()
        assert ("enable subgroups;" in data["wgsl"]) == (dialect == "tint" and kernel.subgroup > 0)
        assert [binding["name"] for binding in data["bindings"]] == ["params", "x", "y"]


@pytest.mark.parametrize("bits", [0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_every_nan_is_found(device, bits):
    nan = np.array([bits], np.uint32).view(np.float32)[0]
    for length in (4, 70, 3000):
        x = np.arange(5 * length, dtype=np.float32).reshape(5, length)
        x[:, length // 2] = nan
        for op in ("argmax", "argmin"):
            assert (webmm.reduce(x, op, 1, device=device) == length // 2).all()
            assert (webmm.reduce(x.T.copy(), op, 0, device=device) == length // 2).all()
        for op in ("max", "min"):
            assert np.isnan(webmm.reduce(x, op, 1, device=device)).all()
