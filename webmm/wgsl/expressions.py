"""Elementwise expressions: Python text, evaluated by NumPy or compiled to WGSL.

An element is computed as one of three kinds, f32, i32 or bool, independently of its stored type. A literal takes the
kind that it is combined with, as in NumPy; what has only literals is computed here, so that compilers see no overflow,
and no division by 0, of constants. A new function is an entry of FUNCTIONS, and if WGSL has none that keeps NaN and
infinities, also a function in shaders/elementwise/functions.wgsl.
"""

from __future__ import annotations

import ast
import functools
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webmm.dtypes import BOOL, I32, DType
from webmm.errors import ProblemError
from webmm.wgsl.activations import gelu, gelu_tanh, relu, silu

REAL, WHOLE, TRUTH = KINDS = ("f32", "i32", "bool")
NUMERIC = (REAL, WHOLE)
NUMPY: Mapping[str, type[np.generic]] = {REAL: np.float32, WHOLE: np.int32, TRUTH: np.bool_}
MAX_DEPTH = 120  # levels of brackets; browsers refuse WGSL with more than 128
MAX_PARTS = 2000  # names, literals, operators and calls; a thousand tanh() compile for seconds on a CPU
PLAIN = 2.0**16  # the largest literal in WGSL, and the inverse of the smallest: products of seven do not overflow
OWN_FUNCTIONS = "_f32("  # suffix, with the bracket of a call, of the functions of shaders/elementwise/functions.wgsl
SHOWN = 80  # characters of an expression in a message


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


FUNCTIONS = {
    "exp": Function(np.exp, 1, {REAL: "exp_f32"}),
    "log": Function(np.log, 1, {REAL: "log_f32"}),
    "sqrt": Function(np.sqrt, 1, {REAL: "sqrt_f32"}),
    "tanh": Function(np.tanh, 1, {REAL: "tanh_f32"}),
    "sigmoid": Function(lambda x: 1 / (1 + np.exp(-x)), 1, {REAL: "sigmoid_f32"}),
    "relu": Function(relu, 1, {REAL: "relu_f32"}),
    "gelu": Function(gelu, 1, {REAL: "gelu_f32"}),
    "gelu_tanh": Function(gelu_tanh, 1, {REAL: "gelu_tanh_f32"}),
    "silu": Function(silu, 1, {REAL: "silu_f32"}),
    "abs": Function(np.abs, 1, {REAL: "abs", WHOLE: "abs"}),
    "maximum": Function(np.maximum, 2, {REAL: "maximum_f32", WHOLE: "max"}),
    "minimum": Function(np.minimum, 2, {REAL: "minimum_f32", WHOLE: "min"}),
    "isnan": Function(np.isnan, 1, {REAL: "is_nan_f32"}, TRUTH),
    "float32": Function(lambda x: np.asarray(x, np.float64), 1, dict.fromkeys(KINDS, REAL), REAL),
    "int32": Function(whole, 1, {REAL: "int32_f32", WHOLE: WHOLE, TRUTH: WHOLE}, WHOLE),
    "bool": Function(lambda x: np.asarray(x) != 0, 1, {REAL: "bool_f32", WHOLE: TRUTH, TRUTH: TRUTH}, TRUTH),
}
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
LOGIC = {ast.BitAnd: "&&", ast.BitOr: "||"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
NEGATE, NOT, SELECT = "negate", "not", "select"
OPERATIONS: Mapping[str, Callable[..., Any]] = {  # of Python's numbers and of NumPy's scalars and arrays
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, NEGATE: operator.neg},
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    **{"==": operator.eq, "!=": operator.ne, "&&": operator.and_, "||": operator.or_},
    **{NOT: operator.not_, SELECT: np.where},
}


@dataclass(frozen=True)
class Compiled:
    """An expression in WGSL, and its kind; what it computes from `terms`, or the value of a constant."""

    wgsl: str
    kind: str
    operation: str = ""  # in OPERATIONS or FUNCTIONS; "" for a name and a constant
    terms: tuple[Compiled, ...] = ()
    value: Any = None  # of a constant: a NumPy scalar
    depth: int = 1  # levels of brackets in `wgsl`


@dataclass(frozen=True)
class Literal:
    """A number of the text, or of an expression of such numbers, which has no kind yet."""

    value: bool | int | float


Part = Compiled | Literal


