"""The parser of expressions in JavaScript, and what has literals only: from a text to the compiler's tree.

Python itself parses by its module `ast` (`webmm.wgsl.expressions.tree_of`), with which this agrees (tested). This
module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webmm.errors import ProblemError
from webmm.wgsl.compiler import (
    MAX_DEPTH,
    NEGATE,
    NOT,
    REAL,
    SIGNATURES,
    TRUTH,
    WHOLE,
    Compiled,
    Literal,
    Node,
    Numbers,
    shortened,
    shown,
)

PLAIN = 2.0**16  # the largest literal in WGSL, and the inverse of the smallest: products of seven do not overflow
DIGITS = "0123456789"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
SIGNS = ("==", "!=", "<=", ">=", "<<", ">>", "**", "//", *"-+*/%<>&|^~(),.[]")
LEVELS = (
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%", "//"),
)  # of binary operators, the loosest first
BINARY = {"|": "||", "&": "&&"}  # those that the compiler calls otherwise
UNARY = {"+": "+", "-": NEGATE, "~": NOT}
DIVISIONS = ("/", "//", "%")
COMPARED = ("<", "<=", ">", ">=", "==", "!=")
WORDS = ("and", "or", "not", "if", "else", "for", "in", "is", "lambda", "None", "await", "yield")  # no names


@dataclass(frozen=True)
class Token:
    """A number, a name or a sign of a text, and its place."""

    kind: str
    word: str
    start: int

    @property
    def end(self) -> int:
        """The place after it."""
        return self.start + len(self.word)


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text, the last one first; raises ProblemError for other characters."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].strip() == "":
            at += 1
            continue
        token = _token(text, at)
        found.append(token)
        at = token.end
    return list(reversed(found))


def _token(text: str, at: int) -> Token:
    if text[at] in DIGITS or (text[at] == "." and _run(text, at + 1, DIGITS) > at + 1):
        return Token("number", text[at : _number(text, at)], at)
    if text[at] in LETTERS:
        return Token("name", text[at : _run(text, at, LETTERS + DIGITS)], at)
    for sign in SIGNS:
        if text[at : at + len(sign)] == sign:
            return Token("sign", sign, at)
    raise ProblemError(f"{shown(text)} is not an expression: invalid syntax")


def _run(text: str, at: int, letters: str) -> int:
    """Return where the characters that are among `letters` end."""
    while at < len(text) and text[at] in letters:
        at += 1
    return at


def _number(text: str, at: int) -> int:
    end = _run(text, at, DIGITS + "_")
    if text[end : end + 1] == ".":
        end = _run(text, end + 1, DIGITS + "_")
    if text[end : end + 1].lower() == "e":
        sign = 1 if text[end + 1 : end + 2] in ("+", "-") else 0
        exponent = _run(text, end + 1 + sign, DIGITS)
        end = exponent if exponent > end + 1 + sign else end
    return end


@dataclass(frozen=True)
class Parser:
    """Parses one text; `rest` are the tokens that are left, the next one last, and `ends` where the others ended."""

    text: str
    rest: list[Token]
    ends: list[int]

    def wrong(self, why: str = "invalid syntax") -> ProblemError:
        """Return the error to raise."""
        return ProblemError(f"{shown(self.text)} is not an expression: {why}")

    def sign(self) -> str:
        """Return the next token if it is a sign, or a word that is no name; else nothing."""
        if not self.rest:
            return ""
        token = self.rest[-1]
        return token.word if token.kind == "sign" or token.word in WORDS else ""

    def start(self) -> int:
        """Return where the next token starts; raises ProblemError if none is left."""
        if not self.rest:
            raise self.wrong()
        return self.rest[-1].start

    def take(self) -> Token:
        """Return the next token, and go on behind it; raises ProblemError if none is left."""
        if not self.rest:
            raise self.wrong()
        token = self.rest.pop()
        self.ends.append(token.end)
        return token

    def expect(self, sign: str) -> None:
        """Go on behind this sign; raises ProblemError if another token is next."""
        if self.sign() != sign:
            raise self.wrong()
        self.take()

    def node(self, form: str, word: str, start: int, terms: list[Node]) -> Node:
        """Return what was read since `start` as a part."""
        return Node(form, word, self.text[start : self.ends[-1]], tuple(terms))

    def whole(self) -> Node:
        """Return the tree of the text."""
        tree = self.logic(0)
        if self.rest:
            raise self.wrong()
        return tree

    def logic(self, depth: int) -> Node:
        """Parse comparisons with `and`, `or` and `not`, which are not allowed."""
        start = self.start()
        if self.sign() == "not":
            self.take()
            return self.node("unary", "", start, [self.logic(depth + 1)])
        found = self.comparison(depth)
        if self.sign() not in ("and", "or"):
            return found
        terms = [found]
        while self.sign() in ("and", "or"):
            self.take()
            terms.append(self.logic(depth + 1))
        return self.node("logic", "", start, terms)

    def comparison(self, depth: int) -> Node:
        """Parse operands that are compared."""
        if depth > MAX_DEPTH:
            raise self.wrong("too many nested parentheses")
        start, terms, signs = self.start(), [self.binary(0, depth)], [""]
        while self.sign() in COMPARED:
            signs.append(self.take().word)
            terms.append(self.binary(0, depth))
        return self.node("comparison", signs[1], start, terms) if len(terms) > 1 else terms[0]

    def binary(self, level: int, depth: int) -> Node:
        """Parse operators of a level of precedence, and of those above."""
        if level == len(LEVELS):
            return self.unary(depth)
        start, left = self.start(), self.binary(level + 1, depth)
        while self.sign() in LEVELS[level]:
            sign = self.take().word
            right = self.binary(level + 1, depth)
            left = self.node("binary", BINARY.get(sign, sign), start, [left, right])
        return left

    def unary(self, depth: int) -> Node:
        """Parse signs before an operand."""
        if depth > MAX_DEPTH:
            raise self.wrong("too many nested parentheses")
        start = self.start()
        if self.sign() not in UNARY:
            return self.power(depth)
        word = UNARY[self.take().word]
        inside = self.unary(depth + 1)
        return self.node("unary", word, start, [inside])

    def power(self, depth: int) -> Node:
        """Parse a power."""
        start, base = self.start(), self.atom(depth)
        if self.sign() != "**":
            return base
        self.take()
        exponent = self.unary(depth)
        return self.node("binary", "**", start, [base, exponent])

    def atom(self, depth: int) -> Node:
        """Parse a name, a number, a call, or an expression in brackets."""
        start = self.start()
        if self.sign() == "(":
            self.take()
            inside = self.logic(depth + 1)
            self.expect(")")
            return inside
        if self.sign():
            raise self.wrong()
        token = self.take()
        if token.kind == "number":
            return Node("number", "", token.word, (), literal(token.word))
        if token.word in ("True", "False"):
            return Node("number", "", token.word, (), Literal(token.word == "True", "bool"))
        if self.sign() == "(":
            self.take()
            terms = self.arguments(depth)
            return self.node("call", token.word, start, terms)
        if self.sign() == ".":
            self.take()
            field = self.take()
            if field.kind != "name":
                raise self.wrong()
            return self.node("name", f"{token.word}.{field.word}", start, [])
        return self.node("name", token.word, start, [])

    def arguments(self, depth: int) -> list[Node]:
        """Parse the arguments of a call, and the bracket behind them."""
        terms: list[Node] = []
        while self.sign() != ")":
            terms.append(self.logic(depth + 1))
            if self.sign() != ")":
                self.expect(",")
        self.take()
        return terms


def literal(word: str) -> Literal:
    """Return the number that a text stands for."""
    digits = word.replace("_", "")
    if "." in digits or "e" in digits.lower():
        return Literal(float(digits), "float")
    return Literal(int(digits), "int")


def tree_of(text: str) -> Node:
    """Return the tree of an expression; raises ProblemError for what is none."""
    return Parser(text, tokens_of(text), []).whole()


def names_of(node: Node) -> list[str]:
    """Return the names of a tree, in order."""
    return [node.word] if node.form == "name" else [name for x in node.terms for name in names_of(x)]


def constant_of(value: Any, kind: str, digits: str, bits: str) -> Compiled:
    """Return a constant; of a float with its digits, and its bits in hexadecimal.

    Compilers must not know those that WGSL cannot write, nor 0 and numbers of unusual size: lavapipe compiles x / 0.0
    to |x|, and x * 1e30 * 1e30 to x * ∞.
    """
    if kind == TRUTH:
        return Compiled("true" if value else "false", kind, value=value)
    if kind == WHOLE:
        return Compiled(f"i32({value})", kind, value=value)
    size = abs(value)
    wgsl = f"f32({digits})" if 1 / PLAIN <= size <= PLAIN else f"constant_f32(0x{bits}u)"
    return Compiled(wgsl, kind, value=value, depth=2)


def numbers_of(
    computed: Callable[[str, list[Any]], Any],
    rounded: Callable[[float], float],
    digits: Callable[[float], str],
    bits: Callable[[float], str],
) -> Numbers:
    """Return what the compiler asks of numbers, from how JavaScript computes an operation, rounds and writes floats."""

    def constant(value: Any, kind: str) -> Compiled:
        if kind == TRUTH:
            return constant_of(bool(value), kind, "", "")
        if kind == WHOLE:
            if value != math.floor(value) or value < -(2**31) or value >= 2**31:
                raise ProblemError(f"{value} does not fit int32")
            return constant_of(value, kind, "", "")
        number = rounded(value)
        if math.isfinite(value) and not math.isfinite(number):
            raise ProblemError(f"{value} does not fit float32")
        return constant_of(number, kind, digits(number), bits(number))

    def of_literals(operation: str, given: list[Literal]) -> Literal:
        if operation in DIVISIONS and not given[1].value:
            raise ProblemError("division by zero in a part without operands")
        value = computed(operation, [x.value for x in given])
        called = SIGNATURES.get(operation)
        of_floats = called is not None and (called.result == REAL or WHOLE not in called.wgsl)
        real = operation == "/" or of_floats or any(x.form == "float" for x in given) or not isinstance(value, int)
        return Literal(value, "bool" if isinstance(value, bool) else "float" if real else "int")

    return Numbers(
        of_literals,
        lambda operation, terms, kind: constant(computed(operation, [x.value for x in terms]), kind),
        lambda x, kind: constant(x.value, kind),
        lambda node: shortened(node.source),
    )
