"""Products with quantised weights, compared with float64 NumPy on the dequantised weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webmm
from tests.sampled import crossed
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError
from webmm.kernels.weights.cpu_lanes import CpuLanes
from webmm.kernels.weights.tiles import Tiles
from webmm.kernels.weights.vector import Vector
from webmm.measure.verify import bound, worst_error
from webmm.problems import weights as module
from webmm.problems.product import Operand
from webmm.problems.weights import WeightOnly

SMALL = Tiles(bm=32, bn=32, bk=8, tm=4, tn=4, unroll=1)  # compiles quickly on a CPU
KERNELS = [Vector(lanes=8, tm=2), Vector(lanes=8, tm=1, unroll=2), SMALL, CpuLanes(lanes=4, tm=4, tn=8)]
SPARE = 64

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=["vector", "vector unrolled", "tiles", "cpu_lanes"])


def random_weights(rng, k, n, bits, block):
    """Return weights with random integers, scales and zero points, not derived from floats."""
    blocks = -(-k // block)
    return webmm.BlockWeights(
        (k, n),
        bits,
        block,
        rng.integers(0, 2**32, (n, blocks * block * bits // 32), dtype=np.uint32),
        np.exp(rng.uniform(-5, 0, (n, blocks))).astype(np.float32),
        rng.integers(0, 2**bits, (n, blocks), dtype=np.uint8),
    )


def check(device, kernel, x, weights, out=None, *, transposed=False, pad=0, offset=0):
    """Multiply by `kernel`, and assert that every element is within the bound and nothing else is written."""
    (m, k), (_, n) = x.shape, weights.shape
    stored = x.T if transposed else x
    ld = stored.shape[1] + pad
    buffer = np.full(offset + stored.shape[0] * ld + SPARE, np.nan, x.dtype)  # NaN exposes stray reads
    for i, line in enumerate(stored):
        buffer[offset + i * ld : offset + i * ld + line.size] = line
    dtype = dtype_of(x.dtype)
    a = Operand(ld, offset=offset, transposed=transposed)
    problem = WeightOnly(m, n, k, dtype, out or dtype, a, weights.bits, weights.block)
    blank = np.full(m * n + SPARE, -4096, problem.out_dtype.numpy)
    arrays = [device.array(part) for part in (buffer, *weights.parts, blank)]
    device.run(kernel, problem, *arrays)
    got = arrays[-1].numpy()
    for array in arrays:
        array.free()
    error = worst_error(got[: m * n].reshape(m, n), x, weights.dequantize(), problem.out_dtype)
    assert error <= bound(problem), f"error {error:.2e} > {bound(problem):.2e} by {kernel}: {problem!r}"
    assert (got[m * n :] == -4096).all(), f"stray writes by {kernel}: {problem!r}"


SHAPES = [(1, 1, 1), (1, 5, 3), (2, 4, 32), (3, 33, 65), (8, 64, 128), (9, 31, 100), (33, 32, 31), (32, 64, 64)]
SHAPES += [(65, 3, 130), (1, 130, 1025), (5, 36, 257)]


@pytest.mark.parametrize(("kernel", "bits", "block"), crossed(KERNELS, module.BITS, module.BLOCKS), ids=str)
def test_shapes(device, kernel, bits, block):
    rng = np.random.default_rng(0)
    for m, n, k in SHAPES[module.BLOCKS.index(block) % 2 :: 2]:  # each shape with half of the blocks
        check(device, kernel, rng.standard_normal((m, k)).astype(np.float32), random_weights(rng, k, n, bits, block))


@pytest.mark.parametrize(("kernel", "transposed"), crossed(KERNELS, [False, True]), ids=str)
def test_layouts(device, kernel, transposed):
    rng = np.random.default_rng(1)
    for (m, n, k), pad, offset in [((32, 36, 64), 0, 0), ((12, 32, 36), 4, 8), ((9, 35, 70), 3, 1)]:
        x = rng.standard_normal((m, k)).astype(np.float32)
        check(device, kernel, x, random_weights(rng, k, n, 4, 32), transposed=transposed, pad=pad, offset=offset)


@every_kernel
def test_float16(device, kernel):
    if "shader-f16" not in device.capabilities.features:
        with pytest.raises(webmm.WebmmError, match="shader-f16"):
            check(device, kernel, np.ones((2, 8), np.float16), random_weights(np.random.default_rng(2), 8, 4, 4, 32))
        return
    rng = np.random.default_rng(2)
    for (m, n, k), out in [((32, 36, 64), None), ((9, 35, 70), None), ((9, 35, 70), dtype_of("float32"))]:
        check(device, kernel, rng.standard_normal((m, k)).astype(np.float16), random_weights(rng, k, n, 4, 32), out)


@every_kernel
def test_bfloat16(device, kernel):
    dtype = dtype_of("bfloat16").numpy
    rng = np.random.default_rng(6)
    for m, n, k in [(32, 36, 64), (9, 35, 70)]:
        check(device, kernel, rng.standard_normal((m, k)).astype(dtype), random_weights(rng, k, n, 4, 32))


@every_kernel
def test_nan_and_infinities_affect_only_their_rows(device, kernel):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 70)).astype(np.float32)
    x[3, 69], x[11, 0], x[39, 5] = np.nan, np.inf, -np.inf
    weights = random_weights(rng, 70, 37, 8, 32)
    check(device, kernel, x, weights)


def test_any_product(device):
    sizes = st.one_of(st.integers(1, 40), st.sampled_from([1, 4, 8, 31, 32, 33, 64, 65, 128, 129, 260]))
    small = (k for k in Tiles.space() if k.bm < 128 and k.bn < 128 and (k.tm, k.tn, k.unroll) == (4, 4, 1))
    tiles = [kernel for kernel in small if kernel.splits <= 4]
    lanes = [k for k in CpuLanes.space() if k.lanes <= device.capabilities.subgroup_size]

    @settings(max_examples=12)
    @given(st.data())
    def check_drawn(data):
        kernel = data.draw(st.sampled_from([*Vector.space(), *tiles, *lanes]))
        m, n, k = (data.draw(sizes) for _ in range(3))
        k = max(k, kernel.least_k if kernel in tiles else 1)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        weights = random_weights(rng, k, n, data.draw(st.sampled_from([8, 4])), data.draw(st.sampled_from([32, 128])))
        layout = {"transposed": data.draw(st.booleans())}
        layout |= {name: data.draw(st.sampled_from([0, 0, 3, 4])) for name in ("pad", "offset")}
        check(device, kernel, rng.standard_normal((m, k)).astype(np.float32), weights, **layout)

    check_drawn()


# The call


def close(got, x, weights):
    k = weights.shape[0]
    flat = x.reshape(-1, k)
    return worst_error(got.reshape(flat.shape[0], -1), flat, weights.dequantize()) <= k * 2.0**-23


def test_quantize_blocks_and_products_are_accurate(device):
    rng = np.random.default_rng(4)
    w, x = rng.standard_normal((100, 24)), rng.standard_normal((2, 3, 100)).astype(np.float32)
    for bits, block, symmetric in ((8, 32, False), (8, 128, True), (4, 32, False), (4, 32, True)):
        weights = webmm.quantize_blocks(w, bits, block, symmetric=symmetric)
        steps = np.repeat(np.asarray(weights.scales).T, block, 0)[:100]
        assert (np.abs(weights.dequantize() - w) <= steps * 1.01 / (2 if symmetric else 1)).all()
        assert weights.nbytes == 24 * -(-100 // block) * (block * bits // 8 + 5)
        got = webmm.qmatmul_weights(x, weights, device=device)
        assert (got.shape, got.dtype) == ((2, 3, 24), np.float32)
        assert close(got, x, weights)


def test_weights_and_activations_may_stay_on_the_device(device):
    rng = np.random.default_rng(5)
    host = webmm.quantize_blocks(rng.standard_normal((64, 20)))
    weights = host.to(device)
    assert (host.device, weights.device) == (None, device)
    x = rng.standard_normal((50, 64)).astype(np.float32)
    with device.array(x) as resident:
        got = webmm.qmatmul_weights(resident[3:, :], weights)
        assert isinstance(got, webmm.Array)
        assert close(got.numpy(), x[3:], weights)
        vector = webmm.qmatmul_weights(resident[7], weights)
        assert vector.shape == (20,)
        assert close(vector.numpy(), x[7], host)
        assert close(webmm.qmatmul_weights(resident[::2, None], weights).numpy(), x[::2], weights)
    assert webmm.qmatmul_weights(x, weights).shape == (50, 20)
    weights.free()
    weights.free()
    with pytest.raises(webmm.WebmmError, match="freed"):
        webmm.qmatmul_weights(x, weights)


def test_products_of_empty_operands(device):
    weights = webmm.quantize_blocks(np.zeros((0, 3)))
    assert webmm.qmatmul_weights(np.zeros((2, 0), np.float32), weights, device=device).tolist() == [[0] * 3] * 2
    weights = webmm.quantize_blocks(np.ones((4, 3)))
    assert webmm.qmatmul_weights(np.zeros((0, 4), np.float32), weights, device=device).shape == (0, 3)
    assert webmm.quantize_blocks(np.zeros((40, 2))).dequantize().tolist() == [[0, 0]] * 40


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d: webmm.quantize_blocks(np.ones((4, 4)), 5), "bits must be 4 or 8, not 5"),
        (lambda d: webmm.quantize_blocks(np.ones((4, 4)), 4, 64), "block must be 32 or 128, not 64"),
        (lambda d: webmm.quantize_blocks(np.ones(4)), r"w has shape \(4,\); weights must be a \(k, n\) matrix"),
        (lambda d: webmm.quantize_blocks(np.full((4, 4), np.nan)), "w contains NaN or infinity"),
        (
            lambda d: webmm.qmatmul_weights(
                np.ones((2, 5), np.float32), webmm.quantize_blocks(np.ones((4, 4))), device=d
            ),
            r"x \(2, 5\) and weights \(4, 4\) do not fit: x must end with 4",
        ),
        (
            lambda d: webmm.qmatmul_weights(np.ones((2, 4), np.int8), webmm.quantize_blocks(np.ones((4, 4))), device=d),
            "dtype int8 is not supported by float matrix products",
        ),
        (
            lambda d: webmm.qmatmul_weights(np.ones((2, 4), np.float32), np.ones((4, 4), np.float32), device=d),
            r"weights must be quantised, by webmm\.quantize_blocks\(w\), not ndarray",
        ),
    ],
)
def test_invalid_arguments_are_refused(device, call, words):
    with pytest.raises(ProblemError, match=words):
        call(device)
