"""Expressions as epilogues: numbers without a new shader, arrays read in the store, several in turn, refusals."""

import dataclasses
import pickle

import numpy as np
import pytest
from products import small

import webmm
from examples.gated import gated
from tests.sampled import sampled
from webmm import Device, Epilogue, choose
from webmm.dtypes import dtype_of
from webmm.errors import ProblemError, UnsupportedError
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.split_k import SplitK
from webmm.kernels.gemm.vectorized import Vectorized
from webmm.measure.selftest import prove, stand_ins
from webmm.problems.gemm import gemm
from webmm.problems.weights import quantize_blocks
from webmm.wgsl.epilogues import OWN, Spread
from webmm.wgsl.export import stage
from webmm.wgsl.own import fields_of
from webmm.wgsl.render import render

RNG = np.random.default_rng(11)
LEAKY = "where(x > 0, x, slope * x)"
GATE = Epilogue("silu(x) * y", y=np.ones((1, 1), np.float32))


def whole(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)


def leaky(x, slope):
    return np.where(x > 0, x, slope * x)


def finished(own, *sizes, **settings):
    """Return a product with an epilogue whose operands are dense matrices."""
    made = gemm(*sizes, **settings)
    spreads = tuple(Spread(dtype_of(y.dtype), row=made.n, column=1) for y in own.operands)
    return dataclasses.replace(made, **fields_of(own), spreads=spreads)


def test_two_slopes_share_a_shader(device):
    a, b = device.array(whole(9, 5)), device.array(whole(5, 7))
    product = a.numpy() @ b.numpy()
    webmm.matmul(a, b, activation=Epilogue(LEAKY, slope=0.5))
    before = len(device.pipelines)
    for slope in (0.25, -2.0, 0.0, 0.25, 0.25):  # the last call replays a plan
        got = webmm.matmul(a, b, activation=Epilogue(LEAKY, slope=slope)).numpy()
        np.testing.assert_array_equal(got, leaky(product, slope))
    assert len(device.pipelines) == before


def test_a_number_costs_no_load_from_storage():
    one, two = (
        render(Vectorized(), finished(own, 64, 64, 64)).wgsl
        for own in (Epilogue("maximum(x, 0.25 * x)"), Epilogue("maximum(x, slope * x)", slope=0.25))
    )
    assert "params.numbers.x" in two
    assert two.count("var<storage") == one.count("var<storage") == 3
    for name in ("a[", "b[", "c["):
        assert two.count(name) == one.count(name)
    plain = render(Vectorized(), gemm(64, 64, 64)).wgsl
    assert "numbers" not in plain, "products without a function have no members for it"


@pytest.mark.parametrize(
    ("kernel", "sizes", "dtype"),
    [
        (small(Naive), (9, 7, 5), "bfloat16"),
        (Vectorized(), (64, 64, 32), "float32"),
        (small(SplitK, slices=1, splits=2), (36, 44, 64), "float32"),
        (Gemv(lanes=8, groups=4, tj=4), (1, 33, 40), "float32"),
    ],
    ids=str,
)
def test_stages_apply_numbers_arrays_and_several_functions(device, kernel, sizes, dtype):
    m, n = sizes[:2]
    y, mask = np.ones((m, n), dtype_of("bfloat16").numpy), np.ones((m, n), bool)
    own = Epilogue("where(mask, x, slope * x)", slope=0.5, mask=mask).then(Epilogue("x * y + k", y=y, k=1.0))
    problem = finished(own.then(Epilogue("x * x", np.square)), *sizes, dtype=dtype)
    problem = dataclasses.replace(problem, alpha=0.5, beta=0.5, bias="column")
    assert prove(kernel, problem, device) == ""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_comparison_with_0_is_by_the_sign_and_false_for_nan(device, monkeypatch, dtype):
    """Products of four elements at once; which instructions compare them depends on the type."""
    monkeypatch.setattr(choose, "candidates", lambda *_: {Vectorized(8, 32, 16): "stores vec4"})
    ends = np.array([np.nan, -np.nan, np.inf, -np.inf, 0, 6e-5, 2, -3], dtype)
    a, b = (device.array(x) for x in (np.ones((4, 1), dtype), np.tile(ends, 4)[None]))
    product = webmm.matmul(a, b).numpy()
    for sign, holds in {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}.items():
        got = webmm.matmul(a, b, activation=Epilogue(f"where(x {sign} 0, 5, x)")).numpy()
        np.testing.assert_array_equal(got, np.where(holds(product, 0), 5, product), err_msg=sign)
        mirrored = webmm.matmul(a, b, activation=Epilogue(f"where(0 {sign} x, 5, x)")).numpy()
        np.testing.assert_array_equal(mirrored, np.where(holds(0, product), 5, product), err_msg=f"0 {sign} x")


