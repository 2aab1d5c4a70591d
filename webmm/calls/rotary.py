"""The public call for rotary position embeddings."""

from __future__ import annotations

from typing import Any

from webmm.arguments.arrays import element_of
from webmm.arguments.elements import ROTATED, check_rotary
from webmm.calls.devices import Devices
from webmm.calls.expression import Maker, fill
from webmm.calls.joined import fill_view
from webmm.calls.operands import Operandish, flag, opened, returned
from webmm.calls.planned import planned
from webmm.engine.device import Array, Device


@planned
def rotary(
    x: Operandish,
    cos: Operandish,
    sin: Operandish,
    interleaved: bool = False,
    *,
    device: Device | None = None,
    devices: Devices | None = None,
) -> Any:
    """Return `x` with each pair of elements rotated by the angle of its token and pair (Su et al., RoFormer, 2021).

    A pair (x, y) becomes (x·cos - y·sin, y·cos + x·sin).

    Arguments:

    - `x`: shape (…, tokens, width) of one of `webmm.dtypes.MATRIX_DTYPES`, such as queries or keys; `width` is even.
    - `cos`, `sin`: shape (tokens, width/2), or any shape that broadcasts to (…, tokens, width/2); the dtype of `x`, or
      float32. An `Array` may be a view, such as the rows ``cos[t : t + 1]`` of a table.
    - `interleaved`: whether a pair is (x[2i], x[2i + 1]), as in GPT-J, or (x[i], x[i + width/2]), as in Llama.
    - `device`: by default the device of the operands, or the most capable adapter.
    - `devices`: "all" or a list of Devices, among which a call on NumPy arrays is divided.

    Returns an array of the shape and dtype of `x`: a NumPy array, or an `Array` on the same device if an operand is
    one. Views of any strides are read in place. It takes two dispatches, one for each element of the pairs.

    Raises ProblemError for an odd width, and for shapes and dtypes that do not fit; otherwise as `elementwise()`.

    Example: ``webmm.rotary(q, np.cos(angles), np.sin(angles))``
    """
    with opened("rotary", device, x, cos, sin, devices=devices) as temporary:
        source, *table = (temporary.data(each) for each in (x, cos, sin))
        check_rotary(source, *table)
        first, second = _pairs(source.shape[-1], flag("interleaved", interleaved))
        dtype = element_of(source)
        y = temporary.result(source.shape, dtype, source, *table)
        operands = [source[first], source[second], *table]
        for text, half in zip(ROTATED, (first, second), strict=True):
            make = Maker(text, dict(zip("xycs", map(element_of, operands), strict=True)), {}, dtype.name)
            if isinstance(y, Array):
                fill_view(make, temporary.arrays(*operands), y[half])
            elif y.size:
                fill(temporary.devices, make, operands, y[half])
        return returned(y)


def _pairs(width: int, interleaved: bool) -> tuple[Any, Any]:
    """Return the indices of the first and of the second elements of all pairs."""
    if interleaved:
        return (..., slice(0, None, 2)), (..., slice(1, None, 2))
    return (..., slice(width // 2)), (..., slice(width // 2, None))