@functools.lru_cache(maxsize=1024)
def compiled(text: str, kinds: tuple[tuple[str, str], ...]) -> Compiled:
    """Return `text` in WGSL, given the kinds of its names.

    It may have + - * /, comparisons, & | ~ of booleans, FUNCTIONS and where(condition, x, y). Raises ProblemError for
    anything else, for kinds that cannot be combined, and for literals that do not fit their kind.
    """
    tree = parsed(text)
    floats = any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in ast.walk(tree))
    literal = REAL if floats or any(kind == REAL for _, kind in kinds) else WHOLE
    compiler = _Compiler(text, dict(kinds), literal)
    with np.errstate(all="ignore"):
        return compiler.common(compiler.of(tree))[0]


def kind_of(dtype: DType) -> str:
    """Return the kind that computes elements of `dtype`, one of COMPUTED."""
    return WHOLE if dtype == I32 else TRUTH if dtype == BOOL else REAL


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
                raise ProblemError(
                    f"expression {shown(text)}: {node.id} was not given; the operands are {', '.join(names)}"
                )
            used.add(node.id)
            node.id = names[node.id]
    return ast.unparse(tree), used


def shown(text: object) -> str:
    """Return an expression for a message, shortened if it is long."""
    words = repr(text)
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"


def reference(text: str, values: Mapping[str, Any]) -> Any:
    """Return NumPy's value of the expression, in float64 if the values are."""
    names = {name: function.reference for name, function in FUNCTIONS.items()} | {"where": np.where} | dict(values)
    with np.errstate(all="ignore"):
        return eval(compile(ast.parse(text, mode="eval"), "<expression>", "eval"), {"__builtins__": {}}, names)


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
    """Return a constant. Compilers must not know those that WGSL cannot write, nor 0 and numbers of unusual size:
    lavapipe compiles x / 0.0 to |x|, and x * 1e30 * 1e30 to x * ∞.
    """
    number = NUMPY[kind](value)
    if kind == TRUTH:
        return Compiled("true" if number else "false", kind, value=number)
    if kind == WHOLE:
        return Compiled(f"i32({number})", kind, value=number)
    wgsl = f"f32({float(number)!r})" if 1 / PLAIN <= abs(number) <= PLAIN else f"constant_f32(0x{bits(number):08x}u)"
    return Compiled(wgsl, kind, value=number, depth=2)