BATCHES = {"a shared b": ((2, 3, 5), (5, 4)), "two batches": ((2, 3, 5), (2, 5, 4)), "one a": ((3, 5), (2, 5, 4))}


@pytest.mark.parametrize("batch", BATCHES)
def test_arrays_broadcast_to_the_result(device, batch):
    a, b = (whole(*shape) for shape in BATCHES[batch])
    product = a @ b
    for shape in ((2, 3, 4), (2, 1, 4), (3, 4), (3, 1), (4,), ()):
        y = whole(*shape)
        got = webmm.matmul(device.array(a), b, activation=Epilogue("x * y + k", y=y, k=2)).numpy()
        np.testing.assert_array_equal(got, product * y + 2, err_msg=str(shape))


def test_arrays_are_views_of_any_strides_and_the_result_is_transposed(device):
    a, b, y = whole(6, 5), whole(5, 8), whole(6, 8)
    out = device.zeros((8, 6), np.float32)
    for view in (device.array(y), device.array(np.ascontiguousarray(y.T)).mT, device.array(np.repeat(y, 2, 1))[:, ::2]):
        webmm.matmul(device.array(a), device.array(b), activation=Epilogue("x - y", y=view), out=out.mT)
        np.testing.assert_array_equal(out.numpy().T, a @ b - y)
    got = webmm.matmul(a, b, activation=Epilogue("x - y", y=device.array(y)[::-1, ::-1]), device=device)
    np.testing.assert_array_equal(got.numpy(), a @ b - y[::-1, ::-1])


FOURS = {  # views of an array (16, 32) as the operand of an (8, 16) result, and whether four elements are one load
    "dense": (lambda y: y.reshape(-1, 16)[:8], True),
    "rows apart, from a fourth element on": (lambda y: y[4:12, 4:20], True),
    "one row": (lambda y: y[3, 8:24], True),
    "from an odd element on": (lambda y: y[4:12, 5:21], False),
    "every other element": (lambda y: y[:8, ::2], False),
    "one column": (lambda y: y[:8, 4:5], False),
}


@pytest.mark.parametrize("dtype", sampled(["float16", "float32", "bfloat16", "int32", "bool"]))
def test_four_elements_are_one_load_where_they_are_adjacent(device, monkeypatch, dtype):
    monkeypatch.setattr(choose, "candidates", lambda *_: {Vectorized(8, 16, 16): "loads vec4"})
    y = (whole(16, 32) > 0 if dtype == "bool" else whole(16, 32)).astype(dtype_of(dtype).numpy)
    a, b, held = whole(8, 5), whole(5, 16), device.array(y)
    text = "where(y, x, -x)" if dtype == "bool" else "x * float32(y)" if dtype == "int32" else "x * y"
    for words, (view, at_once) in FOURS.items():
        own = Epilogue(text, y=view(held))
        expected = np.where(view(y), a @ b, -(a @ b)) if dtype == "bool" else (a @ b) * view(y).astype(np.float32)
        np.testing.assert_array_equal(webmm.matmul(a, b, activation=own, device=device).numpy(), expected, words)
        (operand,), strides = own.operands, (0, *view(held).strides)
        spread = Spread(dtype_of(dtype), operand.offset, row=strides[-2], column=strides[-1] * (operand.shape[-1] > 1))
        problem = dataclasses.replace(finished(own, 8, 16, 5), spreads=(spread,))
        assert ("y0[y0_at / 4u]" in render(Vectorized(8, 16, 16), problem).wgsl) == at_once, words
        assert any(stand_ins(Vectorized(8, 16, 16), problem, device)), f"{words}: not tested before its first use"


