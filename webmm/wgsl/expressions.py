"""Elementwise expressions: Python text, evaluated by NumPy or compiled to WGSL.

An element is computed as one of three kinds, f32, i32 or bool, independently of its stored type. A literal takes the
kind that it is combined with, as in NumPy; what has only literals is computed here, so that compilers see no overflow,
and no division by 0, of constants. A new function is an entry of SIGNATURES and REFERENCES, and if WGSL has none that
keeps NaN and infinities, also a function in a file of shaders/elementwise (`webmm.wgsl.library`).
"""

from __future__ import annotations

import ast
import functools
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.errors import ProblemError
from webmm.wgsl.activations import gelu, gelu_tanh, relu, silu
from webmm.wgsl.compiler import COMPLEMENT as COMPLEMENT
from webmm.wgsl.compiler import LOGIC as LOGIC
from webmm.wgsl.compiler import MAX_DEPTH, SIGNATURES, Literal, Node, Numbers, compiled_tree, not_given, shortened
from webmm.wgsl.compiler import NEGATE as NEGATE
from webmm.wgsl.compiler import NOT as NOT
from webmm.wgsl.compiler import REAL as REAL
from webmm.wgsl.compiler import SELECT as SELECT
from webmm.wgsl.compiler import TRUTH as TRUTH
from webmm.wgsl.compiler import WHOLE as WHOLE
from webmm.wgsl.compiler import Compiled as Compiled
from webmm.wgsl.compiler import kind_of as kind_of
from webmm.wgsl.compiler import shown as shown
from webmm.wgsl.grammar import constant_of

NUMPY: Mapping[str, type[np.generic]] = {REAL: np.float32, WHOLE: np.int32, TRUTH: np.bool_}
MAX_PARTS = 2000  # names, literals, operators and calls; a thousand tanh() compile for seconds on a CPU
LARGEST = 2**12  # bits of an integer of literals
NOTHING: dict[str, Any] = {"__builtins__": {}}


@dataclass(frozen=True)
class Function:
    """A function of elements of one kind: NumPy's implementation, and its name in WGSL for each kind that it takes."""

    reference: Callable[..., Any]
    arity: int
    wgsl: Mapping[str, str]
    result: str = ""  # its kind, if not that of the arguments


def whole(x: Any) -> NDArray[np.int64]:
    """Return `x` rounded towards 0 and limited to the range of int32; 0 for NaN."""
    given = np.asarray(x)
    if given.dtype.kind != "f":
        return given.astype(np.int64)
    info = np.iinfo(np.int32)
    number = np.where(np.isnan(given), 0.0, given).astype(np.float64)
    return np.clip(np.trunc(number), info.min, info.max).astype(np.int64)


def power(x: Any, y: Any) -> Any:
    """Return x ** y; of integers of NumPy with a negative y rounded towards 0, of Python's only if it is a float's."""
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        if isinstance(x, int) and isinstance(y, int) and x.bit_length() * y > LARGEST:
            raise OverflowError(f"{x} ** {y} is too large")
        found = x**y
        if isinstance(found, complex):
            raise ArithmeticError(f"{x} ** {y} is not real")
        return found
    if np.asarray(x).dtype.kind == "f":
        if np.ndim(x) and not np.ndim(y):  # a number 0.5 is sqrt for NumPy 2.4, of which -∞ is NaN, and not C's pow
            y = np.full(np.shape(x), y, np.result_type(x, y))
        return np.power(x, y)
    inverse = np.where(np.equal(x, 1), 1, np.where(np.equal(x, -1), np.where(np.bitwise_and(y, 1), -1, 1), 0))
    return np.where(np.less(y, 0), inverse, np.power(x, np.maximum(y, 0)))


def shifted_left(x: Any, y: Any) -> Any:
    """Return x << y."""
    if isinstance(x, int) and isinstance(y, int) and y > LARGEST:
        raise OverflowError(f"{x} << {y} is too large")
    return x << y


