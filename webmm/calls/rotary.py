"""The public call for rotary position embeddings."""

from __future__ import annotations

from typing import Any

from webmm.arguments.arrays import element_of
from webmm.arguments.elements import ROTATED, check_rotary, expression_for, pairs_of
from webmm.calls.devices import Devices
from webmm.calls.executor import Data, labelled
from webmm.calls.expression import LETTERS, evaluate
from webmm.calls.operands import Operandish, Temporaries, flag, opened, returned
from webmm.calls.pieces import in_pieces
from webmm.calls.planned import planned
from webmm.calls.sides import forward, is_resident, laid_out
from webmm.engine.device import Device
from webmm.wgsl.compiler import REAL


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
    with opened("rotary", device, x, cos, sin, devices=devices) as call:
        pairs = flag("interleaved", interleaved)
        return returned(rotated(call, call.data(x), call.data(cos), call.data(sin), pairs))


# The steps, in both languages


def rotated(call: Temporaries, x: Data, cos: Data, sin: Data, interleaved: bool) -> Data:
    """Return `x` with its pairs rotated: neighbours if `interleaved`, else halves of the last axis."""
    check_rotary(x, cos, sin)
    dtype = element_of(x)
    y = call.result(x.shape, dtype, x, cos, sin)
    if not y.size:
        return y
    dtypes = [dtype, dtype, element_of(cos), element_of(sin), dtype]
    problems = [expression_for(text, wgsl, REAL, dtypes, (), REAL) for text, wgsl in ROTATED]

    def compute(x: Any, cos: Any, sin: Any, y: Any) -> None:
        first, second = [laid_out(x, layout) for layout in pairs_of(x, interleaved)]
        for problem, layout in zip(problems, pairs_of(y, interleaved), strict=True):
            evaluate(call, problem, [first, second, cos, sin], laid_out(y, layout))

    if is_resident(y):
        compute(forward(call, x), forward(call, cos), forward(call, sin), y)
    else:
        operands = [labelled(x, f"{LETTERS}W"), *(labelled(each, f"{LETTERS}P") for each in (cos, sin))]
        in_pieces(call, compute, operands, labelled(y, f"{LETTERS}W"), LETTERS)
    return y
