"""The Array API namespace agrees with `array-api-strict` in values, dtypes and shapes, on arrays of Hypothesis."""

import operator

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace

import webmm
import webmm.calls.array_api as xp
from webmm.errors import ProblemError

drawing = make_strategies_namespace(strict, api_version="2024.12")
EXAMPLES = settings(max_examples=12)
ELEMENTS = {
    "float32": st.floats(-100, 100, width=16) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0]),
    "int32": st.integers(-1000, 1000),
    "bool": st.booleans(),
}
UNARY = {
    "float32": ["abs", "exp", "log", "sqrt", "tanh", "negative", "positive", "square", "isnan", "isinf", "isfinite"],
    "int32": ["abs", "negative", "positive", "square", "isnan", "isinf", "isfinite"],
    "bool": ["logical_not"],
}
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
BINARY = {
    "float32": ["add", "subtract", "multiply", "divide", "maximum", "minimum", *COMPARISONS],
    "int32": ["add", "subtract", "multiply", "maximum", "minimum", *COMPARISONS],
    "bool": ["logical_and", "logical_or", "equal", "not_equal"],
}
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.ge, operator.eq]


@pytest.fixture(autouse=True)
def default(device, monkeypatch):
    """Make the tests' device the default device."""
    monkeypatch.setattr(xp, "default_device", lambda: device)


def arrays(dtype, shape=None, elements=None):
    shape = drawing.array_shapes(min_dims=0, max_dims=4, max_side=5) if shape is None else shape
    return drawing.arrays(getattr(strict, dtype), shape, elements=ELEMENTS[dtype] if elements is None else elements)


def ours(x):
    return xp.asarray(np.asarray(x))


def same(got, expected, rtol=0.0):
    """Assert that an Array equals strict's array in shape, dtype and values, up to `rtol`."""
    wanted = np.asarray(expected)
    assert isinstance(got, webmm.Array)
    assert got.shape == wanted.shape
    kind = {np.dtype("int64"): np.dtype("int32")}.get(wanted.dtype, wanted.dtype)  # int64 is not supported
    assert got.dtype == kind
    np.testing.assert_allclose(got.numpy(), wanted, rtol=rtol, atol=rtol)


def cases(table):
    return [pytest.param(dtype, name, id=f"{name} {dtype}") for dtype, names in table.items() for name in names]


@pytest.mark.parametrize(("dtype", "name"), cases(UNARY))
def test_unary_functions(dtype, name):
    @EXAMPLES
    @given(arrays(dtype))
    def agree(x):
        with np.errstate(all="ignore"):
            same(getattr(xp, name)(ours(x)), getattr(strict, name)(x), 2e-5)

    agree()


@pytest.mark.parametrize(("dtype", "name"), cases(BINARY))
def test_binary_functions(dtype, name):
    @EXAMPLES
    @given(st.data())
    def agree(data):
        shapes = data.draw(drawing.mutually_broadcastable_shapes(2, max_dims=4, max_side=4))
        x, y = (data.draw(arrays(dtype, shape)) for shape in shapes.input_shapes)
        with np.errstate(all="ignore"):
            same(getattr(xp, name)(ours(x), ours(y)), getattr(strict, name)(x, y), 1e-6)

    agree()


@EXAMPLES
@given(st.data(), st.sampled_from(OPERATORS), st.sampled_from(["float32", "int32"]))
def test_operators_with_numbers(data, operation, dtype):
    if (operation, dtype) == (operator.truediv, "int32"):
        dtype = "float32"
    x = data.draw(arrays(dtype))
    number = data.draw(st.integers(-9, 9).filter(bool) if dtype == "int32" else st.floats(0.5, 8, width=16))
    with np.errstate(all="ignore"):
        same(operation(ours(x), number), operation(x, number), 1e-6)
        same(operation(number, ours(x)), operation(number, x), 1e-6)


@EXAMPLES
@given(st.data(), st.sampled_from([operator.eq, operator.ne, operator.and_, operator.or_]), st.booleans())
def test_operators_with_booleans(data, operation, truth):
    x = data.draw(arrays("bool"))
    same(operation(ours(x), truth), operation(x, truth))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]))
def test_where(data, dtype):
    shapes = data.draw(drawing.mutually_broadcastable_shapes(3, max_dims=3, max_side=4)).input_shapes
    kinds = ("bool", dtype, dtype)
    c, x, y = (data.draw(arrays(kind, shape)) for kind, shape in zip(kinds, shapes, strict=True))
    same(xp.where(*map(ours, (c, x, y))), strict.where(c, x, y))


POSITIONS = ["argmax", "argmin"]
REDUCTIONS = ["sum", "prod", "mean", "max", "min", *POSITIONS]


