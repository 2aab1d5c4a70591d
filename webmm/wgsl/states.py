"""The states of a reduction of your own: its expressions, compiled for elements of one kind, and evaluated by NumPy."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.wgsl.expressions import (
    FUNCTIONS,
    NUMPY,
    REAL,
    TRUTH,
    WHOLE,
    Compiled,
    compiled,
    constant,
    parsed,
    reference,
    scalar,
)
from webmm.wgsl.library import files_of

EXACT = (
    *("abs", "maximum", "minimum", "relu", "isnan", "float32", "int32", "bool", "copysign", "nextafter"),
    *("floor", "ceil", "trunc", "round", "sign", "signbit", "isinf", "isfinite"),
)
INEXACT = frozenset(FUNCTIONS) - frozenset(EXACT)  # functions that drivers approximate

State = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Terms:
    """The expressions of a declaration for elements of one kind, for NumPy and as WGSL."""

    names: tuple[str, ...]
    map: dict[str, str]
    combine: dict[str, str]
    finish: str
    identity: dict[str, Any]  # NumPy scalars
    kinds: dict[str, str]  # of the values
    kind: str  # of the result
    wgsl: dict[str, Any]  # for the template
    work: int  # operations per element

    @classmethod
    def of(
        cls, mapped: dict[str, str], combined: dict[str, str], numbers: dict[str, float], finish: str, kind: str
    ) -> Terms:
        """Compile the expressions; raises ProblemError if one is wrong, for elements of this kind."""
        names = tuple(mapped)
        maps: dict[str, Compiled] = {
            name: compiled(ast.unparse(parsed(text)), (("i", WHOLE), ("x", kind))) for name, text in mapped.items()
        }
        kinds = {name: each.kind for name, each in maps.items()}
        for name, found in kinds.items():
            if found == TRUTH:
                raise ProblemError(f"map {mapped[name]!r} is a boolean; a state has numbers: use int32({mapped[name]})")
        both = tuple((f"{side}_{name}", kinds[name]) for side in "ab" for name in names)
        texts = {name: _fields(text, names) for name, text in combined.items()}
        merges = {name: compiled(text, both) for name, text in texts.items()}
        for name, each in merges.items():
            if each.kind != kinds[name]:
                raise ProblemError(f"combine {combined[name]!r} is {each.kind}, but map {mapped[name]!r} {kinds[name]}")
        free = () if "n" in names else (("n", REAL),)
        last = _renamed(finish, {name: f"v_{name}" for name in names})
        end = compiled(last, (*((f"v_{name}", kinds[name]) for name in names), *free))
        identity = {name: _number(numbers[name], kinds[name]) for name in names}
        everything = [*maps.values(), *merges.values(), end]
        constants = [constant(x, kinds[name]).wgsl for name, x in identity.items()]
        calls = [*constants, *(each.wgsl for each in everything)]
        wgsl = {
            "names": names,
            "fields": [f"of_{name}" for name in names],
            "types": [kinds[name] for name in names],
            "identity": constants,
            "map": [each.wgsl for each in maps.values()],
            "combine": [each.wgsl for each in merges.values()],
            "finish": end.wgsl,
            "count": bool(free),
            "yields": end.kind,
            "functions": files_of(" ".join(calls)),
        }
        trees = [parsed(text) for text in (*mapped.values(), *texts.values())]
        work = sum(_work(node) for tree in trees for node in ast.walk(tree))
        return cls(names, dict(mapped), texts, last, identity, kinds, end.kind, wgsl, work)

    def mapped(self, x: NDArray[Any]) -> State:
        """Return the states of single elements."""
        values = {"x": x, "i": np.arange(x.shape[-1], dtype=np.int32)}
        return self._evaluated(self.map, values, x.shape)

    def combined(self, a: State, b: State) -> State:
        """Return the states of two."""
        values = {f"{side}_{name}": x[name] for side, x in (("a", a), ("b", b)) for name in self.names}
        return self._evaluated(self.combine, values, a[self.names[0]].shape)

    def finished(self, state: State, length: int) -> NDArray[Any]:
        """Return the results of states of `length` elements."""
        values = {f"v_{name}": x for name, x in state.items()} | ({} if "n" in self.names else {"n": float(length)})
        shape = state[self.names[0]].shape
        return _cast(np.broadcast_to(np.asarray(reference(self.finish, values)), shape), self.kind)

    def reduced(self, state: State, rounded: Callable[[State], State] | None = None) -> State:
        """Return the states of all elements along the last axis, by halves; `rounded` changes what was computed."""
        while (n := state[self.names[0]].shape[-1]) > 1:
            half = n // 2
            a, b = ({name: x[..., s] for name, x in state.items()} for s in (slice(half), slice(half, 2 * half)))
            both = self.combined(a, b)
            if rounded is not None:  # what was chosen, such as a maximum, is exact
                chosen = {name: (x == a[name]) | (x == b[name]) for name, x in both.items()}
                both = {name: np.where(chosen[name], both[name], x) for name, x in rounded(both).items()}
            rest = {name: x[..., 2 * half :] for name, x in state.items()}
            state = {name: np.concatenate([x, rest[name]], axis=-1) for name, x in both.items()}
        return {name: x[..., 0] for name, x in state.items()}

    def _evaluated(self, texts: dict[str, str], values: dict[str, Any], shape: tuple[int, ...]) -> State:
        found = {name: np.asarray(reference(text, values)) for name, text in texts.items()}
        return {name: _cast(np.broadcast_to(x, shape), self.kinds[name]) for name, x in found.items()}


def _cast(x: NDArray[Any], kind: str) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float64 if kind == REAL else NUMPY[kind])


def _number(value: float, kind: str) -> Any:
    if kind == WHOLE and not value.is_integer():  # nor infinite
        raise ProblemError(f"identity {value} is no int32")
    return scalar(int(value) if kind == WHOLE else value, kind)


def _fields(text: str, names: tuple[str, ...]) -> str:
    """Return `combine` with the names a_NAME and b_NAME for a.NAME and b.NAME, or for a and b."""

    class Named(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            if isinstance(node.value, ast.Name) and node.value.id in ("a", "b") and node.attr in names:
                return ast.Name(f"{node.value.id}_{node.attr}", ast.Load())
            return node

        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Name(f"{node.id}_v", ast.Load()) if names == ("v",) and node.id in ("a", "b") else node

    return ast.unparse(Named().visit(parsed(text)))


def _renamed(text: str, names: Mapping[str, str]) -> str:
    tree = parsed(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in called:
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


def _work(node: ast.AST) -> int:
    """Return the instructions of a node of an expression, roughly."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return 8 if node.func.id in INEXACT else 2 if node.func.id in FUNCTIONS else 1
    return 1 if isinstance(node, (ast.BinOp, ast.Compare)) else 0
