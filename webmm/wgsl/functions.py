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
from webmm.wgsl.library import files_of

X = "x"  # the element, in texts
MAX_NUMBERS, MAX_OPERANDS = 4, 3  # of a function, or of several that are applied one after another


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
        """Return the WGSL function, called `name`."""
        if self.numpy is None:
            numbers = [f"s{i}: f32" for i in range(self.numbers)]
            operands = [f"y{i}: {kind}" for i, kind in enumerate(self.kinds)]
            return f"fn {name}({', '.join([f'{X}: f32', *numbers, *operands])}) -> f32 {{\nreturn {self.wgsl};\n}}\n"
        if "fn activate" in self.wgsl:
            return self.wgsl.replace("fn activate(", f"fn {name}(") + "\n"
        return f"fn {name}(x: vec4f) -> vec4f {{\nreturn {self.wgsl};\n}}\n"

    def called(self, name: str, x: str, numbers: Sequence[str], operands: Sequence[str]) -> str:
        """Return a call of that function for the vec4f `x`, given the numbers, and the operands as vec4."""
        if self.numpy is not None:
            return f"{name}({x})"
        calls = (f"{name}({', '.join([f'{x}.{j}', *numbers, *(f'{y}.{j}' for y in operands)])})" for j in "xyzw")
        return f"vec4f({', '.join(calls)})"

    def reference(self, x: Floats, numbers: Sequence[float], operands: Sequence[Any]) -> Floats:
        """Return NumPy's values for `x`; operands broadcast to it."""
        if self.numpy is not None:
            with np.errstate(all="ignore"):
                return np.asarray(self.numpy(x))
        from webmm.wgsl.expressions import reference

        values = {f"s{i}": np.float64(each) for i, each in enumerate(numbers)}
        values |= {f"y{i}": each for i, each in enumerate(operands)}
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
    def files(self) -> list[str]:
        """The files of shaders/elementwise that have the functions that it calls."""
        return files_of(" ".join([link.wgsl for link in self.links if link.numpy is None]))

    @property
    def text(self) -> str:
        """The WGSL of activate(); the name in a comment ties a self-test verdict to NumPy functions, too."""
        if len(self.links) == 1 and self.plain:
            return f"// {self.name}\n{self.links[0].defined('activate')}"
        functions = [f"// {self.name}\n"] if any(link.numpy is not None for link in self.links) else []
        lines = [f"var result = {X};"]
        for i, (link, numbers, operands) in enumerate(self.parts()):
            functions.append(link.defined(f"apply_{i}"))
            places = [f"params.numbers.{'xyzw'[j]}" for j in numbers]
            lines.append(f"result = {link.called(f'apply_{i}', 'result', places, [f'y{j}' for j in operands])};")
        arguments = ", ".join([f"{X}: vec4f", *(f"y{i}: vec4<{kind}>" for i, kind in enumerate(self.kinds))])
        body = "\n".join([*lines, "return result;"])
        return "\n".join([*functions, f"fn activate({arguments}) -> vec4f {{\n{body}\n}}\n"])

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
