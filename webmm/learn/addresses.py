"""What the invocations of a shader access: the index expressions of its text, evaluated for an invocation.

Only whole numbers: constants, `let`s that follow from them, and indices of tiles in workgroup memory.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from webmm.errors import ConfigError

Names = dict[str, int]
DEFINED = re.compile(r"^\s*(?:const|let) (\w+)(?:: u32)? = ([^;]+);", re.MULTILINE)
TILE = re.compile(r"var<workgroup> (\w+): ([^;]+);")
INDEX = r"((?:\[[^\[\]]+\])+)"
ELEMENT = re.compile(r"(?:array<)+(?:vec(?P<width>\d)(?:(?P<short>f)|<))?(?P<kind>f32|f64)?")
BYTES = {"f32": 4, "f64": 8}
OPERATIONS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
}


def evaluate(expression: str, names: Mapping[str, int]) -> int:
    """Return the value of a WGSL expression of u32; raises ConfigError if it is none, or has an unknown name."""
    tree = _parsed(expression)
    try:
        if tree is None:
            raise KeyError(expression)
        return _value(tree, names)
    except KeyError as error:
        raise ConfigError(f"{expression!r} is no expression of known whole numbers") from error


@functools.cache
def _parsed(expression: str) -> ast.expr | None:
    plain = re.sub(r"\b(\d+)u\b", r"\1", expression.strip()).replace("/", "//")
    try:
        return ast.parse(re.sub(r"\b([a-z]\w*)\.(\w+)", r"\1_\2", plain), mode="eval").body
    except SyntaxError:
        return None


@functools.lru_cache(maxsize=8)
def _definitions(wgsl: str) -> tuple[tuple[str, ast.expr], ...]:
    found = ((name, _parsed(expression)) for name, expression in DEFINED.findall(wgsl))
    return tuple((name, tree) for name, tree in found if tree is not None)


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return OPERATIONS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "min":
        return min(_value(each, names) for each in node.args)
    raise KeyError(type(node).__name__)


def names_for(wgsl: str, **known: int) -> Names:
    """Return the constants and `let`s of a shader's text that follow from the known names.

    A dot of a name is an underscore: `local.x` is local_x, `params.n` is params_n.
    """
    names: Names = dict(known)
    for name, tree in _definitions(wgsl):
        with suppress(KeyError):  # a value that is loaded, or of a type other than u32
            names.setdefault(name, _value(tree, names))
    return names


@dataclass(frozen=True)
class Tile:
    """A variable in workgroup memory: bytes from one index to the next, outermost first, and bytes of an element."""

    strides: tuple[int, ...]
    element: int

    def address(self, indices: str, names: Mapping[str, int]) -> int:
        """Return the first byte of an element or of a vector that is given by its [indices]."""
        found = re.findall(r"\[([^\[\]]+)\]", indices)
        return sum(evaluate(i, names) * stride for i, stride in zip(found, self.strides, strict=False))


def tile_of(wgsl: str, name: str) -> Tile:
    """Return the layout of a variable in workgroup memory; raises ConfigError if the text has none of that name."""
    declared = dict(TILE.findall(wgsl)).get(name)
    inner = ELEMENT.match(declared or "")
    if declared is None or inner is None:
        raise ConfigError(f"the shader has no array {name} of numbers or vectors in workgroup memory")
    lengths = [inner["width"] or "", *re.findall(r", ([^,>]+)>", declared)]  # innermost first
    element = BYTES[inner["kind"] or f"{inner['short']}32"]
    strides, reach = [], element
    for length in filter(None, lengths):
        strides.append(reach)
        reach *= evaluate(length, names_for(wgsl))
    return Tile(tuple(reversed(strides)), element)


def accesses(wgsl: str, name: str, *, stores: bool) -> Iterator[str]:
    """Yield the [indices] of each statement that stores to a tile, or of the first element that it reads."""
    before, after = (r"^\s*", r" = ") if stores else (r"= [\w<>]*\(?", "")
    for found in re.finditer(rf"{before}{name}{INDEX}{after}", wgsl, re.MULTILINE):
        yield found[1]