@dataclass(frozen=True)
class _Compiler:
    text: str
    kinds: Mapping[str, str]
    literal: str  # the kind of numbers that are combined with nothing else

    def of(self, node: ast.expr) -> Part:
        if isinstance(node, ast.Name) and node.id in self.kinds:
            return Compiled(node.id, self.kinds[node.id])
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return Literal(node.value)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, [self.of(x) for x in node.args])
        advice = "; use & and | instead of and, or" if isinstance(node, ast.BoolOp) else ""
        raise self.refused(f"{_words(node)} is not allowed in an expression, or is a name without a value{advice}")

    def _unary(self, node: ast.UnaryOp) -> Part:
        x = self.of(node.operand)
        if isinstance(node.op, ast.UAdd):
            return x
        truth = isinstance(x.value, bool) if isinstance(x, Literal) else x.kind == TRUTH
        if isinstance(node.op, ast.Invert) and truth:
            return self._made(NOT, "(!{})", TRUTH, x)
        if isinstance(node.op, ast.USub) and (isinstance(x, Literal) or not truth):
            return self._made(NEGATE, "(-{})", "", x)
        advice = "; use ~ of booleans instead of not" if isinstance(node.op, ast.Not) else ""
        raise self.refused(f"{_words(node)} is not defined for {self.kind_of(x)}{advice}")

    def _binary(self, node: ast.BinOp) -> Part:
        x, y = self.of(node.left), self.of(node.right)
        sign = ARITHMETIC.get(type(node.op)) or LOGIC.get(type(node.op), "")
        kind = self.kind_of(x, y)
        literals = isinstance(x, Literal) and isinstance(y, Literal)
        logic = type(node.op) in LOGIC
        if sign and (kind == TRUTH if logic else literals or kind == REAL or (kind == WHOLE and sign != "/")):
            # A divisor that is always 0, as x - x is, is hidden like the constant.
            hidden = sign == "/" and isinstance(y, Compiled) and y.operation
            return self._made(sign, "({} / hidden_f32({}))" if hidden else f"({{}} {sign} {{}})", "", x, y)
        raise self.refused(f"{_words(node)} is not defined for {kind}; cast its operands")

    def _comparison(self, node: ast.Compare) -> Part:
        if len(node.ops) > 1:
            raise self.refused(f"{_words(node)} is a chain; write (a < b) & (b < c)")
        x, y = self.of(node.left), self.of(node.comparators[0])
        sign = COMPARISONS.get(type(node.ops[0]), "")
        same = sign in ("==", "!=")
        if not sign or (self.kind_of(x, y) == TRUTH and not same):
            raise self.refused(f"{_words(node)} is not defined for {self.kind_of(x)}")
        if (
            same and x == y and self.kind_of(x) == REAL and isinstance(x, Compiled)
        ):  # a test for NaN, which drivers lose
            nan = self._call("isnan", [x])
            return nan if sign == "!=" else self._made(NOT, "(!{})", TRUTH, nan)
        # WGSL's x != y is false in naga's SPIR-V if either is NaN.
        wgsl = "(!({} == {}))" if sign == "!=" else f"({{}} {sign} {{}})"
        return self._made(sign, wgsl, TRUTH, x, y)

    def _call(self, name: str, given: list[Part]) -> Part:
        if name == "where" and len(given) == 3 and self.kind_of(given[0]) == TRUTH:
            (condition,), (x, y) = self.common(given[0]), self.common(*given[1:])
            return self._made(SELECT, "select({2}, {1}, {0})", x.kind, condition, x, y)
        function = FUNCTIONS.get(name)
        if function is None or len(given) != function.arity:
            known = ", ".join(f"{name}/{each.arity}" for name, each in FUNCTIONS.items())
            raise self.refused(f"{name}/{len(given)} is not known; there are where/3 of a boolean, {known}")
        kind = self.kind_of(*given)
        if kind == WHOLE and kind not in function.wgsl and all(isinstance(x, Literal) for x in given):
            kind = REAL
        if kind not in function.wgsl:
            raise self.refused(f"{name}() is not defined for {kind}; cast its operands")
        terms = [self._typed(x, kind) for x in given]
        places = ", ".join(["{}"] * len(given))
        return self._made(name, f"{function.wgsl[kind]}({places})", function.result, *terms)

    def _made(self, operation: str, wgsl: str, result: str, *given: Part) -> Part:
        """Return an operation, by default of its operands' kind; of constants, and of literals, its value."""
        function = FUNCTIONS[operation].reference if operation in FUNCTIONS else OPERATIONS[operation]
        if all(isinstance(x, Literal) for x in given):
            return self._literal(function, [x.value for x in given if isinstance(x, Literal)])
        terms = self.common(*given) if operation != SELECT else tuple(x for x in given if isinstance(x, Compiled))
        kind = result or terms[0].kind
        if all(x.value is not None for x in terms):
            return constant(function(*(x.value for x in terms)), kind)
        depth = max(x.depth for x in terms) + sum(wgsl.count(sign) for sign in ("(", "(-", "!"))
        if depth > MAX_DEPTH:
            raise self.refused(f"it has more than {MAX_DEPTH} levels of brackets; compute parts of it by other calls")
        return Compiled(wgsl.format(*(x.wgsl for x in terms)), kind, operation, terms, depth=depth)

    def _literal(self, function: Callable[..., Any], values: list[bool | int | float]) -> Literal:
        try:
            return Literal(function(*values))
        except ArithmeticError as error:
            raise self.refused(f"{error} in a part without operands") from error

    def kind_of(self, *given: Part) -> str:
        """Return the kind that the parts have in common; raises ProblemError if they differ."""
        kinds = sorted({x.kind for x in given if isinstance(x, Compiled)})
        numbers = [x.value for x in given if isinstance(x, Literal)]
        if not kinds:
            return TRUTH if all(isinstance(x, bool) for x in numbers) else self.literal
        for kind, number, refused in (  # a literal is never an int32's fraction, nor a boolean's number
            (WHOLE, REAL, lambda x: isinstance(x, float)),
            (TRUTH, self.literal, lambda x: not isinstance(x, bool)),
        ):
            if kind in kinds and any(map(refused, numbers)):
                kinds = sorted({*kinds, number})
        if len(kinds) > 1:
            raise self.refused(f"{' and '.join(kinds)} cannot be combined; cast one, e.g. x.astype('float32')")
        return kinds[0]

    def common(self, *given: Part) -> tuple[Compiled, ...]:
        """Return the parts with literals converted to the kind of all."""
        kind = self.kind_of(*given)
        return tuple(self._typed(x, kind) for x in given)

    def _typed(self, x: Part, kind: str) -> Compiled:
        if isinstance(x, Compiled):
            return x
        try:
            return constant(x.value if kind == TRUTH else scalar(x.value, kind), kind)
        except ProblemError as error:
            raise self.refused(str(error)) from error

    def refused(self, why: str) -> ProblemError:
        """Return the error to raise."""
        return ProblemError(f"expression {shown(self.text)}: {why}")


def _words(node: ast.expr) -> str:
    words = ast.unparse(node)
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