@settings(max_examples=40)
@given(st.data(), st.sampled_from(["float32", "float16"]), st.sampled_from(REDUCTIONS))
def test_reductions(data, stored, name):
    finite = st.sampled_from([-1.5, -1.0, 0.75, 1.0]) if name == "prod" else st.floats(-100, 100, width=16)
    shape = drawing.array_shapes(min_dims=1, max_dims=4, max_side=5)
    x = data.draw(arrays("float32", shape, finite))
    axis, keepdims = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
    got = getattr(xp, name)(ours(x).astype(stored), axis=axis, keepdims=keepdims)
    assert got.dtype == (np.int32 if name in POSITIONS else stored)
    expected = getattr(strict, name)(x, axis=axis, keepdims=keepdims)
    # strict's sums are float32; in float16, sums of up to 100 × 625 are rounded.
    got = got if name in POSITIONS else got.astype("float32")
    if name == "prod" and stored == "float16":
        expected = strict.clip(expected, -65504.0, 65504.0)
        got = xp.minimum(xp.maximum(got, -65504.0), 65504.0)
    same(got, expected, 2e-3 if stored == "float16" else 1e-5)


@settings(max_examples=40)
@given(st.data(), st.sampled_from([name for name in REDUCTIONS if name != "mean"]))
def test_reductions_of_int32(data, name):
    """The default integer is int32: sums and products wrap around."""
    anything = st.integers(-(2**31), 2**31 - 1)
    x = data.draw(arrays("int32", drawing.array_shapes(min_dims=1, max_dims=4, max_side=5), anything))
    axis, keepdims = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
    expected = getattr(strict, name)(x, axis=axis, keepdims=keepdims)
    with np.errstate(all="ignore"):
        same(getattr(xp, name)(ours(x), axis=axis, keepdims=keepdims), strict.astype(expected, strict.int32))


@settings(max_examples=15)
@given(st.data(), st.sampled_from(["sum", "prod"]))
def test_reductions_into_another_type(data, name):
    x = data.draw(arrays("int32", drawing.array_shapes(min_dims=1, max_dims=3, max_side=4), st.integers(-2, 2)))
    same(getattr(xp, name)(ours(x), dtype=xp.float32), getattr(strict, name)(x, dtype=strict.float32))


@settings(max_examples=40)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]), st.sampled_from(["all", "any"]))
def test_all_and_any(data, dtype, name):
    few = {"float32": st.sampled_from([0.0, 1.5]), "int32": st.sampled_from([0, -3])}
    x = data.draw(arrays(dtype, drawing.array_shapes(max_dims=4, max_side=4, min_side=0), few.get(dtype)))
    axis, keepdims = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
    same(
        getattr(xp, name)(ours(x), axis=axis, keepdims=keepdims), getattr(strict, name)(x, axis=axis, keepdims=keepdims)
    )


@settings(max_examples=15)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]))
def test_like_functions(data, dtype):
    x = data.draw(arrays(dtype, drawing.array_shapes(min_dims=2, max_dims=4, max_side=5)))
    same(xp.zeros_like(ours(x)), strict.zeros_like(x))
    same(xp.ones_like(ours(x), dtype=xp.float32), strict.ones_like(x, dtype=strict.float32))
    same(xp.full_like(ours(x), 1), strict.full_like(x, x.dtype == strict.bool or 1))
    same(xp.matrix_transpose(ours(x)), strict.matrix_transpose(x))
    assert xp.empty_like(ours(x)).shape == x.shape
    copy = xp.asarray(ours(x), copy=True)
    same(copy, x)


def test_limits_and_copies():
    x = xp.asarray([1.0])
    assert xp.finfo(x).bits == xp.finfo(xp.float32).bits == 32
    assert xp.iinfo(xp.int32).max == 2**31 - 1
    assert xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True).storage is not x.storage
    with pytest.raises(ProblemError, match="needs a copy"):
        xp.asarray([1.0], copy=False)


@settings(max_examples=25)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]))
def test_joining(data, dtype):
    shape = list(data.draw(drawing.array_shapes(min_dims=1, max_dims=4, max_side=4)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = [data.draw(arrays(dtype, tuple(shape)))]
    same(xp.stack([ours(x) for x in parts * 2], axis=axis), strict.stack(parts * 2, axis=axis))
    shape[axis] = data.draw(st.integers(0, 5))
    parts.append(data.draw(arrays(dtype, tuple(shape))))
    same(xp.concat([ours(x) for x in parts], axis=axis), strict.concat(parts, axis=axis))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]))
def test_take(data, dtype):
    x = data.draw(arrays(dtype, drawing.array_shapes(min_dims=1, max_dims=4, max_side=5)))
    axis = data.draw(st.integers(0, x.ndim - 1))
    indices = data.draw(st.lists(st.integers(0, x.shape[axis] - 1), min_size=1, max_size=6))
    at = strict.asarray(indices, dtype=strict.int32)
    same(xp.take(ours(x), ours(at), axis=axis), strict.take(x, at, axis=axis))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]), st.sampled_from(["float32", "int32", "bool"]))
