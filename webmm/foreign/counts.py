"""Parser for workgroup counts such as "n/16,m/16"; the text is never evaluated as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from webmm.errors import ConfigError
from webmm.kernels.base import ceil_div

MAX_CHARACTERS = 200  # also limits the nesting of brackets
_TOKEN = re.compile(r"\s*(?:(\d+)|([mnk])\b|([-+*/()]))")

Count = Callable[[Mapping[str, int]], int]  # a function of m, n and k


@dataclass(frozen=True)
class Counts:
    """Workgroup counts along x, y and z: + − × / and brackets over m, n, k and whole numbers; divisions round up.

    Raises ConfigError for anything else.
    """

    text: str
    _values: tuple[Count, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.text.replace("×", "*").replace("−", "-").lower().split(",")
        if len(parts) > 3 or len(self.text) > MAX_CHARACTERS:
            raise self._wrong(self.text)
        object.__setattr__(self, "_values", tuple(map(self._read, parts)))

    def of(self, size: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the counts for (m, n, k); raises ConfigError for a division by zero."""
        lengths = dict(zip("mnk", size, strict=True))
        try:
            x, y, z = (*(value(lengths) for value in self._values), 1, 1)[:3]
        except ZeroDivisionError as error:
            raise ConfigError(f"the grid {self.text!r} divides by zero for {size}") from error
        return x, y, z

    def __str__(self) -> str:
        return repr(self.text)

    def _wrong(self, what: str) -> ConfigError:
        made_of = "m, n, k, whole numbers, + - * / and brackets"
        return ConfigError(f"a grid is one to three counts, made of {made_of}, such as n/16,m/16, not {what!r}")

    def _read(self, part: str) -> Count:
        tokens, at = [], 0
        while part[at:].strip():
            token = _TOKEN.match(part, at)
            if not token:
                raise self._wrong(part)
            tokens.append(token[0].strip())
            at = token.end()
        value = self._sum(tokens)
        if tokens:
            raise self._wrong(part)
        return value

    def _sum(self, tokens: list[str]) -> Count:
        value = self._product(tokens)
        while tokens and tokens[0] in "+-":
            sign = 1 if tokens.pop(0) == "+" else -1
            value = _added(value, self._product(tokens), sign)
        return value

    def _product(self, tokens: list[str]) -> Count:
        value = self._single(tokens)
        while tokens and tokens[0] in "*/":
            operation = _multiplied if tokens.pop(0) == "*" else _divided
            value = operation(value, self._single(tokens))
        return value

    def _single(self, tokens: list[str]) -> Count:
        token = tokens.pop(0) if tokens else ""
        if token.isdigit():
            number = int(token)
            return lambda _: number
        if token in ("m", "n", "k"):
            return lambda lengths: lengths[token]
        if token == "(":
            value = self._sum(tokens)
            if tokens and tokens.pop(0) == ")":
                return value
        raise self._wrong(self.text)


def _added(x: Count, y: Count, sign: int) -> Count:
    return lambda lengths: x(lengths) + sign * y(lengths)


def _multiplied(x: Count, y: Count) -> Count:
    return lambda lengths: x(lengths) * y(lengths)


def _divided(x: Count, y: Count) -> Count:
    return lambda lengths: ceil_div(x(lengths), y(lengths))
