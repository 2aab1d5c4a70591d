"""What users apply to each element: an expression or WGSL, with the values of its names."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from webmm.dtypes import COMPUTED, DType, dtype_of
from webmm.errors import ProblemError
from webmm.wgsl.activations import Floats
from webmm.wgsl.expressions import NUMBERS, REAL, renamed, scalar, shown, tree_of
from webmm.wgsl.functions import OWN, Function, Link, X, activation_name
from webmm.wgsl.links import check_count, checked_kind, link_of, places_of

SAMPLES = np.arange(-32, 33) / 8.0  # the values at which the NumPy functions of two epilogues are compared


class Epilogue:
    """A function of one's own of each element: `activation=` of `matmul()` and `qmatmul_weights()`, or for `map()`.

    Arguments:

    - `text`: an expression of x in the language of `webmm.elementwise()`, such as "where(x > 0, x, slope * x)".
    - `values`: what its other names stand for: at most MAX_NUMBERS numbers, and MAX_OPERANDS arrays that broadcast to
      the result, such as one of its shape, (n,) for an element per column, or (m, 1) for one per row. Other values need
      no other shader, if arrays have the same dtype: float32, float16, bfloat16, int32 or bool.
    - `numpy`: the text is WGSL, an expression of x, a vec4f, or source code that defines
      `fn activate(x: vec4f) -> vec4f`, and this the reference: a function that takes a float64 array and returns an
      array of the same shape. The self-test compares the shader with it before the first use; `wgsl=` may name the
      text.

    Two epilogues are equal if their texts and values are, arrays being the same objects; with `numpy`, if their
    references agree on sample values.

    Raises ProblemError for an invalid expression, for values that it does not use or lacks or that are too many, and if
    `numpy` fails, or does not return an array of numbers of the same shape.

    Example: ``webmm.matmul(a, b, activation=webmm.Epilogue("where(x > 0, x, slope * x)", slope=0.1))``
    """

    def __init__(
        self, text: str = "", /, numpy: Callable[[Floats], Floats] | None = None, *, wgsl: str = "", **values: Any
    ) -> None:
        if bool(text) == bool(wgsl) or not isinstance(text or wgsl, str):
            raise ProblemError('an epilogue needs one text, such as Epilogue("where(x > 0, x, slope * x)", slope=0.1)')
        self.wgsl, self.numpy = text or wgsl, numpy
        numbers = {name: _number(self.wgsl, name, x) for name, x in values.items() if _is_number(x)}
        operands = {name: _array(self.wgsl, name, x) for name, x in values.items() if name not in numbers}
        if numpy is None and wgsl:
            raise ProblemError(f"epilogue {shown(wgsl)}: WGSL needs its NumPy function, Epilogue(wgsl=…, numpy=…)")
        if numpy is not None and values:
            raise ProblemError(
                f"epilogue {shown(self.wgsl)}: WGSL takes x alone, not {', '.join(values)}; write an expression, "
                "without numpy="
            )
        if numpy is None:
            link = _link(self.wgsl, tuple(numbers), tuple([(name, _element(x)) for name, x in operands.items()]))
        else:
            link = _checked(Link(self.wgsl, self.wgsl, numpy=numpy))
        self._keep(_function((link,)), tuple(numbers.values()), tuple(operands.values()))

    @property
    def links(self) -> tuple[Epilogue, ...]:
        """The functions of x that it applies one after another; their texts have the names s0, s1, … and y0, y1, …"""
        found = []
        for link, s, y in self.function.parts():
            one = copy(self)
            one.wgsl, one.numpy = link.text, link.numpy
            one._keep(_function((link,)), tuple(self.numbers[i] for i in s), tuple(self.operands[i] for i in y))
            found.append(one)
        return tuple(found)

    def then(self, following: Epilogue | str) -> Epilogue:
        """Return the epilogue that applies this one, and `following`, or the activation of that name, to the result.

        Raises ProblemError for an unknown name, and for too many numbers or arrays.
        """
        other = following if isinstance(following, Epilogue) else Epilogue(f"{activation_name(following)}({X})")
        both = copy(self)
        both.wgsl = f"{self.wgsl}, then {other.wgsl}"
        function = _function((*self.function.links, *other.function.links))
        both._keep(function, (*self.numbers, *other.numbers), (*self.operands, *other.operands))
        return both

    def over(self, operands: Sequence[Any]) -> Epilogue:
        """Return the same function with other arrays, such as parts of these."""
        found = copy(self)
        found.operands = tuple(operands)
        return found

    def _keep(self, function: Function, numbers: tuple[float, ...], operands: tuple[Any, ...]) -> None:
        """Set what it applies; raises ProblemError for too many values."""
        check_count(self.wgsl, len(numbers), len(operands))
        self.function, self.numbers, self.operands, self.name = function, numbers, operands, function.name

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make its function known where it is unpickled, such as in another process."""
        vars(self).update(state)
        OWN.setdefault(self.name, self.function)

    @property
    def text(self) -> str:
        """The WGSL of activate()."""
        return self.function.text

    def reference(self, x: Floats) -> Floats:
        """Return NumPy's values for `x`, to which the operands broadcast."""
        return self.function.reference(x, self.numbers, [np.asarray(each) for each in self.operands])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epilogue) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self.name, struct.pack(f"{len(self.numbers)}d", *self.numbers), *map(id, self.operands)

    def __repr__(self) -> str:
        return f"Epilogue({self.wgsl!r})"