AS_NUMPY = (  # functions with NumPy's names
    *("exp2", "expm1", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "hypot", "logaddexp"),
    *("copysign", "floor", "ceil", "trunc", "sign", "signbit", "isinf", "isfinite"),
)
INVERSES = ("arcsin", "arccos", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh")
REFERENCES: Mapping[str, Callable[..., Any]] = {
    **{"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))},
    **{"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu},
    **{"abs": np.abs, "maximum": np.maximum, "minimum": np.minimum, "isnan": np.isnan},
    "float32": lambda x: np.asarray(x, np.float64),
    "int32": whole,
    "bool": lambda x: np.asarray(x) != 0,
    **{name: getattr(np, name) for name in AS_NUMPY},
    **{f"a{name[3:]}": getattr(np, name) for name in INVERSES},
    "round": np.rint,
    "nextafter": lambda x, y: np.nextafter(np.float32(x), np.float32(y)).astype(np.float64),
}
FUNCTIONS = {name: Function(REFERENCES[name], x.arity, x.wgsl, x.result) for name, x in SIGNATURES.items()}
ARITHMETIC = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"},
    **{ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
}
LOGICAL = {ast.BitAnd: "&&", ast.BitOr: "||", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}
UNARY = {ast.UAdd: "+", ast.USub: NEGATE, ast.Invert: NOT}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
OPERATIONS: Mapping[str, Callable[..., Any]] = {  # of Python's numbers and of NumPy's scalars and arrays
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, NEGATE: operator.neg},
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    **{"==": operator.eq, "!=": operator.ne, "&&": operator.and_, "||": operator.or_},
    **{NOT: operator.not_, COMPLEMENT: operator.invert, SELECT: np.where},
    **{"//": operator.floordiv, "%": operator.mod, "**": power, "^": operator.xor},
    **{"<<": shifted_left, ">>": operator.rshift},
}


@functools.lru_cache(maxsize=1024)
def compiled(text: str, kinds: tuple[tuple[str, str], ...]) -> Compiled:
    """Return `text` in WGSL, given the kinds of its names.

    It may have + - * / // % **, comparisons, & | ^ ~ of booleans and integers, << >> of integers, FUNCTIONS,
    clip(x, low, high) and where(condition, x, y). Raises ProblemError for anything else, for kinds that cannot be
    combined, and for literals that do not fit their kind.
    """
    with np.errstate(all="ignore"):
        return compiled_tree(text, tree_of(text), dict(kinds), NUMBERS)


def parsed(text: str) -> ast.expr:
    """Return the syntax tree; raises ProblemError for what is not Python, and for expressions that are too large."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError) as error:
        raise ProblemError(f"{shown(text)} is not an expression: {getattr(error, 'msg', error)}") from error
    level, depth, parts = [tree], 0, 0
    while level:
        depth, parts = depth + 1, parts + len(level)
        level = [x for node in level for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr)]
    if depth > MAX_DEPTH or parts > MAX_PARTS:
        raise ProblemError(
            f"expression {shown(text)} is too large: {parts:,} parts, {depth:,} levels deep, of at most {MAX_PARTS:,} "
            f"and {MAX_DEPTH}; compute parts of it by calls of their own"
        )
    return tree


def renamed(text: str, names: Mapping[str, str]) -> tuple[str, set[str]]:
    """Return an expression with its names replaced, so that equal ones share a shader, and the names that it has.

    Raises ProblemError for a name that is not among `names`.
    """
    tree, used = parsed(text), set()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in called:
            if node.id not in names:
                raise not_given(text, node.id, list(names))
            used.add(node.id)
            node.id = names[node.id]
    return ast.unparse(tree), used


def reference(text: str, values: Mapping[str, Any]) -> Any:
    """Return NumPy's value of the expression, in float64 if the values are."""
    names = {name: function.reference for name, function in FUNCTIONS.items()} | dict(values)
    names |= {"power": power, "where": np.where, "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high)}
    with np.errstate(all="ignore"):
        return eval(compile(_Powers().visit(ast.parse(text, mode="eval")), "<expression>", "eval"), NOTHING, names)


class _Powers(ast.NodeTransformer):
    """Replaces x ** y by power(x, y), since NumPy has no negative powers of integers."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Pow):
            return node
        called = ast.Call(ast.Name("power", ast.Load()), [node.left, node.right], [])
        return ast.fix_missing_locations(ast.copy_location(called, node))


def scalar(value: Any, kind: str) -> Any:
    """Return a number as NumPy's scalar of `kind`, f32 or i32; raises ProblemError if it does not fit."""
    try:
        return np.frombuffer(struct.pack("<f" if kind == REAL else "<i", value), NUMPY[kind])[0]
    except (struct.error, OverflowError) as error:
        huge = isinstance(value, int) and value.bit_length() > 128
        words = f"an integer of {value.bit_length():,} bits" if huge else f"{value}"
        raise ProblemError(f"{words} does not fit {NUMPY[kind].__name__}") from error


def bits(value: Any) -> int:
    """Return the bits of a scalar of f32 or i32."""
    return int(np.asarray(value).view(np.uint32))


def constant(value: Any, kind: str) -> Compiled:
    """Return a constant."""
    number = NUMPY[kind](value)
    return constant_of(number, kind, repr(float(number)), f"{bits(number):08x}" if kind == REAL else "")


def tree_of(text: str) -> Node:
    """Return the tree of an expression for the compiler; raises ProblemError as `parsed()` does."""
    return _node(parsed(text))


def _node(node: ast.AST) -> Node:
    if isinstance(node, ast.Name):
        return Node("name", node.id, node)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return Node("number", "", node, literal=_literal(node.value))
    if isinstance(node, ast.UnaryOp):
        return Node("unary", UNARY.get(type(node.op), ""), node, (_node(node.operand),))
    if isinstance(node, ast.BinOp):
        sign = ARITHMETIC.get(type(node.op)) or LOGICAL.get(type(node.op), "")
        return Node("binary", sign, node, (_node(node.left), _node(node.right)))
    if isinstance(node, ast.Compare):
        return Node(
            "comparison", COMPARISONS.get(type(node.ops[0]), ""), node, (*map(_node, (node.left, *node.comparators)),)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return Node("call", node.func.id, node, (*map(_node, node.args),))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return Node("name", f"{node.value.id}.{node.attr}", node)
    within = (_node(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
    return Node("logic" if isinstance(node, ast.BoolOp) else "other", "", node, tuple(within))


def _literal(value: Any) -> Literal:
    return Literal(value, "bool" if isinstance(value, bool) else "float" if isinstance(value, float) else "int")


def applied(operation: str, *terms: Any) -> Any:
    """Return an operation of `compiler.Compiled`, of Python's numbers, or of NumPy's scalars and arrays."""
    if operation == NOT and not isinstance(terms[0], bool):
        return np.logical_not(terms[0])
    return (FUNCTIONS[operation].reference if operation in FUNCTIONS else OPERATIONS[operation])(*terms)


def _words(node: Node) -> str:
    return shortened(ast.unparse(node.source))


def _computed(operation: str, given: Sequence[Literal]) -> Literal:
    try:
        return _literal(applied(operation, *(x.value for x in given)))
    except (ArithmeticError, ValueError) as error:  # such as a division by 0, or a negative shift
        raise ProblemError(f"{error} in a part without operands") from error


NUMBERS = Numbers(
    computed=_computed,
    folded=lambda operation, terms, kind: constant(applied(operation, *(x.value for x in terms)), kind),
    typed=lambda x, kind: constant(x.value if kind == TRUTH else scalar(x.value, kind), kind),
    words=_words,
)
