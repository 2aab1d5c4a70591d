"""Products of 8-bit integers, bit for bit equal to 64-bit NumPy: every kernel, dtype, layout and rounding."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webmm
from tests.sampled import crossed
from webmm.arguments.quantized import integer_range
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.kernels.quantized.packed import Packed
from webmm.kernels.quantized.unpacked import Unpacked
from webmm.problems.product import Operand
from webmm.problems.quantized import describe
from webmm.problems.scheme import FixedPoint, Scheme, reference

U8, I8, I32, F32 = (dtype_of(name) for name in ("uint8", "int8", "int32", "float32"))
TILES = {"bm": 32, "bn": 32, "bk": 8, "tm": 4, "tn": 4, "unroll": 1}  # compile quickly on a CPU
KERNELS = [Unpacked(wy=4, wx=4), Packed(**TILES)]
EMULATED = Packed(**TILES, dot="emulated")
FILL = 0x55  # padding of the operands
SPARE = 64

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def scheme_of(scale_a=1.0, zero_a=0, scale_b=1.0, zero_b=0, scale_c=None, zero_c=0, bias=None):
    """Return a scheme as `qmatmul()` creates it."""
    scales = (np.asarray(x, np.float32) for x in (scale_a, scale_b))
    zeros = (np.asarray(x, np.int32) for x in (zero_a, zero_b))
    (sa, sb), (za, zb) = scales, zeros
    return Scheme(sa, za, sb, zb, scale_c, zero_c, None if bias is None else np.asarray(bias, np.int32))


def draw(rng, shape, dtype):
    bottom, top = integer_range(dtype)
    return rng.integers(bottom, top, shape, endpoint=True).astype(dtype.numpy)


def lay_out(matrix, transposed, pad, offset):
    """Return a buffer that holds the matrix, and its Operand."""
    stored = matrix.T if transposed else matrix
    ld = stored.shape[1] + pad
    buffer = np.full(offset + stored.shape[0] * ld + SPARE, FILL, matrix.dtype)
    for i, line in enumerate(stored):
        buffer[offset + i * ld : offset + i * ld + line.size] = line
    return buffer, Operand(ld, offset=offset, transposed=transposed)


def check(device, kernel, a, b, scheme, out, *, ta=False, tb=False, pads=(0, 0), offsets=(0, 0)):
    """Multiply a and b by `kernel`, and assert that every element equals the reference and nothing else is written."""
    (m, k), n = a.shape, b.shape[1]
    a_buffer, left = lay_out(a, ta, pads[0], offsets[0])
    b_buffer, right = lay_out(b, tb, pads[1], offsets[1])
    operands = [(dtype_of(x.dtype), operand) for x, operand in ((a, left), (b, right))]
    problem, terms = describe(m, n, k, *operands, scheme, out)
    blank = np.full(m * n + SPARE, FILL, out.numpy)
    arrays = [device.array(x) for x in (a_buffer, b_buffer, blank, *terms)]
    device.run(kernel, problem, *arrays)
    got = arrays[2].numpy()
    for array in arrays:
        array.free()
    expected = reference(a, b, scheme, out)
    wrong = np.argwhere(got[: m * n].reshape(m, n) != expected)
    what = f"{kernel}: {problem!r}"
    assert not len(wrong), f"{len(wrong)} wrong, first {tuple(wrong[0])}, in {what}"
    assert (got[m * n :] == FILL).all(), f"stray writes by {what}"


# Every dtype, layout and output

PAIRS = [(U8, U8), (I8, I8), (U8, I8), (I8, U8)]


@pytest.mark.parametrize(("kernel", "dtypes"), crossed([*KERNELS, EMULATED], PAIRS), ids=str)
def test_types_and_zero_points(device, kernel, dtypes):
    a_dtype, b_dtype = dtypes
    rng = np.random.default_rng(1)
    a, b = draw(rng, (37, 45), a_dtype), draw(rng, (45, 39), b_dtype)
    for zeros in zip(integer_range(a_dtype), integer_range(b_dtype), strict=True):  # at both ends
        check(device, kernel, a, b, scheme_of(zero_a=zeros[0], zero_b=zeros[1]), I32)
    none = [0 if dtype == I8 else 128 for dtype in (a_dtype, b_dtype)]
    check(device, kernel, a, b, scheme_of(zero_a=none[0], zero_b=none[1]), I32)
    check(device, kernel, a, b, scheme_of(), I32)
    each = scheme_of(zero_a=draw(rng, 37, a_dtype), zero_b=draw(rng, 39, b_dtype))
    check(device, kernel, a, b, each, I32)


@pytest.mark.parametrize(("kernel", "layout"), crossed(KERNELS, ["nn", "nt", "tn", "tt"]), ids=str)
def test_layouts(device, kernel, layout):
    rng = np.random.default_rng(2)
    ta, tb = (x == "t" for x in layout)
    scheme = scheme_of(0.02, 3, 0.03, -7, 0.5, 5)
    for m, n, k, pads, offsets in [
        (64, 64, 64, (0, 0), (0, 0)),  # aligned to 16 bytes
        (36, 44, 52, (0, 4), (4, 8)),  # aligned to words
        (33, 35, 37, (0, 3), (1, 2)),  # not aligned
        (48, 48, 39, (16, 1), (16, 0)),
    ]:
        a, b = draw(rng, (m, k), U8), draw(rng, (k, n), I8)
        check(device, kernel, a, b, scheme, I8, ta=ta, tb=tb, pads=pads, offsets=offsets)


@pytest.mark.parametrize(("kernel", "out"), crossed(KERNELS, [I8, U8, F32, I32]), ids=str)
def test_outputs_and_scales(device, kernel, out):
    rng = np.random.default_rng(3)
    requantised = out in (I8, U8)
    for n in (40, 37) if kernel != KERNELS[0] else (37,):
        a, b = draw(rng, (35, 70), I8), draw(rng, (70, n), I8)
        rows, columns = (np.exp(rng.uniform(-6, 1, size)) for size in (35, n))
        bias = rng.integers(-(2**20), 2**20, n)
        scales = [(0.05, 0.1), (rows, columns), (rows, 0.1), (0.05, columns)]
        for scale_a, scale_b in scales if kernel == KERNELS[0] else scales[n == 37 :: 2]:
            scheme = scheme_of(scale_a, 3, scale_b, -4, 9.5 if requantised else None, 7 if requantised else 0, bias)
            check(device, kernel, a, b, scheme, out)
    check(device, kernel, a, b, scheme_of(0.1, 0, 0.1, 0, 1.5 if requantised else None), out)


SHAPES = [(1, 1, 1), (1, 1, 7), (1, 5, 3), (5, 1, 4), (3, 4, 5), (1, 33, 130), (33, 1, 129), (65, 67, 1), (32, 32, 32)]
SHAPES += [(33, 31, 33), (31, 33, 31), (7, 130, 9), (130, 7, 65), (64, 96, 128), (17, 66, 260), (2, 2, 1025)]


@every_kernel
def test_shapes(device, kernel):
    rng = np.random.default_rng(4)
    for m, n, k in SHAPES:
        a, b = draw(rng, (m, k), U8), draw(rng, (k, n), U8)
        check(device, kernel, a, b, scheme_of(0.01, 200, 0.02, 100, 0.3, 128), U8)


# Extremes


@every_kernel
@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.long), 33_000])
def test_the_range_of_the_accumulator(device, kernel, k):
    # The largest sums: 255·255·k and -128·-128·k; also scaled, rounded and saturated.
    for a_dtype, zero_a, b_dtype, zero_b in [(U8, 0, U8, 0), (I8, 0, I8, 0), (U8, 255, U8, 0), (I8, 127, U8, 0)]:
        ends = [np.array(integer_range(dtype), dtype.numpy) for dtype in (a_dtype, b_dtype)]
        a, b = np.repeat(ends[0][:, None], k, 1), np.repeat(ends[1][None, :], k, 0)
        scheme = scheme_of(zero_a=zero_a, zero_b=zero_b)
        check(device, kernel, a, b, scheme, I32)
        check(device, kernel, a, b, scheme_of(2.0**-16, zero_a, 2.0**-8, zero_b, 1.0, 3), I8)


def requantised(device, kernel, sums, multiplier, out=I8, zero_c=0, columns=None):
    """Requantise the given sums, passed as the bias of a product of zeros."""
    a, b = np.zeros((1 if columns is None else len(columns), 1), np.int8), np.zeros((1, len(sums)), np.int8)
    scale_a = 1.0 if columns is None else columns
    check(device, kernel, a, b, scheme_of(scale_a, 0, multiplier, 0, 1.0, zero_c, sums), out)


@every_kernel
def test_rounding_and_saturation_of_any_sum(device, kernel):
    rng = np.random.default_rng(5)
    edges = [0, 1, -1, 2, -2, 3, -3, 127, 128, -128, -129, 2**15, -(2**15), 2**16 - 1, 2**16, 2**30, -(2**30)]
    sums = np.array([*edges, 2**31 - 1, -(2**31), *rng.integers(-(2**31), 2**31, 400)], np.int32)
    for exponent in range(-40, 38, 3):  # shifts beyond both ends, through 31, 32 and 33
        for mantissa in (1.0, 1.5, 1.9999999):
            requantised(device, kernel, sums, mantissa * 2.0**exponent, zero_c=-3)
    for exponent in (-31, -2, -1, 0, 1, 2):
        requantised(device, kernel, np.arange(-300, 300, dtype=np.int32), 2.0**exponent, U8, 128)  # halves


@every_kernel
def test_products_of_row_and_column_multipliers(device, kernel):
    rng = np.random.default_rng(6)
    sums = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    # Mantissas over their whole range, whose products carry or not, and shifts beyond both ends.
    mantissas = np.array([1.0, 1.0000001, 1.4142135, 1.4142137, 1.9999999, 1.5, 1.3333334, 1.75], np.float32)
    rows = np.concatenate([mantissas * np.float32(2.0**e) for e in (-60, -20, -12, -1, 0, 12, 60)])
    columns = np.tile(mantissas, 8) * np.exp2(rng.integers(-25, 8, 64)).astype(np.float32)
    requantised(device, kernel, sums, columns, columns=rows)


@functools.cache
def distinguishing_sums(row, column):
    """Return sums whose scaled result changes if the product of the multipliers is off by its last bit.

    One bit of 31 affects an 8-bit result only if the scaled sum is next to a half: search for such sums. The pairs
    below have products of 61 and 62 bits, rounded up and down.
    """
    whole = FixedPoint.of(np.float64(row)) * FixedPoint.of(np.float64(column))
    return np.array([first_changed(whole, bit) for bit in (1, -1)], np.int32)


def first_changed(multiplier, bit):
    """Return a sum whose scaled result changes if `bit` is added to the multiplier's mantissa."""
    other = FixedPoint(multiplier.mantissa + bit, multiplier.shift)
    for start in range(2**31 - 2**25, 2**31, 2**20):  # in pieces, which take little memory
        sums = np.arange(start, start + 2**20)
        changed = sums[multiplier.scale(sums) != other.scale(sums)]
        if len(changed):
            return changed[0]
    raise AssertionError("no sum distinguishes the last bit")