def test_astype(data, dtype, to):
    x = data.draw(arrays(dtype, elements=st.integers(-99, 99) if dtype == "float32" else None))
    same(xp.astype(ours(x), getattr(xp, to)), strict.astype(x, getattr(strict, to)))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(["float32", "int32", "bool"]))
def test_computing_with_views(data, dtype):
    x = data.draw(arrays(dtype, drawing.array_shapes(min_dims=2, max_dims=4, max_side=5)))
    key = data.draw(drawing.indices(x.shape))
    view = ours(x)[key]
    same(xp.equal(view, view), strict.equal(x[key], x[key]))
    axes = data.draw(st.permutations(range(x.ndim)))
    same(
        xp.astype(xp.permute_dims(ours(x), axes), xp.float32),
        strict.astype(strict.permute_dims(x, axes), strict.float32),
    )
    same(xp.reshape(xp.permute_dims(ours(x), axes), (-1,)), strict.reshape(strict.permute_dims(x, axes), (-1,)))


def test_float16_and_mixed_floats():
    x = np.linspace(-3, 3, 77).astype(np.float16)
    half, single = xp.asarray(x), xp.asarray(x.astype(np.float32))
    assert (half * half).dtype == np.float16
    assert (half * 2.5).dtype == np.float16
    assert (half * single).dtype == np.float32
    np.testing.assert_allclose((half * half).numpy(), x * x, rtol=1e-3)
    np.testing.assert_allclose(xp.exp(half).numpy(), np.exp(x), rtol=2e-3)


def test_more_axes_than_a_shader_supports():
    x = np.arange(2**7, dtype=np.float32).reshape((2,) * 7)
    got = xp.asarray(x).T[..., None] + xp.asarray(x)[..., None]
    np.testing.assert_array_equal(got.numpy(), (x.T + x)[..., None])


def test_the_namespace_is_found():
    x = xp.asarray([1.0, 2.0])
    assert x.dtype == np.float32
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ProblemError, match=r"version 2199\.12 of the array API is not supported"):
        x.__array_namespace__(api_version="2199.12")
    assert xp.ones((2, 3)).sum().item() == 6
    assert xp.full(3, 7).dtype == np.int32
    assert xp.zeros(2, dtype=xp.bool).dtype == np.bool_


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda x, i: x + i, "f32 and i32 cannot be combined; cast one"),
        (lambda x, i: i + 0.5, "a float and int32 cannot be combined; cast"),
        (lambda x, i: i / i, "not defined for i32; cast"),
        (lambda x, i: xp.exp(i), r"exp\(\) is not defined for i32"),
        (lambda x, i: xp.mean(i), r"mean is of floats, not of int32; cast its operand, e\.g\. x\.astype"),
        (lambda x, i: i.prod(dtype="float32"), "prod of int32 results in int32, not in float32"),
        (lambda x, i: (i[:0]).argmin(), r"argmin over no elements"),
        (lambda x, i: x[:2] + x, r"shapes \(2,\), \(3,\) do not broadcast"),
        (lambda x, i: i + 2**40, "does not fit int32"),
        (lambda x, i: xp.concat([x, i]), "dtypes float32, int32 must be equal"),
        (lambda x, i: xp.concat([x, x[None]]), "cannot be joined along axis 0"),
        (lambda x, i: xp.concat([x], axis=1), "axis 1 is out of range for 1 axes"),
        (lambda x, i: xp.stack([x, x[:1]]), "cannot be stacked; they must be equal"),
        (lambda x, i: xp.take(x, [3], axis=0), "an index is out of range for 3 elements"),
        (lambda x, i: xp.take(x, [0.5], axis=0), "indices must be integers"),
        (lambda x, i: xp.where(x, x, x), "where/3"),
        (lambda x, i: bool(x == x), r"an array of shape \(3,\) is not a single value"),
        (lambda x, i: x + np.zeros(3), "float64 is not supported by expressions; cast"),
        (lambda x, i: webmm.elementwise("x +", x=x), "is not an expression"),
        (lambda x, i: webmm.elementwise("x + z", x=x), "z was not given; the operands are x"),
        (lambda x, i: webmm.elementwise("open(x)", x=x), "open/1 is not known; there are where/3"),
        (lambda x, i: webmm.elementwise("x.T", x=x), "x0.T is not allowed in an expression"),
        (
            lambda x, i: webmm.elementwise("x < 1", x=x, out_dtype="float32"),
            "has dtype bool; cast to float32 within the expression",
        ),
    ],
)
def test_bad_input(compute, words):
    with pytest.raises(ProblemError, match=words):
        compute(xp.asarray([1.0, 2.0, 3.0]), xp.asarray([1, 2, 3]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float64"])
def test_copies_of_dtypes_without_arithmetic(device, dtype):
    x = device.array(np.arange(6).astype(dtype))
    y = xp.asarray(x, copy=True)
    assert y.storage is not x.storage
    np.testing.assert_array_equal(y.numpy(), x.numpy())