def test_a_text_that_loads_four_elements_says_where_it_holds():
    known = stage(Vectorized(), finished(GATE, 64, 64, 64), "tint")["valid_for"]
    assert known["y0.w"] == {"equals": 1}
    assert known["y0.z"] == {"multiple_of": 4}
    assert "y0.w" not in stage(Vectorized(), finished(GATE, 64, 63, 64), "tint")["valid_for"]


def test_a_plan_reads_other_arrays(device):
    a = device.array(whole(4, 4))
    for _ in range(3):
        y = device.array(whole(4, 4))
        got = webmm.matmul(a, a, activation=Epilogue("x * y", y=y))
        np.testing.assert_array_equal(got.numpy(), (a.numpy() @ a.numpy()) * y.numpy())


def test_the_example_of_a_gate(device):
    x, gate, up = RNG.random((5, 8), np.float32), RNG.random((8, 4), np.float32), RNG.random((8, 4), np.float32)
    got = gated(*(device.array(each) for each in (x, gate, up))).numpy()
    np.testing.assert_allclose(got, (x @ gate) / (1 + np.exp(-(x @ gate))) * (x @ up), rtol=1e-5)


def test_maps_take_the_same_objects(device):
    x, y = whole(3, 5), whole(3, 5)
    own = Epilogue("where(mask, x, k * x)", mask=y > 0, k=0.5).then("relu").then(Epilogue("x * x", np.square))
    for dtype in ("float32", "float16"):
        got = webmm.map(x.astype(dtype), own, device=device)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.maximum(np.where(y > 0, x, x / 2), 0) ** 2)


@pytest.mark.parametrize("shape", [(70,), (40, 70), (2, 3, 70)], ids=str)
def test_quantised_weights_take_the_same_objects(device, shape):
    weights = quantize_blocks(RNG.random((70, 12)).astype(np.float32))
    x = RNG.random(shape, np.float32)
    product = x.astype(np.float64) @ weights.dequantize()
    for y in (product, product[..., :1], product[..., 0, :] if product.ndim == 2 else product):
        own = Epilogue(LEAKY, slope=0.5).then(Epilogue("x - y", y=y.astype(np.float32)))
        got = webmm.qmatmul_weights(x, weights, activation=own, device=device)
        np.testing.assert_allclose(got, product - y, atol=2e-4)
    got = webmm.qmatmul_weights(x, weights, activation="relu", device=device)
    np.testing.assert_allclose(got, np.maximum(product, 0), atol=2e-4)


def test_large_products_cut_the_arrays(device):
    limits = {"max-buffer-size": 2**15, "max-storage-buffer-binding-size": 2**14}
    a, b, y = whole(90, 350), whole(350, 80), whole(90, 80)
    with Device(device.info.index, limits=limits) as low:
        for streamed in (False, True):
            low.memory = 2**16 if streamed else low.memory
            for part in (y, y[0], y[:, :1]):
                own = Epilogue("maximum(x / 4, 0) * y", y=part)
                if streamed:
                    before, held = low.pool.lent_bytes, []
                    got = webmm.matmul(
                        a,
                        b,
                        activation=own,
                        device=low,
                        progress=lambda *_, held=held: held.append(low.pool.lent_bytes),
                    )
                    assert held[-1] <= before, "parts of the arrays stay on the device no longer than their pieces"
                else:
                    left, right = low.array(a[:, :40]), low.array(b[:40])
                    got = webmm.matmul(left, right, activation=own, out_dtype="float16").numpy()
                exact = np.maximum((a @ b if streamed else a[:, :40] @ b[:40]) / 4, 0) * part
                np.testing.assert_array_equal(got, exact.astype(got.dtype))
    with Device(device.info.index) as other:
        got = webmm.matmul(a, b, activation=Epilogue("x + y", y=y), devices=[device, other])
    np.testing.assert_array_equal(got, a @ b + y)