MULTIPLIERS = [(1.6066, 1.7295), (1.8632, 1.5415), (1.2997, 1.4227), (1.084, 1.8326)]


@pytest.mark.parametrize(("kernel", "multipliers"), crossed(KERNELS, MULTIPLIERS, step=4), ids=str)
def test_the_last_bit_of_a_product_of_multipliers(device, kernel, multipliers):
    row, column = multipliers
    row, column = np.float32(row), np.float32(column * 2.0**-25)
    sums = distinguishing_sums(row, column)
    requantised(device, kernel, sums, np.repeat(column, 2), columns=np.repeat(row, 2), zero_c=-64)


@functools.cache
def runnable(device):
    """Return the settings of packed that the device can run and a CPU compiles quickly."""
    sizes = {"bm": (32, 64), "bn": (32, 64, 128), "tm": (4,), "tn": (4, 8), "unroll": (1,), "splits": (1, 4)}
    return [k for k in Packed.space() if all(getattr(k, name) in allowed for name, allowed in sizes.items())]


def test_any_product(device):
    sizes = st.one_of(st.integers(1, 70), st.sampled_from([1, 4, 16, 31, 32, 33, 64, 65, 128]))
    dtypes = st.sampled_from([U8, I8])

    @settings(max_examples=6)
    @given(st.data())
    def check_drawn(data):
        kernel = data.draw(st.sampled_from([*runnable(device), Unpacked()]))
        m, n, k = (data.draw(sizes) for _ in range(3))
        k = max(k, kernel.least_k)
        a_dtype, b_dtype, out = data.draw(dtypes), data.draw(dtypes), data.draw(st.sampled_from([U8, I8, I32, F32]))
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

        def scale(length):
            return np.exp(rng.uniform(-8, 2, length if data.draw(st.booleans()) and length > 1 else ()))

        def zero(length, dtype):
            if data.draw(st.booleans()):
                return 0
            return draw(rng, length if data.draw(st.booleans()) and length > 1 else (), dtype)

        scheme = scheme_of(
            *(scale(m), zero(m, a_dtype), scale(n), zero(n, b_dtype)),
            **({"scale_c": 3.25, "zero_c": int(draw(rng, (), out))} if out in (I8, U8) else {}),
            bias=rng.integers(-(2**20), 2**20, n) if data.draw(st.booleans()) else None,
        )
        layout = {name: data.draw(st.booleans()) for name in ("ta", "tb")}
        gaps = st.tuples(*[st.sampled_from([0, 0, 1, 3, 4, 16])] * 2)
        layout |= {name: data.draw(gaps) for name in ("pads", "offsets")}
        check(device, kernel, draw(rng, (m, k), a_dtype), draw(rng, (k, n), b_dtype), scheme, out, **layout)

    check_drawn()


