"""Products of quantised matrices and with quantised weights: shapes, dtypes, and the quantisation of the result."""

from __future__ import annotations

from webmm.arguments.arrays import Shape, Shaped, broadcast_shape, element_of
from webmm.arguments.options import spelled
from webmm.dtypes import BYTES, F32, I32, DType
from webmm.errors import ProblemError

RESULTS = (*BYTES, I32, F32)  # dtypes of results
SUM_LIMIT = 2**31 - 1


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest integer of `dtype`."""
    count = 2 ** (8 * dtype.itemsize)
    return (0, count - 1) if dtype.name.startswith("u") else (-count // 2, count // 2 - 1)


def quantized_shape(a: Shaped, b: Shaped) -> Shape:
    """Return the shape of the product, a batch of matrices; raises ProblemError if the operands do not match."""
    if min(a.ndim, b.ndim) < 2:
        raise ProblemError(
            f"quantised products take matrices, not arrays of shapes {a.shape} and {b.shape}; reshape them"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ProblemError(
            f"a {a.shape} and b {b.shape} do not fit: the inner sizes {a.shape[-1]} and {b.shape[-2]} differ"
        )
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    if batch is None:
        raise ProblemError(f"the batches of a {a.shape} and b {b.shape} do not broadcast")
    for name, x in (("a", a), ("b", b)):
        if element_of(x) not in BYTES:
            raise ProblemError(f"{name} is {element_of(x).name}; quantised operands must be uint8 or int8")
    return (*batch, a.shape[-2], b.shape[-1])


def result_dtype(given: DType | None, scaled: bool, default: DType) -> DType:
    """Return the dtype of the result, which has a scale or not; raises ProblemError if `given` contradicts that."""
    if given is None:
        return default if scaled else F32
    name = f"{spelled('out_dtype')} {given.name}"
    if given not in RESULTS:
        raise ProblemError(f"{name} is not supported; choose int8, uint8, int32 or float32")
    if (given in BYTES) != scaled:
        scale = spelled("scale_c")
        need = f"needs {scale}, the scale of the result" if given in BYTES else f"is not requantised; omit {scale}"
        raise ProblemError(f"{name} {need}")
    return given


def check_zero_c(given: bool, out: DType) -> None:
    """Raise ProblemError if a zero point is `given` for a result that has none."""
    if given and out not in BYTES:
        raise ProblemError(f"{spelled('out_dtype')} {out.name} is not requantised; omit {spelled('zero_c')}")


def check_length(name: str, shape: Shape, size: int, length: int) -> None:
    """Raise ProblemError unless a scale or zero point of `size` elements is one number, or one for each of `length`."""
    if size != 1 and (size != length or len(shape) > 2 or max(shape) != size):
        raise ProblemError(f"{spelled(name)} has shape {shape}; it must be a number, or one for each of {length}")


def wrong_scale(name: str, value: float) -> ProblemError:
    """Return the error for a scale with this value."""
    return ProblemError(f"{spelled(name)} must be positive and finite in float32, not {value}")


def wrong_zero(name: str, value: float, dtype: DType) -> ProblemError:
    """Return the error for a zero point with this value."""
    bottom, top = integer_range(dtype)
    return ProblemError(f"{spelled(name)} must be from {bottom} to {top} for {dtype.name}, not {value}")


def check_integer_bias(dtype: str, shape: Shape, columns: int) -> None:
    """Raise ProblemError unless a bias of that dtype and shape is int32 and has an element for each of `columns`."""
    if dtype != "int32":
        unit = f"{spelled('scale_a')}·{spelled('scale_b')}"
        raise ProblemError(f"bias is {dtype}; it must be int32, in steps of {unit}: round bias / ({unit})")
    if shape != (columns,):
        raise ProblemError(f"bias has shape {shape}; it must be ({columns},), one per column")


def furthest(dtype: DType, least: int, greatest: int) -> int:
    """Return the greatest distance of an element from its zero point, of which there are some from `least` on."""
    bottom, top = integer_range(dtype)
    return max(top - least, greatest - bottom, 1)


def check_sums(k: int, a: int, b: int, added: int) -> None:
    """Raise ProblemError if a sum of k products may overflow 32 bits.

    `a` and `b` are `furthest()` of the operands, `added` is the greatest magnitude of the bias.
    """
    longest = (SUM_LIMIT - added) // (a * b)
    if k > longest:
        with_these = "with these zero points" + (" and bias" if added else "")
        raise ProblemError(
            f"{with_these} a sum of k = {k:,} products may overflow 32 bits; the largest safe k is "
            f"{max(longest, 0):,}: split k, and add int32 results in 64 bits"
        )


def weighted_shape(x: Shaped, weights: tuple[int, int]) -> Shape:
    """Return the shape of the product of `x` with weights of shape (k, n); raises ProblemError if they do not match."""
    k, n = weights
    if not x.ndim or x.shape[-1] != k:
        raise ProblemError(f"x {x.shape} and weights ({k}, {n}) do not fit: x must end with {k}")
    return (*x.shape[:-1], n)
