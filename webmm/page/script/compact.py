"""Minification of JavaScript: removes comments and white space, and shortens keywords and names of the runtime.

Nothing else changes, and a newline that may end a statement is kept: the page runs the code in `web/`, except for its
formatting.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence, Set

TOKEN = re.compile(
    r"(?P<space>(?:\s|//[^\n]*|/\*(?:.|\n)*?\*/)+)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<word>[\w$#]+)"
    r"|(?P<sign>(?:.|\n))"
)
PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\]|\\.)*\])+/[a-z]*")  # a regular expression, if at an operand
OPERAND = re.compile(r"[\w$\"'`)\]}]$")  # the end of an operand: a following slash is a division
KEYWORDS = frozenset(("return", "typeof", "case", "of", "in", "yield", "await", "throw"))
SHORT = {"const": "let", "true": "!0", "false": "!1", "undefined": "void 0"}
RESERVED = frozenset(("do", "if", "in", "of", "as"))
RUNTIME = 'import * as $ from "'
OPEN, CLOSED = "{([,;:?=<>+-*/%&|!~.", "})],;:?.="  # no statement ends after the former or before the latter


def compact(text: str) -> str:
    """Return the program without comments and unnecessary white space."""
    return _joined(list(_tokens(text)))


def abbreviated(text: str) -> str:
    """Return a program that imports the runtime as `$`, compact, with a short name for each function it uses."""
    head, _, tail = text.partition(RUNTIME)
    module, _, tail = tail.partition('"')
    tokens = list(_tokens(head + tail.removeprefix(";")))
    places = [i for i in range(len(tokens) - 2) if tokens[i : i + 2] == ["$", "."]]
    names = dict(
        zip((used for used, _ in Counter(tokens[i + 2] for i in places).most_common()), _names(), strict=False)
    )
    for i in places:
        tokens[i : i + 3] = [names[tokens[i + 2]], "", ""]
    imports = ",".join(f"{used} as {name}" for used, name in names.items())
    return f'import{{{imports}}}from"{module}";\n{_joined([token for token in tokens if token])}'


def shortened(function: str, variables: Set[str]) -> str:
    """Return a function with short names for its variables, including those of nested functions."""
    head, bracket, tail = function.partition("(")
    tokens = list(_tokens(tail))
    places = [i for i, token in enumerate(tokens) if token in variables and _is_variable(tokens, i)]
    renamed = set(places)
    others = {token for i, token in enumerate(tokens) if i not in renamed} | RESERVED
    names = (name[1:] for name in _names() if name[1:] not in others)
    short = dict(zip((name for name, _ in Counter(tokens[i] for i in places).most_common()), names, strict=False))
    for i in places:
        tokens[i] = short[tokens[i]]
    return f"{head}{bracket}{''.join(tokens)}"


def _is_variable(tokens: Sequence[str], i: int) -> bool:
    """Tell whether the token is a variable, and not an attribute, a key of an object, or part of a name in «»."""
    before = next((token for token in reversed(tokens[:i]) if not token.isspace()), "")
    after = next((token for token in tokens[i + 1 :] if not token.isspace()), "")
    is_member = before == "." and list(tokens[i - 3 : i]) != [".", ".", "."]
    return not (is_member or before == "«" or (after == ":" and before in ("{", ",")))


def _names() -> Iterator[str]:
    """Yield $a, $b … $aa, $ab …"""
    for length in itertools.count(1):
        yield from (f"${''.join(letters)}" for letters in itertools.product(string.ascii_letters, repeat=length))


def _tokens(text: str) -> Iterator[str]:
    """Yield the program's tokens; white space and comments between two tokens are one token, a newline or a blank."""
    at, before = 0, ""
    depths: list[int] = []  # nesting depth of braces in each open expression of a template literal
    while at < len(text):
        if text[at] == "`" or (text[at] == "}" and depths and not depths[-1]):
            if text[at] == "}":
                depths.pop()
            end = _end_of_literal(text, at + 1)
            if text[end - 1] == "{":
                depths.append(0)
            token = text[at:end]
        elif text[at] == "/" and (found := PATTERN.match(text, at)) and _takes_operand(before, text[at + 1]):
            token = found.group()
        else:
            found = TOKEN.match(text, at)
            assert found is not None
            token = found.group()
            if depths and token in "{}":
                depths[-1] += 1 if token == "{" else -1
        at += len(token)
        if token[0].isspace() or token.startswith(("//", "/*")):
            yield "\n" if "\n" in token else " "
        else:
            yield token
            before = token


def _end_of_literal(text: str, at: int) -> int:
    """Return where a piece of text in a template literal ends: after its closing backtick, or after the next `${`."""
    while text[at] != "`":
        if text.startswith("${", at):
            return at + 2
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _takes_operand(before: str, after: str) -> bool:
    return after not in "/*" and (before in KEYWORDS or not OPERAND.search(before))


def _joined(tokens: Sequence[str]) -> str:
    """Return the joined tokens with only the white space that is needed to separate them."""
    written: list[str] = []
    for i, token in enumerate(tokens):
        if not token.isspace():
            written.append(SHORT.get(token, token))
            continue
        left = written[-1][-1] if written else ";"
        right = tokens[i + 1][0] if i + 1 < len(tokens) else ";"
        is_pattern = bool(written) and len(written[-1]) > 1 and written[-1][0] == "/"
        glued = (_is_word(right) and (_is_word(left) or is_pattern)) or (left == right and left in "+-")
        ends = token == "\n" and left not in OPEN and right not in CLOSED
        if ends or glued:
            written.append("\n" if ends else " ")
    return "".join(written)


def _is_word(character: str) -> bool:
    return character.isalnum() or character in "_$#"
