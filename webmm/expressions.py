"""Elementwise expressions: Python text, evaluated by NumPy or compiled to WGSL.

An element is computed as one of three kinds, f32, i32 or bool, independently of its stored type. A new function is an
entry of FUNCTIONS, and if WGSL has none that keeps NaN and infinities, also a function in
shaders/elementwise/functions.wgsl.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from webmm.errors import ProblemError

REAL, WHOLE, TRUTH = KINDS = ("f32", "i32", "bool")
NUMERIC = (REAL, WHOLE)


@dataclass(frozen=True)
class Function:
    """A function of elements of one kind: NumPy's implementation, and its name in WGSL for each kind that it takes."""

    reference: Callable[..., Any]
    arity: int
    wgsl: Mapping[str, str]
    result: str = ""  # its kind, if not that of the arguments


FUNCTIONS = {
    "exp": Function(np.exp, 1, {REAL: "exp_f32"}),
    "log": Function(np.log, 1, {REAL: "log_f32"}),
    "sqrt": Function(np.sqrt, 1, {REAL: "sqrt_f32"}),
    "tanh": Function(np.tanh, 1, {REAL: "tanh_f32"}),
    "abs": Function(np.abs, 1, {REAL: "abs", WHOLE: "abs"}),
    "maximum": Function(np.maximum, 2, {REAL: "maximum_f32", WHOLE: "max"}),
    "minimum": Function(np.minimum, 2, {REAL: "minimum_f32", WHOLE: "min"}),
    "float32": Function(lambda x: np.asarray(x, np.float64), 1, dict.fromkeys(KINDS, REAL), REAL),
    "int32": Function(lambda x: np.trunc(x).astype(np.int64), 1, dict.fromkeys(KINDS, WHOLE), WHOLE),
    "bool": Function(lambda x: np.asarray(x) != 0, 1, dict.fromkeys(KINDS, TRUTH), TRUTH),
}
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
LOGIC = {ast.BitAnd: "&&", ast.BitOr: "||"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "=="}


@dataclass(frozen=True)
class Compiled:
    """An expression in WGSL, and its kind."""

    wgsl: str
    kind: str


@functools.lru_cache(maxsize=1024)
def compiled(text: str, kinds: tuple[tuple[str, str], ...]) -> Compiled:
    """Return `text` in WGSL, given the kinds of its names; its numbers are f32 if any name is, otherwise i32.

    It may have + - * /, comparisons, & | ~ of booleans, FUNCTIONS and where(condition, x, y). Raises ProblemError for
    anything else, and for kinds that cannot be combined.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ProblemError(f"{text!r} is not an expression: {error.msg}") from error
    floats = any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in ast.walk(tree))
    literal = REAL if floats or any(kind == REAL for _, kind in kinds) else WHOLE
    return _Compiler(text, dict(kinds), literal).of(tree)


def reference(text: str, values: Mapping[str, Any]) -> Any:
    """Return NumPy's value of the expression, in float64 if the values are."""
    names = {name: function.reference for name, function in FUNCTIONS.items()} | {"where": np.where} | dict(values)
    with np.errstate(all="ignore"):
        return eval(compile(ast.parse(text, mode="eval"), "<expression>", "eval"), {"__builtins__": {}}, names)


@dataclass(frozen=True)
class _Compiler:
    text: str
    kinds: Mapping[str, str]
    literal: str

    def of(self, node: ast.expr) -> Compiled:
        if isinstance(node, ast.Name) and node.id in self.kinds:
            return Compiled(node.id, self.kinds[node.id])
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value is not True:
            value = float(node.value)
            return Compiled(f"f32({value!r})" if self.literal == REAL else f"i32({node.value})", self.literal)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._comparison(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, [self.of(x) for x in node.args])
        raise self.refused(f"{ast.unparse(node)} is not allowed in an expression, or is a name without a value")

    def _unary(self, node: ast.UnaryOp) -> Compiled:
        x = self.of(node.operand)
        if isinstance(node.op, ast.USub) and x.kind in NUMERIC:
            return Compiled(f"(-{x.wgsl})", x.kind)
        if isinstance(node.op, ast.Invert) and x.kind == TRUTH:
            return Compiled(f"(!{x.wgsl})", TRUTH)
        if isinstance(node.op, ast.UAdd):
            return x
        raise self.refused(f"{ast.unparse(node)} is not defined for {x.kind}")

    def _binary(self, node: ast.BinOp) -> Compiled:
        x, y = self.of(node.left), self.of(node.right)
        kind = self.common(x, y)
        if type(node.op) in LOGIC and kind == TRUTH:
            return Compiled(f"({x.wgsl} {LOGIC[type(node.op)]} {y.wgsl})", TRUTH)
        allowed = (REAL,) if isinstance(node.op, ast.Div) else NUMERIC
        if type(node.op) in ARITHMETIC and kind in allowed:
            return Compiled(f"({x.wgsl} {ARITHMETIC[type(node.op)]} {y.wgsl})", kind)
        raise self.refused(f"{ast.unparse(node)} is not defined for {kind}; cast its operands")

    def _comparison(self, node: ast.Compare) -> Compiled:
        x, y = self.of(node.left), self.of(node.comparators[0])
        sign = type(node.ops[0])
        if sign not in COMPARISONS or (self.common(x, y) == TRUTH and COMPARISONS[sign] != "=="):
            raise self.refused(f"{ast.unparse(node)} is not defined for {x.kind}")
        # WGSL's x != y is false in naga's SPIR-V if either is NaN.
        no = "!" if sign is ast.NotEq else ""
        return Compiled(f"{no}({x.wgsl} {COMPARISONS[sign]} {y.wgsl})", TRUTH)

    def _call(self, name: str, given: list[Compiled]) -> Compiled:
        if name == "where" and len(given) == 3 and given[0].kind == TRUTH:
            condition, x, y = given
            return Compiled(f"select({y.wgsl}, {x.wgsl}, {condition.wgsl})", self.common(x, y))
        function = FUNCTIONS.get(name)
        if function is None or len(given) != function.arity:
            known = ", ".join(f"{name}/{each.arity}" for name, each in FUNCTIONS.items())
            raise self.refused(f"{name}/{len(given)} is not known; there are where/3 of a boolean, {known}")
        kind = self.common(*given)
        if kind not in function.wgsl:
            raise self.refused(f"{name}() is not defined for {kind}; cast its operands")
        return Compiled(f"{function.wgsl[kind]}({', '.join(x.wgsl for x in given)})", function.result or kind)

    def common(self, *given: Compiled) -> str:
        """Return the kind of all; raises ProblemError if they differ."""
        kinds = sorted({x.kind for x in given})
        if len(kinds) > 1:
            raise self.refused(f"{' and '.join(kinds)} cannot be combined; cast one, e.g. x.astype('float32')")
        return kinds[0]

    def refused(self, why: str) -> ProblemError:
        """Return the error to raise."""
        return ProblemError(f"expression {self.text!r}: {why}")