# The call


def test_qmatmul_of_numpy_arrays_approximates_the_real_product(device):
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((50, 60)), rng.standard_normal((60, 30))
    xq, wq = webmm.quantize(x), webmm.quantize(w, "int8", axis=1, symmetric=True)
    got = webmm.qmatmul(xq[0], wq[0], *xq[1:], *wq[1:], device=device)
    assert got.dtype == np.float32
    close = webmm.dequantize(*xq).astype(np.float64) @ webmm.dequantize(*wq, axis=1)
    assert np.abs(got - close).max() < 1e-4
    assert np.abs(got - x @ w).max() < 0.4
    _, scale, zero = webmm.quantize(x @ w)
    again = webmm.qmatmul(xq[0], wq[0], *xq[1:], *wq[1:], scale, zero, device=device)
    assert again.dtype == np.uint8
    assert np.abs(webmm.dequantize(again, scale, zero) - close).max() <= scale * 0.51


def test_qmatmul_keeps_arrays_on_the_device_and_reads_views(device):
    rng = np.random.default_rng(8)
    a, b = draw(rng, (40, 50), I8), draw(rng, (30, 60), I8)
    with device.array(a) as left, device.array(b) as right:
        got = webmm.qmatmul(left[3:, 5:], right.T[10:55], 1.0, 0, 1.0, 0, out_dtype="int32")
        assert isinstance(got, webmm.Array)
        assert np.array_equal(got.numpy(), a[3:, 5:].astype(int) @ b.T[10:55].astype(int))
        strided = webmm.qmatmul(left[::2, ::2], right.T[:25], 1.0, 0, 1.0, 0, out_dtype="int32")
        assert np.array_equal(strided.numpy(), a[::2, ::2].astype(int) @ b.T[:25].astype(int))


