"""`webmm.einsum()` and `np.einsum()` of device arrays agree with NumPy; unsupported subscripts are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webmm
from webmm import Array, choose
from webmm.errors import ProblemError
from webmm.kernels.gemm.naive import Naive
from webmm.problems.gemm import Gemm

LENGTHS = dict(zip("abijkl", (2, 3, 4, 5, 6, 1), strict=True))
SUBSCRIPTS = [
    *(
        "ij,jk->ik",
        "ij,jk",
        "ji,jk->ki",
        "ij,kj->ik",
        "bij,bjk->bik",
        "bij,jk->bik",
        "aij,bjk->abik",
        "abij,abjk->abki",
    ),
    *("ij,ij->", "ij,ij->ij", "i,j->ij", "i,i", "ij,j", "ij,j->i", "ij,i->j", "abij,bkj->iak", "ijk,jik->i"),
    *("ijk,ijk->k", "ij,kl->il", "ij,kl->", "aij,j->ia", "ij->ji", "ij->", "ij->j", "ijk->ki", "ba", "i->i", "l,l->l"),
    *("aibj,bkaj->ki", "ijk,kl", " i j , j k -> k i "),
]
DOTTED = [
    ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 6)),
    ("...ij,...jk", (2, 1, 4, 5), (3, 5, 6)),
    ("i...,i...->...", (4, 3), (4, 2, 3)),
    ("...,...", (2, 3), (3,)),
    ("b...i,ij->...bj", (2, 3, 4), (4, 5)),
    ("...->...", (2, 3), None),
    ("i...->...", (4, 3, 2), None),
]


@pytest.fixture(autouse=True)
def naive(monkeypatch):
    chosen = choose.choose
    monkeypatch.setattr(
        choose, "choose", lambda p, *rest, **more: Naive() if isinstance(p, Gemm) else chosen(p, *rest, **more)
    )


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype)


def compare(device, subscripts, operands):
    wanted = np.einsum(subscripts, *operands)
    host = webmm.einsum(subscripts, *operands, device=device)
    assert not isinstance(host, Array)
    assert host.dtype == operands[0].dtype
    np.testing.assert_array_equal(host, wanted)
    arrays = [device.array(x) for x in operands]
    for got in (np.einsum(subscripts, *arrays), webmm.einsum(subscripts, *arrays)):
        assert isinstance(got, Array)
        assert got.dtype == operands[0].dtype
        np.testing.assert_array_equal(got.numpy(), wanted)
    if len(operands) == 2:
        np.testing.assert_array_equal(webmm.einsum(subscripts, arrays[0], operands[1]).numpy(), wanted)


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_agrees_with_numpy(device, subscripts):
    terms = subscripts.replace(" ", "").split("->")[0].split(",")
    compare(device, subscripts, [drawn(*(LENGTHS[letter] for letter in term)) for term in terms])


@pytest.mark.parametrize(("subscripts", "left", "right"), DOTTED)
def test_ellipsis(device, subscripts, left, right):
    compare(device, subscripts, [drawn(*shape) for shape in (left, right) if shape is not None])


def test_random_subscripts(device):
    @settings(max_examples=40)
    @given(st.data())
    def check_drawn(data):
        left, right = (data.draw(st.permutations("abijk")) for _ in range(2))
        terms = ["".join(term[: data.draw(st.integers(0, 4))]) for term in (left, right)]
        letters = data.draw(st.permutations(sorted(set("".join(terms)))))
        result = "".join(letters[: data.draw(st.integers(0, len(letters)))])
        operands = [drawn(*(LENGTHS[letter] for letter in term)) for term in terms]
        compare(device, f"{','.join(terms)}->{result}", operands)

    check_drawn()


def test_views_dtypes_and_empty_operands(device):
    a, b = drawn(6, 8), drawn(8, 5)
    x, y = device.array(a), device.array(b)
    np.testing.assert_array_equal(np.einsum("ji,jk->ik", x.T[1:], y[1:]).numpy(), a[:, 1:] @ b[1:])
    np.testing.assert_array_equal(np.einsum("ij,jk->ik", x, y, optimize=True).numpy(), a @ b)
    half = webmm.einsum("ij,jk->ik", a.astype(np.float16), b.astype(np.float16), out_dtype="float32", device=device)
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, a @ b)
    counted = webmm.einsum("ij,j->ji", a.astype(np.int32), np.arange(8, dtype=np.int32), device=device)
    np.testing.assert_array_equal(counted, (a * np.arange(8)).T)
    assert webmm.einsum("ij,jk->ik", a[:, :0], b[:0], device=device).tolist() == np.zeros((6, 5)).tolist()


def test_a_contraction_is_one_product(device, monkeypatch):
    from webmm.calls import einsum as module

    called, compute = [], module.matmul
    monkeypatch.setattr(
        module, "matmul", lambda x, y, **more: called.append((x.shape, y.shape)) or compute(x, y, **more)
    )
    webmm.einsum("abij,bkj->iak", drawn(2, 3, 4, 5), drawn(3, 6, 5), device=device)
    assert called == [((8, 15), (15, 6))]


@pytest.mark.parametrize(
    ("subscripts", "shapes", "words"),
    [
        ("ii->i", [(3, 4)], "i has lengths 3 and 4"),
        ("ij,jk->ii", [(3, 3), (3, 3)], "'ii' repeats a letter"),
        ("ij,jk->ix", [(3, 3), (3, 3)], "letters of the operands"),
        ("ij,jk,kl", [(3, 3)] * 3, "call it once per pair"),
        ("ij,jk", [(3, 3)], "names 2 operands, but 1 were given"),
        ("ij", [(3, 3)] * 2, "names 1 operands, but 2 were given"),
        ("ijk", [(3, 3)], "'ijk' does not match an array of 2 axes"),
        ("i", [(3, 3)], "'i' does not match an array of 2 axes"),
        ("ij,jk", [(3, 4), (3, 4)], "j has lengths 4 and 3"),
        ("i1", [(3, 3)], "may contain only letters"),
        ("i......", [(3, 3)], "may contain only letters"),
        ("...i->i", [(3, 3)], "must have the axes of"),
        ("...,...", [(3,), (4,)], "do not broadcast"),
        ([0, 1], [(3, 3)], "takes subscripts such as"),
    ],
)
def test_bad_input(device, subscripts, shapes, words):
    with pytest.raises(ProblemError, match=words):
        webmm.einsum(subscripts, *(drawn(*shape) for shape in shapes), device=device)


def test_options_of_numpy_that_are_not_supported(device):
    x = device.array(drawn(3, 3))
    with pytest.raises(ProblemError, match="does not support order="):
        np.einsum("ij->ji", x, order="C")
    with pytest.raises(ProblemError, match="dtype int32 is not supported"):
        webmm.einsum("ij,jk", x.astype("int32"), x.astype("int32"))
    with pytest.raises(ProblemError, match="different devices"), webmm.Device(device.info.index) as other:
        webmm.einsum("ij,jk", x, other.array(drawn(3, 3)))


def test_sums_have_the_result_dtype(device):
    x = np.full((3, 100), 1000, np.float16)
    assert np.all(webmm.einsum("ij->i", x, out_dtype="float32", device=device) == 100_000)
    found = webmm.einsum("ij,k->ik", x, np.ones(4, np.float16), out_dtype="float32", device=device)
    assert found.dtype == np.float32
    assert np.all(found == 100_000)


@pytest.mark.parametrize("subscripts", ["ij->ji", "ij->i", "i,j->ij", "ij,k->ik", "ij,jk->ik"])
@pytest.mark.parametrize(("dtype", "out"), [(np.float16, np.float32), (np.float32, np.float16)])
def test_results_have_the_requested_dtype(device, subscripts, dtype, out):
    terms = subscripts.partition("->")[0].split(",")
    operands = [drawn(*(LENGTHS[letter] for letter in term), dtype=dtype) for term in terms]
    found = webmm.einsum(subscripts, *operands, out_dtype=out, device=device)
    assert found.dtype == out
    np.testing.assert_array_equal(found, np.einsum(subscripts, *operands))
