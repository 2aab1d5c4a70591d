"""``import webmm.einops`` lets einops compute on devices: ``einops.rearrange(x, "b c h w -> b h w c")`` of an `Array`.

einops finds the classes below its AbstractBackend by the name of their library, once that is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from einops._backends import AbstractBackend

from webmm.calls.einsum import einsum
from webmm.calls.joined import concatenate, stack
from webmm.calls.numpy_functions import FUNCTIONS
from webmm.engine.device import Array, default_device

if TYPE_CHECKING:
    _Base = object
else:
    _Base = AbstractBackend


class WebmmBackend(_Base):
    """The operations that einops asks of a library."""

    framework_name = "webmm"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Return whether it is an Array."""
        return isinstance(tensor, Array)

    def from_numpy(self, x: Any) -> Array:
        """Return a copy on the default device."""
        return default_device().array(x)

    def to_numpy(self, x: Array) -> Any:
        """Return a copy in host memory."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Array:
        """Return whole numbers on the default device."""
        return default_device().array(np.arange(start, stop, dtype=np.int32))

    def shape(self, x: Array) -> tuple[int, ...]:
        """Return the shape."""
        return x.shape

    def reshape(self, x: Array, shape: Any) -> Array:
        """Return the elements in another shape: a view if the array is contiguous."""
        reshaped: Array = FUNCTIONS[np.reshape](x, shape)
        return reshaped

    def transpose(self, x: Array, axes: Any) -> Array:
        """Return a view with the axes in another order."""
        return x.transpose(*axes)

    def reduce(self, x: Array, operation: str, axes: Any) -> Array:
        """Return the reduction over axes; any and all are of booleans."""
        reduced: Array = getattr(x, operation)(axis=tuple(axes))
        return reduced

    def stack_on_zeroth_dimension(self, tensors: list[Array]) -> Array:
        """Return the arrays joined along a new first axis."""
        return stack(tensors)

    def add_axis(self, x: Array, new_position: int) -> Array:
        """Return a view with a new axis of length 1."""
        added: Array = FUNCTIONS[np.expand_dims](x, new_position)
        return added

    def add_axes(self, x: Array, n_axes: int, pos2len: dict[int, int]) -> Array:
        """Return a view that is repeated along new axes, of the given lengths."""
        for position in sorted(pos2len):
            x = self.add_axis(x, position)
        return x.broadcast_to(tuple(pos2len.get(i, x.shape[i]) for i in range(n_axes)))

    def tile(self, x: Array, repeats: Any) -> Array:
        """Return the array repeated along its axes."""
        tiled: Array = FUNCTIONS[np.tile](x, repeats)
        return tiled

    def concat(self, tensors: list[Array], axis: int) -> Array:
        """Return the arrays joined along an axis."""
        return concatenate(tensors, axis)

    def is_float_type(self, x: Array) -> bool:
        """Return whether the elements are floats."""
        return x.element.name not in ("int32", "bool")

    def einsum(self, pattern: str, *x: Array) -> Array:
        """Return the Einstein summation of one or two arrays."""
        summed: Array = einsum(pattern, *x)
        return summed
