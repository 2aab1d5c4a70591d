"""Public calls for floating-point matrix products."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from webmm.arguments.products import check_in_place
from webmm.calls import divided
from webmm.calls.devices import Devices
from webmm.calls.elementwise import activation_on
from webmm.calls.executor import Progress
from webmm.calls.operands import Operandish, Temporaries, data_of, number, operands_of
from webmm.calls.planned import planned
from webmm.calls.product import Arguments, checked, multiplied, on_device, on_host
from webmm.config import Precision, Tune, tune_mode
from webmm.engine.aliasing import check_separate
from webmm.engine.device import Array, Device, default_device
from webmm.engine.devices import named
from webmm.errors import ProblemError
from webmm.wgsl.epilogues import Terms
from webmm.wgsl.own import Epilogue, fields_of


@planned
def matmul(
    a: Operandish,
    b: Operandish,
    *,
    bias: Operandish | None = None,
    activation: str | Epilogue | None = None,
    residual: Operandish | None = None,
    alpha: float = 1.0,
    out_dtype: DTypeLike | None = None,
    out: NDArray[Any] | Array | None = None,
    device: Device | str | None = None,
    devices: Devices | None = None,
    tune: Tune | None = None,
    precision: Precision | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return the matrix product ``activation(alpha·a @ b + bias) + residual``, with the shapes of NumPy's `matmul()`.

    Arguments:

    - `a`, (…, m, k), and `b`, (…, k, n): the operands, NumPy arrays or `Array`s of one dtype, float64 or one of
      `webmm.dtypes.MATRIX_DTYPES`. Batches broadcast. A 1-D `a` is a row and a 1-D `b` a column; the result drops that
      axis. Transposed and sliced `Array`s are read in place; those with a negative stride, or with unit stride along
      neither matrix axis, are copied through the host first.
    - `bias`: shape (n,), or (m, 1) for one value per row; the operands' dtype, or float32, which is rounded to it.
    - `activation`: a name in `webmm.wgsl.epilogues.ACTIVATIONS`, or an `Epilogue`: a function of one's own, with
      numbers, and arrays that broadcast to the result, which are read where it is stored.
    - `residual`: an array of the result's shape. It costs a copy; the other terms are applied before the result is
      stored and cost no extra pass.
    - `alpha`: a number.
    - `out_dtype`: the dtype of the result, by default the operands' dtype.
    - `out`: the array to write the result to, of the result's shape: a NumPy array, such as a memory map, if all
      operands are NumPy arrays, else an `Array`. An `Array` shares no buffer with `a`, `b` or the bias, be it in other
      elements; the residual may be `out` itself (C ← A·B + C), or any view of it; one other than `out` needs a whole,
      contiguous `out`. A NumPy array may overlap operands if the product is not streamed. If the call is
      refused, `out` is unchanged.
    - `device`: by default the device of the operands, or the most capable adapter.
    - `devices`: "all" or a list of Devices among which to divide NumPy operands, in proportion to the speed of each, if
      that is faster than one device (docs/scaling.md).
    - `tune`: "off" for portable defaults, "cached" for existing tuned records, "quick" (about a second) or "auto"
      (about 20 s) to tune a shape once that has no record (docs/tuning.md); by default the setting `tune`.
    - `precision`: "highest" for float32 arithmetic, or "high", with which matrix units, if the device has any, multiply
      each float32 as two float16, and emulated float64 uses fewer slices (docs/precision.md); by default the setting
      `precision`.
    - `progress`: a function that is called as `progress(done, total)` after each step of a product of NumPy arrays.

    Returns a NumPy array (a scalar if no axis is left) if all operands are NumPy arrays, an `Array` on the same device
    if any operand is one, or `out` if it is given. NumPy operands of more than `Device.memory` bytes are streamed in
    pieces. Sums are float32 for all dtypes but float64, whose sums and results are float64 on any device
    (docs/float64.md). If `a` or `b` is a list of Arrays, one panel on each of several devices, the result is the list
    of their products.

    Raises ProblemError for shapes that do not match or an unsupported dtype, UnsupportedError if the device cannot hold
    the operands, MemoryLimitError if it has too little free memory, NoAdapterError if there is no device, and
    ShaderError for an `Epilogue` that does not compile on the device, or differs from its NumPy function there.

    Example: ``webmm.matmul(x, w, bias=b, activation="gelu")``
    """
    if devices is not None or divided.is_panels(a) or divided.is_panels(b):
        one = partial(matmul, alpha=alpha, out_dtype=out_dtype, tune=tune, precision=precision)
        more = {"bias": bias, "residual": residual, "out": out, "activation": activation}
        return divided.on_several(one, a, b, more, out_dtype, device, devices, progress)
    device, a, b = named(device), data_of(a, floats=True), data_of(b, floats=True)
    bias, residual = (None if x is None else data_of(x) for x in (bias, residual))
    operands = operands_of(activation)
    resident = [x for x in (a, b, bias, residual, out, *operands) if isinstance(x, Array)]
    device = device or (resident[0].device if resident else default_device())
    _, dtype = checked(device, a, b, bias, residual, out, out_dtype, operands)
    mode = tune_mode(tune or device.settings.tune)
    function = activation_on(device, activation)
    epilogue = Terms(alpha=number("alpha", alpha), **fields_of(function))
    settings = Arguments(bias, residual, epilogue, dtype, precision, mode, function=function)
    with device.span("matmul", "call"):
        if resident:
            return on_device(device, a, b, settings, out if isinstance(out, Array) else None)
        into = out if isinstance(out, np.ndarray) else None
        result = on_host(device, np.asarray(a), np.asarray(b), settings, into, progress)
        return result[()] if out is None else out  # [()] turns a 0-D array into a scalar


@planned
def gemm(
    a: Array, b: Array, c: Array, *, alpha: float = 1.0, beta: float = 0.0, precision: Precision | None = None
) -> Array:
    """Set ``c ← alpha·a @ b + beta·c`` in place and return `c`.

    Arguments:

    - `a`, (…, m, k), and `b`, (…, k, n): Arrays, as in `matmul()`. Batches broadcast to the batch of `c`.
    - `c`, (…, m, n): the Array to update, which may be a transposed or sliced view, but shares no buffer with `a` or
      `b`. It is not read if `beta` is 0.
    - `alpha`, `beta`: numbers.
    - `precision`: as in `matmul()`.

    Raises ProblemError if the shapes do not match, or if `c` shares its buffer with an operand or repeats elements as a
    broadcast view does; otherwise as `matmul()`.
    """
    if not all(isinstance(x, Array) for x in (a, b, c)):
        raise ProblemError("gemm() works in place and takes only arrays on a device; create one with device.array(x)")
    check_in_place(a, b, c)
    check_separate("c", c, {"a": a, "b": b})
    terms = Terms(alpha=number("alpha", alpha), beta=number("beta", beta))
    with c.device.span("gemm", "call"), Temporaries(c.device) as call:
        multiplied(call, a, b, c, None, None, terms, precision or c.device.settings.precision)
    return c


async def matmul_async(a: Operandish, b: Operandish, **settings: Any) -> Any:
    """Return `matmul(a, b, **settings)`, computed in a separate thread so that the event loop is not blocked."""
    from asyncio import to_thread  # imported here since most programs have no event loop and need not load it

    return await to_thread(matmul, a, b, **settings)
