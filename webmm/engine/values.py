"""Reading and writing the elements of an array, as NumPy's methods do: copies, conversions, assignment, printing."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from webmm import hooks
from webmm.engine.operators import LISTS, Operators
from webmm.engine.pool import Owner_co
from webmm.engine.view import View
from webmm.errors import DeviceLostError, FreedArrayError, ProblemError

if TYPE_CHECKING:
    from typing_extensions import Self

EDGES = 4  # elements at each end of a long axis, in a notebook


class Values(Operators, View[Owner_co]):
    """The methods of an array that read or write its elements."""

    if TYPE_CHECKING:

        def numpy(self) -> NDArray[Any]:
            """Return a copy in host memory, of the array's shape and dtype."""

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no axes has no length")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Overwrite the elements that `key` selects with `value`, which broadcasts, converted as `astype()` does.

        `key` has integers, slices, None and `...`, or is a mask of the array's shape, for a single value; `value` is a
        number, or an array in host memory or on the device. Raises ProblemError for other keys, values that do not
        broadcast, and views that repeat elements.
        """
        keys = key if isinstance(key, tuple) else (key,)
        masks = [k for k in keys if isinstance(k, LISTS)]
        if not masks:
            hooks.above.write(self[key], value)
            return
        mask: Any = masks[0] if isinstance(masks[0], Operators) else np.asarray(masks[0])
        if len(keys) > 1 or mask.dtype != bool or mask.shape != self.shape or np.ndim(value):
            raise ProblemError(
                "elements are assigned to by slices, or by a mask of the array's shape with a single value; "
                "for more, combine arrays with webmm.where()"
            )
        hooks.above.write(self, self._function(np.where)(mask, value, self))

    # Copies and conversions

    def copy(self) -> Self:
        """Return a copy in row-major order on the same device."""
        return self._made(np.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy, as `copy()`."""
        del memo
        return self.copy()

    def ravel(self) -> Self:
        """Return the elements along one axis, in row-major order: a view if the array is contiguous."""
        return self._made(np.reshape, -1)

    def flatten(self) -> Self:
        """Return a copy of the elements along one axis, in row-major order."""
        return self._made(np.reshape, -1, copy=True)

    def dot(self, other: Any) -> Self:
        """Return NumPy's `dot()` of the array and another."""
        return self._made(np.dot, other)

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """Return the elements limited to the range from `min` to `max`, each a number, an array or None."""
        return self._made(np.clip, min, max)

    def round(self, decimals: int = 0) -> Self:
        """Return the elements rounded to the nearest number of so many decimals, halves to even."""
        return self._made(np.round, decimals)

    def all(self, axis: Any = None, keepdims: bool = False) -> Self:
        """Return whether all elements over `axis` are true (not 0)."""
        return self._made(np.all, axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Self:
        """Return whether any element over `axis` is true (not 0)."""
        return self._made(np.any, axis, keepdims=keepdims)

    def to_device(self, device: Any, /, *, stream: None = None) -> Self:
        """Return the array on another device, a Device or the name of one, copied through the host."""
        del stream
        moved: Self = hooks.above.namespace(None).asarray(self, device=device)
        return moved

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python's numbers."""
        return self.numpy().tolist()

    def item(self, *index: int) -> Any:
        """Return the only element, or the one at an index, as a Python number; raises ProblemError for more."""
        return self[index]._only() if index else self._only()

    def __index__(self) -> int:
        value = self._only()
        if self.dtype.kind not in "iu":
            raise TypeError(f"an array of {self.dtype} is not an index; only integers are")
        return operator.index(value)

    def __complex__(self) -> complex:
        return complex(self._only())

    def _function(self, function: Any) -> Any:
        return hooks.above.numpy_functions[function]

    def _made(self, function: Any, *args: Any, **kwargs: Any) -> Self:
        made: Self = self._function(function)(self, *args, **kwargs)
        return made

    # Printing

    def __str__(self) -> str:
        """Return the values as NumPy prints them; of a large array only its edges are copied from the device."""
        settings = np.get_printoptions()
        try:
            if self.size <= settings["threshold"]:
                return str(self.numpy())
            return np.array2string(self._edges(settings["edgeitems"]), threshold=0)
        except (DeviceLostError, FreedArrayError):
            return repr(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what notebooks show: the values as text, and as HTML a table of its edges and a heat map of a matrix.

        The heat map has at most 32 rows and columns, which are copied from the device.
        """
        del include, exclude
        from webmm.engine import display

        try:
            place = getattr(self.storage.device, "info", "a device")
            caption = f"{' × '.join(map(str, self.shape)) or 'scalar'} {self.element.name} on {place}"
            if self.ndim not in (1, 2) or not self.size:
                return {"text/plain": repr(self), "text/html": display.table((), [[str(self)]], caption)}
            matrix = self if self.ndim == 2 else self[None]
            cells = np.atleast_2d(matrix._edges(EDGES)).astype(object)
            for axis, length in enumerate(matrix.shape):
                if length > 2 * EDGES + 1:
                    np.moveaxis(cells, axis, 0)[EDGES] = "…"
            html = display.table(
                (), [[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in cells], caption
            )
            if self.ndim == 2:
                columns = display.places(self.shape[1])
                html += display.heat_map(np.stack([self[i].numpy()[columns] for i in display.places(len(self))]))
            return {"text/plain": repr(self), "text/html": html}
        except (DeviceLostError, FreedArrayError):
            return {"text/plain": repr(self)}

    def _edges(self, count: int) -> NDArray[Any]:
        """Return an array that NumPy prints like this one: of long axes, `count` elements at each end, and a gap."""
        long = [n > 2 * count + 1 for n in self.shape]
        shown = np.zeros(
            [2 * count + 1 if is_long else n for is_long, n in zip(long, self.shape, strict=True)], self.dtype
        )
        ends = [(slice(count), slice(-count, None)) if is_long else (slice(None),) for is_long in long]
        for corner in itertools.product(*ends):
            shown[corner] = self[corner].numpy()
        return shown
