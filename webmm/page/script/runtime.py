"""The builtins and library functions of Python that `web/python.js` implements, and translated code may use."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import json
import math
import operator
import re
import string
import struct
import typing
from collections import Counter
from types import ModuleType
from typing import Any

import numpy

BUILTINS = {
    *("abs", "all", "any", "bool", "bytearray", "bytes", "dict", "divmod", "enumerate", "float"),
    *("frozenset", "getattr", "hasattr", "int", "issubclass", "len", "list", "map", "max", "min", "next"),
    *("range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "type", "vars", "zip"),
    *("AssertionError", "AttributeError", "KeyError", "OverflowError", "ValueError"),
}
INSTANCES = {  # what `isinstance(x, …)` asks, which is written where it is called
    **{"bool": 'typeof {x} === "boolean"', "dict": "{x} instanceof $.Dict", "float": 'typeof {x} === "number"'},
    **{"int": 'Number.isInteger({x}) || typeof {x} === "boolean"', "list": "Array.isArray({x})"},
    **{"str": 'typeof {x} === "string"', "tuple": "Array.isArray({x})", "type": 'typeof {x} === "function"'},
}
RENAMED = {"iter": "iterator", "TypeError": "TypeError_"}  # `$.iter` returns the iterable of a loop

MODULES: dict[ModuleType, tuple[str, ...]] = {
    dataclasses: ("MISSING", "fields", "replace"),
    itertools: ("product",),
    math: ("ceil", "exp", "floor", "inf", "isfinite", "isnan", "log", "log2", "nan", "prod", "sqrt"),
    numpy: ("ceil", "exp", "log", "maximum", "minimum"),  # of numbers
    operator: ("index",),
    re: ("sub",),
    struct: ("error", "pack", "pack_into", "unpack"),
    typing: ("get_args", "get_type_hints"),
}

TEXT_METHODS = {  # of the text `x`, as JavaScript has them
    **{"endswith": "{x}.endsWith({given})", "isdecimal": "/^\\d+$/.test({x})", "join": "$.list({given}).join({x})"},
    **{"lower": "{x}.toLowerCase()", "rstrip": "{x}.trimEnd()", "strip": "{x}.trim()", "upper": "{x}.toUpperCase()"},
}
# Methods of strings, lists, dicts and sets.
METHODS = {
    *("add", "append", "bit_length", "count", "extend", "get", "index", "items", "keys", "pop", "removeprefix"),
    *("replace", "setdefault", "split", "splitlines", "startswith", "update", "values", *TEXT_METHODS),
}

ATTRIBUTES = {"__name__", "default", "fromkeys", "metadata"}  # of classes, fields and dict


def spelled(value: Any) -> str | None:
    """Return the JavaScript expression for a member of one of MODULES, or None if the runtime lacks it."""
    for module, names in MODULES.items():
        for name in names:
            if getattr(module, name) is value and not isinstance(value, float):
                return f"$.{module.__name__}.{name}"
    return None


def builtin(name: str) -> str | None:
    """Return the JavaScript expression for a builtin, or None if it is not in the supported subset."""
    if name in RENAMED:
        return f"$.{RENAMED[name]}"
    return f"$.{name}" if name in {*BUILTINS, "isinstance"} and hasattr(builtins, name) else None


def method(name: str, x: str, given: str) -> str:
    """Return the call of one of METHODS of `x` with the arguments `given`."""
    if name in TEXT_METHODS:
        return TEXT_METHODS[name].format(x=x, given=given)
    return f"$.method({json.dumps(name)}, {x}{given and f', {given}'})"


def sliced(start: str | None, stop: str | None) -> str:
    """Return the call that takes a part of a text or an array; either end may be None in Python, too."""
    return f".slice({start or 0}{f', {stop} ?? undefined' if stop else ''})"


# The names of the runtime in a module's text

IMPORT = re.compile(r'import \* as \$ from ("[^"]+");\n')
USED = re.compile(r"\$\.([A-Za-z_]\w*)")


def quoted(text: str) -> str:
    """Return a string constant, in which nothing looks like a name of the runtime."""
    return json.dumps(text, ensure_ascii=False).replace("$.", r"\u0024.")


def imported(text: str) -> str:
    """Return a module that imports the runtime as `$` with a short name for each function that it uses: $a, $b …"""
    counted = Counter(USED.findall(text)).most_common()
    letters = ("".join(each) for n in (1, 2) for each in itertools.product(string.ascii_letters, repeat=n))
    names = {used: f"${short}" for (used, _), short in zip(counted, letters, strict=False)}
    imports = ", ".join(f"{used} as {name}" for used, name in names.items())
    text = IMPORT.sub(lambda match: f"import {{ {imports} }} from {match[1]};\n", text)
    return USED.sub(lambda match: names[match[1]], text)