def name_of(activation: str | Epilogue | None) -> str:
    """Return the name of an activation, "" for None; raises ProblemError if it is unknown."""
    return activation.name if isinstance(activation, Epilogue) else activation_name(activation or "")


def fields_of(activation: str | Epilogue) -> dict[str, Any]:
    """Return the fields of `Applied` that say what an activation is, without the layouts of its operands."""
    numbers = activation.numbers if isinstance(activation, Epilogue) else ()
    return {"activation": name_of(activation), "values": numbers}


def _function(links: tuple[Link, ...]) -> Function:
    """Return the function of these links, under a name that identifies what it computes."""
    return _of_texts(links) if all(link.numpy is None for link in links) else _named(links)


@lru_cache(maxsize=1024)
def _of_texts(links: tuple[Link, ...]) -> Function:
    return _named(links)


def _named(links: tuple[Link, ...]) -> Function:
    digest = hashlib.sha256()
    for link in links:
        digest.update(f"{link.wgsl}\0{link.numbers}\0{link.kinds}\0".encode())
        if link.numpy is not None:
            digest.update(link.reference(SAMPLES.copy(), (), ()).astype(np.float64).tobytes())
    return OWN.setdefault(name := f"own_{digest.hexdigest()[:12]}", Function(name, links))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def _number(text: str, name: str, x: Any) -> float:
    try:
        return float(scalar(float(x), REAL))
    except (ProblemError, OverflowError) as error:
        raise ProblemError(f"epilogue {shown(text)}: {name} = {error}") from error


def _element(x: Any) -> DType:
    return getattr(x, "element", None) or dtype_of(x.dtype)


def _array(text: str, name: str, x: Any) -> Any:
    """Return an array; raises ProblemError if it has a dtype that expressions do not take."""
    if getattr(x, "element", None) in COMPUTED:  # of an array on a device
        return x
    what = f"epilogue {shown(text)}: {name}"
    try:
        array = x if hasattr(x, "element") else np.asarray(x)
    except ValueError as error:
        raise ProblemError(f"{what} = {shown(x)} is neither a number nor an array: {error}") from error
    if isinstance(x, (list, tuple)) and array.dtype.kind == "f":
        array = array.astype(np.float32)
    if array.dtype.kind in "OSU" or (array.ndim == 0 and not hasattr(x, "dtype")):
        raise ProblemError(f"{what} = {shown(x)} is neither a number nor an array")
    try:
        element = dtype_of(array.dtype)
    except ProblemError:
        element = None
    checked_kind(text, name, str(array.dtype), element)
    return array


@lru_cache(maxsize=1024)  # a model makes one with other values for each of its layers and tokens
def _link(text: str, numbers: tuple[str, ...], operands: tuple[tuple[str, DType], ...]) -> Link:
    """Return the function of an expression, given the names of numbers, and names and dtypes of arrays.

    Raises ProblemError if it is invalid, or lacks or ignores a value.
    """
    arrays = {name: dtype.name for name, dtype in operands}
    general, _ = renamed(text, places_of(text, numbers, list(arrays)))
    with np.errstate(all="ignore"):
        return replace(link_of(text, numbers, arrays, tree_of, NUMBERS), text=general)


def _checked(link: Link) -> Link:
    """Return a function in WGSL; raises ProblemError if its NumPy function is wrong."""
    try:
        values = link.reference(SAMPLES.copy(), (), ())
    except Exception as error:
        raise ProblemError(f"numpy of the epilogue {link.text!r} fails: {error}") from error
    if values.shape != SAMPLES.shape or values.dtype.kind not in "fiub":
        raise ProblemError(f"numpy of the epilogue {link.text!r} must return an array of numbers of the same shape")
    return link
