"""The multiply panel: products of files, pasted text and random matrices, with options; what it refuses."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.web.page_steps import MESSAGE, npy, saved, show, upload, wait_text
from webmm.measure.verify import worst_error
from webmm.wgsl import activations


def test_multiply_files_and_download(page) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((33, 70), np.float32) - 0.5, rng.random((70, 21), np.float32) - 0.5
    show(page, "multiply")
    upload(page, "#a-file", "a.npy", npy(a))
    upload(page, "#b-file", "b.csv", "\n".join(",".join(repr(float(x)) for x in row) for row in b).encode())
    assert "33×70 float32" in wait_text(page, "#a-about", "33×70")
    wait_text(page, "#b-about", "70×21")
    page.click("#multiply-run")
    wait_text(page, MESSAGE, "C is 33×21")
    assert "every element" in page.inner_text("#multiply-check")
    assert page.locator("canvas.heat").get_attribute("width") == "21"
    c = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
    assert c.dtype == np.float32
    assert c.shape == (33, 21)
    assert worst_error(c, a, b) <= 70 * 2.0**-23
    text = np.loadtxt(io.BytesIO(saved(page, "#download-csv")), delimiter=",", dtype=np.float32)
    np.testing.assert_array_equal(text, c)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12, dtype=np.float64).reshape(3, 4)),
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.arange(12, dtype=np.int16).reshape(3, 4),
        np.arange(12, dtype=np.float16).reshape(3, 4),
    ],
    ids=["fortran", "big-endian", "int16", "float16"],
)
def test_multiply_reads_npy_files(page, array: np.ndarray) -> None:
    show(page, "multiply")
    upload(page, "#a-file", "a.npy", npy(array))
    wait_text(page, "#a-about", "3×4")
    upload(page, "#b-file", "b.npy", npy(np.eye(4, dtype=np.float32)))
    page.click("#multiply-run")
    wait_text(page, MESSAGE, "C is 3×4")
    c = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
    np.testing.assert_array_equal(c, array.astype(np.float32))


def test_multiply_files_larger_than_memory(page) -> None:
    """Their product is computed piece by piece, whatever their order; some elements are checked on the CPU."""
    rng = np.random.default_rng(3)
    a, b = rng.random((95, 65), np.float32) - 0.5, rng.random((65, 85), np.float32) - 0.5
    page.evaluate("webmm.device.memory = 2 ** 16")
    show(page, "multiply")
    upload(page, "#a-file", "a.npy", npy(np.asfortranarray(a)))
    assert "95×65 float32" in wait_text(page, "#a-about", "95×65")
    upload(page, "#b-file", "b.npy", npy(b))
    wait_text(page, "#b-about", "65×85")
    page.fill("#multiply-alpha", "2")
    page.click("#multiply-run")
    wait_text(page, MESSAGE, "C is 95×85 float32, computed piece by piece")
    assert "24 elements compared" in page.inner_text("#multiply-check")
    c = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
    assert worst_error(c / 2, a, b) <= 65 * 2.0**-23
    page.select_option("#multiply-activation", "relu")
    page.click("#multiply-run")
    wait_text(
        page, MESSAGE, "activation cannot be used with files that are too large for memory; alpha and precision can"
    )
    upload(page, "#b-file", "b.npy", npy(b.astype(np.float64)))
    wait_text(page, "#b-about", "a file that is too large for memory must be float32 or float16")


def test_a_wrong_product_of_large_files_is_detected(page) -> None:
    a = np.random.default_rng(4).random((60, 50), np.float32)
    page.evaluate(
        """() => { webmm.device.memory = 2 ** 15;
        const right = webmm.device.gemm.bind(webmm.device);
        webmm.device.gemm = (a, b, c, options) => right(a, b, c, { ...options, beta: 0 }); }"""
    )
    show(page, "multiply")
    for name in ("a", "b"):
        upload(page, f"#{name}-file", f"{name}.npy", npy(a if name == "a" else a.T.copy()))
        wait_text(page, f"#{name}-about", "float32")
    page.click("#multiply-run")
    wait_text(page, MESSAGE, "C is wrong")


def test_multiply_pasted_text_with_nan_and_inf(page) -> None:
    show(page, "multiply")
    page.fill("#a-text", "# a comment\n1; nan\n2; inf")
    page.fill("#b-text", "1 0\n0 1")
    page.click("#multiply-run")
    wait_text(page, MESSAGE, "C is 2×2")
    c = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
    a = np.array([[1, np.nan], [2, np.inf]])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(c, a @ np.eye(2))


def test_multiply_takes_nested_lists(page) -> None:
    show(page, "multiply")
    texts = (
        "[[1.5, 2], [3, 4]]",
        "[[1.5, 2.0],\n [3, 4]]",
        "array([[1.5, 2. ],\n       [3. , 4. ]])",
        "array([[1.5, 2. ], [3. , 4. ]], dtype=float32)",
        "[[1.5 2. ]\n [3.  4. ]]",
    )
    for columns, text in enumerate(texts, 1):
        page.fill("#a-text", text)
        page.fill("#b-text", str([[1] * columns, [2] * columns]))
        page.click("#multiply-run")
        wait_text(page, MESSAGE, f"C is 2×{columns}")
        c = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
        np.testing.assert_array_equal(c, [[5.5] * columns, [11] * columns])


def test_multiply_refuses_other_lists(page) -> None:
    show(page, "multiply")
    for text, words in (
        ("[[[1], [2]], [[3], [4]]]", "A: a list must have numbers, or rows of numbers"),
        ("[[1, 2], [3]]", "A: line 2 has 1 values"),
        ("[[1, 2], 3]", "A: a list must have numbers, or rows of numbers"),
        ("[]", "A: the text contains no numbers"),
    ):
        page.fill("#a-text", text)
        page.click("#multiply-run")
        wait_text(page, MESSAGE, words)


def test_multiply_says_when_its_time_includes_compilation(page) -> None:
    show(page, "multiply")
    page.click("#multiply-run")
    assert "compilation, upload and download included" in wait_text(page, MESSAGE, "C is")
    page.click("#multiply-run")
    wait_text(page, MESSAGE, "ms, upload and download included", "µs, upload and download included")


PICKLE = npy(np.zeros((2, 2))).replace(b"'<f8'", b"'|O'  ")


def with_type(descr: bytes) -> bytes:
    """Return a .npy file whose header says `descr`."""
    file = npy(np.zeros((2, 2))).replace(b"'<f8'", b"'%s'" % descr)
    return file.replace(b" " * (len(descr) - 3) + b"\n", b"\n", 1)


MALFORMED = [
    ("a.npy", b"", "not a .npy file"),
    ("a.npy", b"hello, this is text", "not a .npy file"),
    ("a.npy", npy(np.zeros((4, 4)))[:-8], "cut short"),
    ("a.npy", npy(np.zeros((4, 4)))[:40], "cut short"),
    ("a.npy", npy(np.zeros((2, 3, 4))), "two dimensions"),
    ("a.npy", npy(np.zeros(3)), "two dimensions"),
    ("a.npy", npy(np.zeros((0, 3))), "empty"),
    ("a.npy", npy(np.zeros((2, 2), complex)), "not numbers"),
    ("a.npy", PICKLE, "not numbers"),
    ("a.npy", with_type(b"<toString"), "not numbers"),  # members of every JavaScript object
    ("a.npy", with_type(b"|__proto__"), "not numbers"),
    ("a.csv", b"constructor,1", "is not a number"),
    ("a.csv", b"1;__proto__", "is not a number"),
    ("a.csv", b"toString", "is not a number"),
    ("a.csv", b"", "no numbers"),
    ("a.csv", b"1,2\n3", "line 2 has 1 values"),
    ("a.csv", b"1,2\n3,x", "is not a number"),
    ("a.csv", b"1,,2", "is empty"),
    ("a.csv", bytes(range(256)), "is not a number"),
]


def test_malformed_files_are_refused(page) -> None:
    show(page, "multiply")
    for name, data, words in MALFORMED:
        upload(page, "#a-file", name, data)
        wait_text(page, "#a-about", words)
        page.click("#multiply-run")
        wait_text(page, MESSAGE, "A: ")
        upload(page, "#a-file", "good.csv", b"1,2")
        wait_text(page, "#a-about", "1×2")


def test_matrix_refuses_unknown_dtypes(page) -> None:
    make = """async (dtype) => {
      const { Matrix } = await import("./webmm.js");
      try { return new Matrix(new Float32Array(1), [1, 1], dtype).dtype; } catch (error) { return String(error); }
    }"""
    assert page.evaluate(make, "float32") == "float32"
    for dtype in ("constructor", "float64"):
        assert f"float16, not {dtype}" in page.evaluate(make, dtype)


def test_sizes_that_do_not_fit_are_refused(page) -> None:
    show(page, "multiply")
    page.fill("#a-rows", "200000")
    page.fill("#a-columns", "200000")
    page.click("#a-random")
    assert "per matrix" in wait_text(page, "#a-about", "needs")
    page.fill("#a-columns", "1")
    page.click("#a-random")
    wait_text(page, "#a-about", "200000×1")
    page.fill("#b-rows", "1")
    page.fill("#b-columns", "200000")
    page.click("#b-random")
    page.click("#multiply-run")  # a product of 160 GB
    assert "elements" in wait_text(page, MESSAGE, "C would have", "needs")
    page.fill("#b-text", "1,2,3\n4,5,6")
    page.click("#multiply-run")
    assert "as many columns as B has rows" in wait_text(page, MESSAGE, "A is")


def test_multiply_with_options(page) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((7, 5), (6, 7)))
    show(page, "multiply")
    upload(page, "#a-file", "a.npy", npy(a))
    upload(page, "#b-file", "b.npy", npy(b))
    wait_text(page, "#b-about", "6×7")
    for name in ("a", "b"):
        page.check(f"#multiply-transpose-{name}")
    page.fill("#multiply-alpha", "0.5")
    page.select_option("#multiply-precision", "high")
    product = 0.5 * (a.T @ b.T).astype(np.float64)
    per_row, per_column = np.arange(5) - 2.0, np.arange(6) / 4
    asked = "transposeA: true, transposeB: true, alpha: 0.5"
    for bias, values, added in (("row", per_row, per_row[:, None]), ("column", per_column, per_column), ("", (), 0)):
        page.select_option("#multiply-bias", bias)
        if bias:
            page.fill("#multiply-bias-values", ", ".join(map(str, values)))
        for activation, meaning in (("relu", activations.relu), ("gelu", activations.gelu), ("", lambda x: x)):
            page.select_option("#multiply-activation", activation)
            page.click("#multiply-run")
            wait_text(page, MESSAGE, "C is 5×6 float32, computed by ", "wrong")
            assert page.inner_text("#multiply-call").startswith(f"await gpu.matmul(a, b, {{ {asked}")
            assert "every element" in page.inner_text("#multiply-check")
            c = np.load(io.BytesIO(saved(page, "#download-npy")), allow_pickle=False)
            np.testing.assert_allclose(
                c, meaning(product + added), rtol=1e-5, atol=1e-5, err_msg=f"{bias} {activation}"
            )


def test_multiply_refuses_mismatched_options(page) -> None:
    show(page, "multiply")  # 2×3 by 3×2
    page.select_option("#multiply-bias", "column")
    for fill, words in (
        ({"#multiply-bias-values": "1, 2, 3"}, "bias has shape (3,); it must be (2,)"),
        ({"#multiply-bias-values": "1, x"}, "bias: line 1, value 2 is not a number: “x”"),
        ({"#multiply-bias-values": "", "#multiply-alpha": "two"}, "alpha must be a number, not “two”"),
    ):
        for selector, text in fill.items():
            page.fill(selector, text)
        page.click("#multiply-run")
        assert "\n" not in wait_text(page, MESSAGE, words)
    page.fill("#multiply-alpha", "1")
    page.check("#multiply-transpose-a")
    page.click("#multiply-run")
    assert "as many columns as B has rows" in wait_text(page, MESSAGE, "A is 3×2")
    page.uncheck("#multiply-transpose-a")
    page.click("#multiply-run")  # a bias drawn at random
    wait_text(page, MESSAGE, "C is 2×2")


def test_wrong_epilogue_is_detected(open_page) -> None:
    page = open_page(service_workers="block")
    page.route(
        "**/bundle/templates/epilogues/relu.js",
        lambda route: route.fulfill(
            body=route.fetch().text().replace("select(x, vec4f()", "select(vec4f(), x"), content_type="text/javascript"
        ),
    )
    page.reload()
    page.wait_for_selector("body[data-ready]")
    show(page, "multiply")
    page.select_option("#multiply-activation", "relu")
    page.click("#multiply-run")
    assert "C is wrong" in wait_text(page, MESSAGE, "C is")


def test_float16_rounds_like_numpy(page) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [
            rng.standard_normal(2000) * 10.0 ** rng.integers(-9, 6, 2000),
            np.arange(0, 0x7C00, 7, dtype=np.uint16).view(np.float16).astype(float),
            [0.0, -0.0, np.inf, -np.inf, 65504, 65519.99, 65520, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 2.0**-14 - 2.0**-26],
        ]
    ).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    halves = page.evaluate(
        "async (bits) => { const { toHalves, fromHalves } = await import('./webmm.js');"
        " const halves = toHalves(new Float32Array(Uint32Array.from(bits).buffer));"
        " return [[...halves], [...new Uint32Array(fromHalves(halves).buffer)]]; }",
        values.view(np.uint32).tolist(),
    )
    np.testing.assert_array_equal(np.array(halves[0], np.uint16), expected.view(np.uint16))
    np.testing.assert_array_equal(np.array(halves[1], np.uint32), expected.astype(np.float32).view(np.uint32))