def test_qmatmul_of_empty_operands(device):
    bias = np.arange(3, dtype=np.int32)
    empty = webmm.qmatmul(np.zeros((2, 0), np.int8), np.zeros((0, 3), np.int8), 1, 0, 1, 0, bias=bias, device=device)
    assert empty.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert webmm.qmatmul(np.zeros((0, 4), np.int8), np.zeros((4, 3), np.int8), 1, 0, 1, 0, device=device).shape == (
        0,
        3,
    )


# Batches, as defined by ONNX's QLinearMatMul


def linear(a, b, scale_a, zero_a, scale_b, zero_b, scale_c, zero_c):
    """Return QLinearMatMul by its definition: dequantise, multiply, round to the nearest integer."""
    left, right = scale_a * (a.astype(np.float64) - zero_a), scale_b * (b.astype(np.float64) - zero_b)
    info = np.iinfo(a.dtype)
    return np.clip(np.rint(left @ right / scale_c) + zero_c, info.min, info.max).astype(a.dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("resident", [False, True])
def test_qlinearmatmul_3d(device, dtype, resident):
    shift = 127 if dtype == np.int8 else 0
    a = np.array([[208, 236, 0, 238], [3, 214, 255, 29]]) - shift
    b = np.array([[152, 51, 244], [60, 26, 255], [0, 127, 246], [127, 254, 247]]) - shift
    a, b = (np.stack([x, x]).astype(dtype) for x in (a, b))
    a[1, 0, 0] += 1  # make the matrices of the batch differ
    scheme = [np.array([s], np.float32) for s in (0.0066, 0.00705, 0.0107)]
    zeros = [np.array([zero - shift], dtype) for zero in (113, 114, 118)]
    given = [x for pair in zip(scheme, zeros, strict=True) for x in pair]
    if dtype == np.uint8:
        np.testing.assert_array_equal(linear(a, b, *given)[0], [[168, 115, 255], [1, 66, 151]])
    operands = [device.array(x) for x in (a, b)] if resident else [a, b]
    got = webmm.qmatmul(*operands, *given, out_dtype=dtype, device=device)
    np.testing.assert_array_equal(got.numpy() if resident else got, linear(a, b, *map(np.asarray, given)))


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3, 5, 7), (2, 3, 7, 4)),
        ((3, 5, 7), (7, 4)),
        ((5, 7), (3, 7, 4)),
        ((2, 1, 5, 7), (3, 7, 4)),
        ((1, 5, 7), (7, 4)),
    ],
    ids=str,
)
def test_batches(device, left, right, resident):
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 256, left, np.uint8), rng.integers(-128, 128, right, np.int8)
    zero_a, zero_b = rng.integers(0, 256, 5), rng.integers(-128, 128, 4)
    for by_row in (0, zero_a):
        expected = (a.astype(np.int64) - np.reshape(by_row, (-1, 1))) @ (b.astype(np.int64) - zero_b)
        operands = [device.array(x) for x in (a, b)] if resident else [a, b]
        got = webmm.qmatmul(*operands, 1, by_row, 1, zero_b, out_dtype="int32", device=device)
        np.testing.assert_array_equal(got.numpy() if resident else got, expected)