WRONG = {
    "where(x > 0, x, slope * x)": ({}, "slope was not given"),
    "x * 2": ({"slope": 1.0}, "does not use slope"),
    "x > 0": ({}, r"is bool; write float32\(x > 0\)"),
    "x * y": ({"y": np.ones(3)}, "y is float64; cast it"),
    "x + y": ({"y": "no"}, "neither a number nor an array"),
    "x * z": ({"z": [1, 2]}, "z is int64; cast it"),
    "x - y": ({"y": [[1.0], [1.0, 2.0]]}, "neither a number nor an array"),
    "x + float": ({"float": np.ones(3, np.int32)}, r"'x \+ float': f32 and i32"),
    "x << 2": ({}, r"x << 2 is not defined for f32; cast its operands"),
    "x @ x": ({}, r"x @ x is not defined for f32; there are \+ - \* /"),
    "x + k": ({"k": 1e39}, "does not fit float32"),
    "x +": ({}, "is not an expression"),
    "x.T": ({}, "is not allowed in an expression"),
    "x + a + b + c + d + e": (dict.fromkeys("abcde", 1.0), "5 numbers and 0 arrays are too many"),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_expressions_are_refused(text):
    values, words = WRONG[text]
    with pytest.raises(ProblemError, match=words):
        Epilogue(text, **values)


def test_wrong_uses_are_refused(device):
    x, y = device.array(whole(3, 3)), device.array(whole(3, 3))
    with pytest.raises(ProblemError, match=r"shape \(4,\), which does not broadcast to the result's shape, \(3, 3\)"):
        webmm.matmul(x, x, activation=Epilogue("x * y", y=whole(4)))
    with pytest.raises(ProblemError, match="out shares its buffer with array 1 of the epilogue"):
        webmm.matmul(x, x, activation=Epilogue("x * y", y=y), out=y)
    with pytest.raises(ProblemError, match="not for panels"):
        webmm.matmul([x, x], x, activation=Epilogue("x * y", y=y))
    with pytest.raises(UnsupportedError, match="do not support an Epilogue"):
        webmm.matmul(np.ones((2, 2)), np.ones((2, 2)), activation=GATE, device=device)
    with pytest.raises(ProblemError, match="needs one text"):
        Epilogue()
    with pytest.raises(ProblemError, match="WGSL takes x alone, not k"):
        Epilogue("x * k", numpy=np.square, k=1.0)
    with pytest.raises(ProblemError, match="takes 0 numbers and 1 operands, not 0 and 0"):
        dataclasses.replace(gemm(2, 2, 2), activation=GATE.name)


def test_numpy_computes_short_floats_as_shaders_do():
    assert Epilogue("x + y * y", y=np.float16([300])).reference(np.zeros(1)) == 90000


def test_an_unpickled_function_is_known_in_another_process(monkeypatch):
    own = Epilogue("x * k + 0.375", k=2.0)
    sent = pickle.dumps(own)
    monkeypatch.delitem(OWN, own.name)
    assert pickle.loads(sent).name in OWN


def test_equality_is_by_text_and_values():
    y = whole(3)
    same, other = Epilogue(LEAKY, slope=0.5), Epilogue("where(x>0,x,k*x)", k=0.5)
    assert (same, hash(same)) == (other, hash(other))
    assert Epilogue(LEAKY, slope=0.25) != same
    assert Epilogue("x * y", y=y) == Epilogue("x * y", y=y) != Epilogue("x * y", y=y.copy())
