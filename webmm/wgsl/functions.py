"""Functions of a user's own of the elements of a product or an array: expressions with numbers and operands, or WGSL.

What they compute is part of a shader, and known to problems and templates by a name. Their numbers are members of the
uniform and their operands are bound, so that other values need no other shader.

This module is in the translated subset (docs/page.md), except for NumPy's values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webmm.errors import ProblemError
from webmm.wgsl.activations import ACTIVATIONS, Activation, Floats
from webmm.wgsl.compiler import REAL
from webmm.wgsl.library import files_of

X = "x"  # the element, in texts
# What of an expression differs if it is of vectors, functions of functions.wgsl by the end of their names included.
OF_FOUR = {
    "f32(": "vec4f(",
    "i32(": "vec4i(",
    "bool(": "vec4<bool>(",
    "true": "vec4(true)",
    "false": "vec4(false)",
}
OF_VECTORS = "functions4"  # the file of shaders/elementwise whose functions are of four elements
MAX_NUMBERS, MAX_OPERANDS = 4, 3  # of a function, or of several that are applied one after another


def of_vectors(wgsl: str) -> bool:
    """Whether an expression can be computed for four elements at once: the functions that it calls exist for them."""
    return all(file == "functions" for file in files_of(wgsl))


def of_four(wgsl: str) -> str:
    """Return an expression in WGSL as one of vectors of four elements."""
    for one, four in OF_FOUR.items():
        wgsl = wgsl.replace(one, four)
    return wgsl


@dataclass(frozen=True)
class Link:
    """A function of x, of numbers s0, s1, … and of elements y0, y1, … of operands.

    `wgsl` is `text` in WGSL, an expression of f32; with `numpy`, it is the text itself: an expression of x, a vec4f, or
    code that defines activate().
    """

    text: str
    wgsl: str
    numbers: int = 0
    kinds: tuple[str, ...] = ()  # of the operands' elements: f32, i32 or bool
    numpy: Callable[[Floats], Floats] | None = field(default=None, compare=False)

    def defined(self, name: str) -> str:
        """Return the WGSL function, called `name`, of one with `numpy`."""
        if "fn activate" in self.wgsl:
            return self.wgsl.replace("fn activate(", f"fn {name}(") + "\n"
        return f"fn {name}(x: vec4f) -> vec4f {{\nreturn {self.wgsl};\n}}\n"

    def statements(self, name: str, width: int, numbers: Sequence[int], operands: Sequence[int]) -> list[str]:
        """Return the lines that replace `result`, as `Function.statements()`, given the positions of its values.

        One with `numpy` is called by its name.
        """
        if self.numpy is not None:
            return [f"result = {name}(result);" if width > 1 else f"result = {name}(vec4f(result)).x;"]
        four = width > 1
        at_once = four and of_vectors(self.wgsl)
        number, element, of = ("vec4f", "", "") if at_once else ("f32", "[at]", "[at]") if four else ("f32", ".x", "")
        s = [f"let s{i} = {number}(params.numbers.{'xyzw'[at]});" for i, at in enumerate(numbers)]
        y = [f"let y{i} = y{at}_reg{element};" for i, at in enumerate(operands)]
        body = [f"let {X} = result{of};", *s, *y, f"result{of} = {of_four(self.wgsl) if at_once else self.wgsl};"]
        return ["for (var at = 0u; at < 4u; at++) {" if of else "{", *body, "}"]

    def reference(self, x: Floats, numbers: Sequence[float], operands: Sequence[Any]) -> Floats:
        """Return NumPy's values for `x`; operands broadcast to it."""
        if self.numpy is not None:
            with np.errstate(all="ignore"):
                return np.asarray(self.numpy(x))
        from webmm.wgsl.expressions import reference

        values = {f"s{i}": np.float64(each) for i, each in enumerate(numbers)}
        values |= {  # a float of any type is computed as float32 is
            f"y{i}": np.asarray(each, np.float64) if kind == REAL else each
            for i, (each, kind) in enumerate(zip(operands, self.kinds, strict=True))
        }
        return np.broadcast_to(reference(self.text, {X: x, **values}), np.shape(x)).astype(np.float64)


@dataclass(frozen=True)
class Function:
    """One or more links, each applied to the result of the one before, under the name that problems and shaders use."""

    name: str
    links: tuple[Link, ...]

    @property
    def numbers(self) -> int:
        """How many numbers it takes."""
        return sum(link.numbers for link in self.links)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its operands."""
        return tuple([kind for link in self.links for kind in link.kinds])

    @property
    def plain(self) -> bool:
        """Whether it is WGSL that takes nothing but x."""
        return all(link.numpy is not None for link in self.links)

    @property
    def included(self) -> list[str]:
        """The files of shaders/elementwise that have the functions that it calls."""
        called = [link.wgsl for link in self.links if link.numpy is None]
        found = files_of(" ".join(called))
        return [*found, OF_VECTORS] if any(of_vectors(wgsl) and files_of(wgsl) for wgsl in called) else found

    @property
    def text(self) -> str:
        """The WGSL functions that it needs: activate(), or if it is not plain, apply_0() and so on for `statements()`.

        The name in a comment ties a self-test verdict to NumPy functions, too.
        """
        given = [i for i, link in enumerate(self.links) if link.numpy is not None]
        if not given:
            return ""
        if self.plain and len(self.links) == 1:
            return f"// {self.name}\n{self.links[0].defined('activate')}"
        functions = [self.links[i].defined(f"apply_{i}") for i in given]
        if self.plain:
            body = "\n".join([f"result = apply_{i}(result);" for i in given])
            functions.append(f"fn activate(x: vec4f) -> vec4f {{\nvar result = x;\n{body}\nreturn result;\n}}\n")
        return "\n".join([f"// {self.name}\n", *functions])

    def statements(self, width: int) -> str:
        """The WGSL that replaces `result`, a vec4f or if `width` is 1 an f32, by its function; operands are y0_reg, ….

        They stand in the function that stores, and call nothing that calls: NVIDIA's driver makes one function of three
        levels of calls below main(). A fourth took 16 % of a product of float16 at 4096³ on an H100.
        """
        lines: list[str] = []
        for i, (link, numbers, operands) in enumerate(self.parts()):
            lines.extend(link.statements(f"apply_{i}", width, list(numbers), list(operands)))
        return "\n".join(lines)

    def parts(self) -> list[tuple[Link, range, range]]:
        """Return each link with the positions of its numbers and of its operands."""
        found, s, y = [], 0, 0
        for link in self.links:
            found.append((link, range(s, s + link.numbers), range(y, y + len(link.kinds))))
            s, y = s + link.numbers, y + len(link.kinds)
        return found

    def reference(self, x: Floats, numbers: Sequence[float] = (), operands: Sequence[Any] = ()) -> Floats:
        """Return NumPy's values for `x`; operands broadcast to it."""
        value = x
        for link, s, y in self.parts():
            value = link.reference(value, [numbers[i] for i in s], [operands[i] for i in y])
        return value


OWN: dict[str, Function] = {}  # by name; never removed, since cached problems and shaders refer to them


def activation_name(name: str) -> str:
    """Return the name of an activation, or "" for none; raises ProblemError if it is unknown."""
    if name and name not in ACTIVATIONS and name not in OWN:
        known = ", ".join(ACTIVATIONS)
        raise ProblemError(f"unknown activation {name!r}; choose from {known}, or pass an Epilogue")
    return name


def activation_of(name: str) -> Activation | Function:
    """Return the activation called `name`, built-in or user-defined."""
    return ACTIVATIONS[name] if name in ACTIVATIONS else OWN[name]