@pytest.mark.parametrize("resident", [False, True])
def test_scales_and_zero_points_for_each_matrix(device, resident):
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 256, (2, 3, 5, 7), np.uint8), rng.integers(0, 256, (2, 3, 7, 4), np.uint8)
    scale_a, scale_b = rng.choice([0.5, 1, 2], (2, 3, 5, 1)), rng.choice([0.5, 1, 2], (2, 3, 1, 4))
    zero_a, zero_b = rng.integers(0, 256, (2, 3, 5, 1)), rng.integers(0, 256, (2, 1, 1, 4))
    operands = [device.array(x) for x in (a, b)] if resident else [a, b]
    got = webmm.qmatmul(*operands, scale_a, zero_a, scale_b, zero_b, device=device)
    expected = (scale_a * (a.astype(np.float64) - zero_a)) @ (scale_b * (b.astype(np.float64) - zero_b))
    np.testing.assert_array_equal(got.numpy() if resident else got, expected)
    with pytest.raises(ProblemError, match=r"of shape \(3, 5, 5, 1\) does not fit the batch \(2, 3\)"):
        webmm.qmatmul(*operands, np.ones((3, 5, 5, 1)), 0, 1, 0, device=device)
    with pytest.raises(ProblemError, match="do not broadcast"):
        webmm.qmatmul(a, b[:, :2], 1, 0, 1, 0, device=device)


def test_fractional_zero_points_are_refused():
    with pytest.raises(ProblemError, match="zero is float64; zero points must be integers"):
        webmm.dequantize(np.ones(2, np.uint8), 1.0, 0.5)
