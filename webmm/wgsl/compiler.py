"""The compiler of elementwise expressions: from syntax trees to WGSL.

This module is in the translated subset (docs/page.md). What it asks of numbers – the value of what has literals only,
and constants in WGSL – and of texts is in `webmm.wgsl.expressions`, of which JavaScript has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webmm.dtypes import BOOL, I32, DType
from webmm.errors import ProblemError
from webmm.wgsl.library import files_of as files_of
from webmm.wgsl.library import ordered

REAL, WHOLE, TRUTH = KINDS = ("f32", "i32", "bool")
MAX_DEPTH = 120  # levels of brackets; browsers refuse WGSL with more than 128
SHOWN = 80  # characters of an expression in a message
NEGATE, NOT, COMPLEMENT, SELECT = "negate", "not", "complement", "select"
LOGIC = ("&&", "||", "^")  # of booleans, or of the bits of integers
BITS = (*LOGIC, "<<", ">>")


@dataclass(frozen=True)
class Signature:
    """What a function of elements of one kind takes: how many, and its name in WGSL for each kind."""

    arity: int
    wgsl: Mapping[str, str]
    result: str = ""  # its kind, if not that of the arguments
    inexact: bool = False  # whether drivers approximate it


def _real(arity: int, wgsl: str, result: str = "", *, inexact: bool = True) -> Signature:
    """Return the signature of a function of floats only."""
    return Signature(arity, {REAL: wgsl}, result, inexact)


SIGNATURES = {
    "exp": Signature(1, {REAL: "exp_f32"}, inexact=True),
    "log": Signature(1, {REAL: "log_f32"}, inexact=True),
    "sqrt": Signature(1, {REAL: "sqrt_f32"}, inexact=True),
    "tanh": Signature(1, {REAL: "tanh_f32"}, inexact=True),
    "sigmoid": Signature(1, {REAL: "sigmoid_f32"}, inexact=True),
    "relu": Signature(1, {REAL: "relu_f32"}),
    "gelu": Signature(1, {REAL: "gelu_f32"}, inexact=True),
    "gelu_tanh": Signature(1, {REAL: "gelu_tanh_f32"}, inexact=True),
    "silu": Signature(1, {REAL: "silu_f32"}, inexact=True),
    "abs": Signature(1, {REAL: "abs", WHOLE: "abs"}),
    "maximum": Signature(2, {REAL: "maximum_f32", WHOLE: "max"}),
    "minimum": Signature(2, {REAL: "minimum_f32", WHOLE: "min"}),
    "isnan": Signature(1, {REAL: "is_nan_f32"}, TRUTH),
    "float32": Signature(1, {REAL: REAL, WHOLE: REAL, TRUTH: REAL}, REAL),
    "int32": Signature(1, {REAL: "int32_f32", WHOLE: WHOLE, TRUTH: WHOLE}, WHOLE),
    "bool": Signature(1, {REAL: "bool_f32", WHOLE: TRUTH, TRUTH: TRUTH}, TRUTH),
    "exp2": _real(1, "exp2_number"),
    "expm1": _real(1, "expm1_number"),
    "log2": _real(1, "log2_number"),
    "log10": _real(1, "log10_number"),
    "log1p": _real(1, "log1p_number"),
    "sin": _real(1, "sin_angle"),
    "cos": _real(1, "cos_angle"),
    "tan": _real(1, "tan_angle"),
    "asin": _real(1, "asin_angle"),
    "acos": _real(1, "acos_angle"),
    "atan": _real(1, "atan_angle"),
    "atan2": _real(2, "atan2_angle"),
    "sinh": _real(1, "sinh_number"),
    "cosh": _real(1, "cosh_number"),
    "asinh": _real(1, "asinh_number"),
    "acosh": _real(1, "acosh_number"),
    "atanh": _real(1, "atanh_number"),
    "hypot": _real(2, "hypot_number"),
    "logaddexp": _real(2, "logaddexp_number"),
    "copysign": _real(2, "copysign_number", inexact=False),
    "nextafter": _real(2, "nextafter_number", inexact=False),
    "floor": _real(1, "floor_number", inexact=False),
    "ceil": _real(1, "ceil_number", inexact=False),
    "trunc": _real(1, "trunc_number", inexact=False),
    "round": _real(1, "round_number", inexact=False),
    "sign": Signature(1, {REAL: "sign_number", WHOLE: "sign"}),
    "signbit": _real(1, "signbit_number", TRUTH, inexact=False),
    "isinf": _real(1, "isinf_number", TRUTH, inexact=False),
    "isfinite": _real(1, "isfinite_number", TRUTH, inexact=False),
}
OPERATORS = {  # of two operands, in WGSL for each kind; a quotient is one of floats
    "+": {REAL: "({0} + {1})", WHOLE: "({0} + {1})"},
    "-": {REAL: "({0} - {1})", WHOLE: "({0} - {1})"},
    "*": {REAL: "({0} * {1})", WHOLE: "({0} * {1})"},
    "/": {REAL: "({0} / {1})"},
    "//": {REAL: "floor_division({0}, {1})", WHOLE: "floor_divide_i32({0}, {1})"},
    "%": {REAL: "remainder_division({0}, {1})", WHOLE: "remainder_i32({0}, {1})"},
    "**": {REAL: "real_power({0}, {1})", WHOLE: "power_i32({0}, {1})"},
    "<<": {WHOLE: "left_shift_i32({0}, {1})"},
    ">>": {WHOLE: "right_shift_i32({0}, {1})"},
    # && and || of booleans would branch: SwiftShader took over a minute for a reduction with two of them.
    "&&": {WHOLE: "({0} & {1})", TRUTH: "({0} & {1})"},
    "||": {WHOLE: "({0} | {1})", TRUTH: "({0} | {1})"},
    "^": {WHOLE: "({0} ^ {1})", TRUTH: "({0} != {1})"},
}


def shown(text: object) -> str:
    """Return an expression for a message, shortened if it is long."""
    return shortened(repr(text))


def shortened(words: str) -> str:
    """Return at most SHOWN characters of words, with a mark where some are left out."""
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"


def kind_of(dtype: DType) -> str:
    """Return the kind that computes elements of `dtype`, one of COMPUTED."""
    return WHOLE if dtype == I32 else TRUTH if dtype == BOOL else REAL


def not_given(text: str, name: str, known: Sequence[str]) -> ProblemError:
    """Return the error for a name of a text that stands for nothing."""
    return ProblemError(f"expression {shown(text)}: {name} was not given; the operands are {', '.join(known)}")


@dataclass(frozen=True)
class Node:
    """A part of a text: a name, a number, an operation, a call, or what is not allowed.

    `form` is "name", "number", "unary", "binary", "comparison", "call", or else what it is instead; `word` its name, or
    its operator as WGSL spells it, "" for one that is not allowed. `source` is what its words in messages are made of.
    """

    form: str
    word: str
    source: Any
    terms: tuple[Node, ...] = ()
    literal: Literal | None = None


@dataclass(frozen=True)
class Compiled:
    """An expression in WGSL, and its kind; what it computes from `terms`, or the value of a constant."""

    wgsl: str
    kind: str
    operation: str = ""  # of expressions.OPERATIONS or SIGNATURES; "" for a name and a constant
    terms: tuple[Compiled, ...] = ()
    value: Any = None  # of a constant: a NumPy scalar
    depth: int = 1  # levels of brackets in `wgsl`


@dataclass(frozen=True)
class Literal:
    """A number of the text, or of an expression of such numbers, which has no kind yet; `form` is its Python type."""

    value: bool | int | float
    form: str


Part = Compiled | Literal


@dataclass(frozen=True)
class Numbers:
    """What Python and JavaScript each compute of numbers, and the words of a node."""

    computed: Callable[[str, list[Literal]], Literal]  # an operation of literals; raises ProblemError
    folded: Callable[[str, tuple[Compiled, ...], str], Compiled]  # an operation of constants, as a constant of a kind
    typed: Callable[[Literal, str], Compiled]  # a constant; raises ProblemError for a number that does not fit
    words: Callable[[Node], str]


@dataclass(frozen=True)
class Compiler:
    """Compiles the tree of one text, given the kinds of its names."""

    text: str
    kinds: Mapping[str, str]
    literal: str  # the kind of numbers that are combined with nothing else
    numbers: Numbers

    def of(self, node: Node) -> Part:
        """Return a part in WGSL, or a number; raises ProblemError for what is not allowed."""
        if node.form == "name" and node.word in self.kinds:
            return Compiled(node.word, self.kinds[node.word])
        if node.literal is not None:
            return node.literal
        if node.form == "unary":
            return self._unary(node)
        if node.form == "binary":
            return self._binary(node)
        if node.form == "comparison":
            return self._comparison(node)
        if node.form == "call":
            return self._call(node.word, [self.of(x) for x in node.terms])
        advice = "; use & and | instead of and, or" if node.form == "logic" else ""
        raise self.refused(
            f"{self.numbers.words(node)} is not allowed in an expression, or is a name without a value{advice}"
        )

    def _unary(self, node: Node) -> Part:
        x = self.of(node.terms[0])
        if node.word == "+":
            return x
        truth = x.form == "bool" if isinstance(x, Literal) else x.kind == TRUTH
        if node.word == NOT and truth:
            return self._made(NOT, "(!{0})", TRUTH, [x])
        if node.word == NOT and _whole(x):
            return self._made(COMPLEMENT, "(~{0})", "", [x])
        if node.word == NEGATE and (isinstance(x, Literal) or not truth):
            return self._made(NEGATE, "(-{0})", "", [x])
        advice = "" if node.word else "; use ~ of booleans instead of not"
        raise self.refused(f"{self.numbers.words(node)} is not defined for {self.kind_of([x])}{advice}")

    def _binary(self, node: Node) -> Part:
        x, y = self.of(node.terms[0]), self.of(node.terms[1])
        sign = node.word
        kind = self.kind_of([x, y])
        literals = isinstance(x, Literal) and isinstance(y, Literal)
        wgsl = OPERATORS.get(sign, {}).get(kind, "")
        if wgsl or (literals and sign and (sign not in BITS or (_whole(x) and _whole(y)))):
            # A divisor that is always 0, as x - x is, is hidden like the constant.
            hidden = sign == "/" and isinstance(y, Compiled) and y.operation
            return self._made(sign, "({0} / hidden_f32({1}))" if hidden else wgsl, "", [x, y])
        advice = "cast its operands" if sign else "there are + - * / // % **, comparisons, & | ^ ~ << >>, and functions"
        raise self.refused(f"{self.numbers.words(node)} is not defined for {kind}; {advice}")

    def _comparison(self, node: Node) -> Part:
        if len(node.terms) > 2:
            raise self.refused(f"{self.numbers.words(node)} is a chain; write (a < b) & (b < c)")
        x, y = self.of(node.terms[0]), self.of(node.terms[1])
        sign = node.word
        same = sign in ("==", "!=")
        if not sign or (self.kind_of([x, y]) == TRUTH and not same):
            raise self.refused(f"{self.numbers.words(node)} is not defined for {self.kind_of([x])}")
        if (
            same and x == y and self.kind_of([x]) == REAL and isinstance(x, Compiled)
        ):  # a test for NaN, which drivers lose
            nan = self._call("isnan", [x])
            return nan if sign == "!=" else self._made(NOT, "(!{0})", TRUTH, [nan])
        # WGSL's x != y is false in naga's SPIR-V if either is NaN.
        wgsl = "(!({0} == {1}))" if sign == "!=" else "({0} " + sign + " {1})"
        if self.kind_of([x, y]) == REAL:
            wgsl = ordered(sign, _zero(x), _zero(y)) or wgsl
        return self._made(sign, wgsl, TRUTH, [x, y])

    def _call(self, name: str, given: list[Part]) -> Part:
        if name == "where" and len(given) == 3 and self.kind_of(given[:1]) == TRUTH:
            chosen = self.common(given[1:])
            terms: list[Part] = [*self.common(given[:1]), *chosen]
            return self._made(SELECT, "select({2}, {1}, {0})", chosen[0].kind, terms)
        if name == "clip" and len(given) == 3:
            return self._call("minimum", [self._call("maximum", given[:2]), given[2]])
        function = SIGNATURES.get(name)
        if function is None or len(given) != function.arity:
            known = ", ".join(f"{name}/{each.arity}" for name, each in SIGNATURES.items())
            raise self.refused(f"{name}/{len(given)} is not known; there are where/3 of a boolean, clip/3, {known}")
        kind = self.kind_of(given)
        if kind == WHOLE and kind not in function.wgsl and all(isinstance(x, Literal) for x in given):
            kind = REAL
        if kind not in function.wgsl:
            raise self.refused(f"{name}() is not defined for {kind}; cast its operands, e.g. x.astype('float32')")
        typed: list[Part] = [self._typed(x, kind) for x in given]
        places = ", ".join(["{0}", "{1}"][: len(given)])
        return self._made(name, f"{function.wgsl[kind]}({places})", function.result, typed)

    def _made(self, operation: str, wgsl: str, result: str, given: list[Part]) -> Part:
        """Return an operation, by default of its operands' kind; of constants, and of literals, its value."""
        literals = [x for x in given if isinstance(x, Literal)]
        if len(literals) == len(given):
            try:
                return self.numbers.computed(operation, literals)
            except ProblemError as error:
                raise self.refused(str(error)) from error
        terms = self.common(given) if operation != SELECT else tuple([x for x in given if isinstance(x, Compiled)])
        kind = result or terms[0].kind
        if all(x.value is not None for x in terms):
            return self.numbers.folded(operation, terms, kind)
        depth = max([x.depth for x in terms]) + wgsl.count("(") + wgsl.count("(-") + wgsl.count("!")
        if depth > MAX_DEPTH:
            raise self.refused(f"it has more than {MAX_DEPTH} levels of brackets; compute parts of it by other calls")
        return Compiled(_filled(wgsl, [x.wgsl for x in terms]), kind, operation, terms, depth=depth)

    def kind_of(self, given: list[Part]) -> str:
        """Return the kind that the parts have in common; raises ProblemError if they differ."""
        kinds = {x.kind for x in given if isinstance(x, Compiled)}
        forms = [x.form for x in given if isinstance(x, Literal)]
        if not kinds:
            return TRUTH if all(form == "bool" for form in forms) else self.literal
        # a literal is never an int32's fraction, nor a boolean's number
        if WHOLE in kinds and "float" in forms:
            kinds = {*kinds, REAL}
        if TRUTH in kinds and any(form != "bool" for form in forms):
            kinds = {*kinds, self.literal}
        if len(kinds) > 1:
            raise self.refused(f"{' and '.join(sorted(kinds))} cannot be combined; cast one, e.g. x.astype('float32')")
        return next(iter(kinds))

    def common(self, given: list[Part]) -> tuple[Compiled, ...]:
        """Return the parts with literals converted to the kind of all."""
        kind = self.kind_of(given)
        return tuple([self._typed(x, kind) for x in given])

    def _typed(self, x: Part, kind: str) -> Compiled:
        if isinstance(x, Compiled):
            return x
        try:
            return self.numbers.typed(x, kind)
        except ProblemError as error:
            raise self.refused(str(error)) from error

    def refused(self, why: str) -> ProblemError:
        """Return the error to raise."""
        return ProblemError(f"expression {shown(self.text)}: {why}")


def _whole(x: Part) -> bool:
    return x.form == "int" if isinstance(x, Literal) else x.kind == WHOLE


def _zero(x: Part) -> bool:
    return isinstance(x, Literal) and x.form != "bool" and x.value == 0


def _filled(wgsl: str, terms: list[str]) -> str:
    """Return `wgsl` with its places {0}, {1}, … filled; WGSL has no such braces in expressions."""
    for i, term in enumerate(terms):
        wgsl = wgsl.replace("{" + str(i) + "}", term)
    return wgsl


def compiled_tree(text: str, tree: Node, kinds: dict[str, str], numbers: Numbers) -> Compiled:
    """Return the tree of `text` in WGSL, given the kinds of its names; see `expressions.compiled()`."""
    literal = REAL if has_floats(tree) or REAL in kinds.values() else WHOLE
    compiler = Compiler(text, kinds, literal, numbers)
    return compiler.common([compiler.of(tree)])[0]


def has_floats(node: Node) -> bool:
    """Tell whether a tree has a literal with a fraction."""
    if node.literal is not None:
        return node.literal.form == "float"
    return any(has_floats(x) for x in node.terms)
