"""Translation of constants: the JavaScript expression that evaluates to a Python value."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import typing
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from webmm.page.script import runtime
from webmm.page.script.names import HostError, Name, definitions, home, home_of, is_ours, is_plugin

UseOfName = Callable[[Name], str]  # records that a definition is needed earlier, and returns its identifier


def value(x: Any, use: UseOfName, where: str) -> str:
    """Return `x`, found at `where`, as JavaScript; raises HostError if it has no counterpart."""
    if x is None or isinstance(x, bool):
        return {None: "null", True: "true", False: "false"}[x]
    if isinstance(x, int | float):
        return _number(x)
    if isinstance(x, str):
        return runtime.quoted(x)
    if isinstance(x, re.Pattern):
        return f"new RegExp({json.dumps(x.pattern)}, {json.dumps(_flags(x))})"
    if typing.get_origin(x) is typing.Literal:
        return value(typing.get_args(x), use, where)
    if isinstance(x, type) or callable(x):
        return _named(x, use, where)
    return _made(x, use, where)


def _number(x: float) -> str:
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "Infinity" if x > 0 else "-Infinity"
    return repr(int(x)) if x == int(x) and abs(x) < 2**53 else repr(x)


def _flags(pattern: re.Pattern[str]) -> str:
    return "gu" + ("m" if pattern.flags & re.MULTILINE else "")


def _named(x: Any, use: UseOfName, where: str) -> str:
    if expression := runtime.spelled(x):
        return expression
    if home := home_of(x):
        return use(home)
    if isinstance(x, FunctionType) and not is_plugin(x.__module__):  # a lambda, or a function of another library
        return f"$.host({json.dumps(where)})"
    if isinstance(x, type) and (expression := runtime.builtin(x.__name__)):
        return expression
    raise HostError(f"{x!r}")


def _made(x: Any, use: UseOfName, where: str) -> str:
    def inner(each: Any) -> str:
        return value(each, use, where)

    if isinstance(x, ModuleType) and is_ours(x.__name__):
        defined = [
            name
            for name in definitions(x.__name__)
            if not name.startswith("_") and home(x.__name__, name).module == x.__name__
        ]
        members = [
            name for name in defined if not isinstance(definitions(x.__name__)[name], ast.Import | ast.ImportFrom)
        ]
        return f"{{ {', '.join(f'{name}: {use(Name(x.__name__, name))}' for name in members)} }}"
    if isinstance(x, dataclasses.Field):
        hint = json.dumps(typing.get_args(x.type)) if typing.get_args(x.type) else None
        return f"$.field(...{field(x, hint, use, where)})"
    if dataclasses.is_dataclass(x) and (made := home_of(type(x))):
        given = [f for f in _in_order(x) if f.init]
        while given and _is_default(x, given[-1]):
            given.pop()
        return f"new {use(made)}({', '.join(inner(getattr(x, f.name)) for f in given)})"
    if isinstance(x, tuple) and hasattr(x, "_fields") and (made := home_of(type(x))):
        return f"new {use(made)}({', '.join(map(inner, x))})"
    if isinstance(x, tuple | list):
        return f"[{', '.join(map(inner, x))}]"
    if isinstance(x, set | frozenset):
        return f"$.frozenset([{', '.join(map(inner, sorted(x, key=str)))}])"
    if isinstance(x, Mapping):
        return f"new $.Dict([{', '.join(f'[{inner(k)}, {inner(v)}]' for k, v in x.items())}])"
    raise HostError(f"a {type(x).__name__}")


def _in_order(x: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields in the order of the JavaScript constructor's parameters: keyword-only fields last."""
    return sorted(dataclasses.fields(x), key=lambda f: bool(f.kw_only))


def _is_default(x: Any, f: dataclasses.Field[Any]) -> bool:
    """Tell whether a field has its default value, which a constructor's last arguments may leave out."""
    value = getattr(x, f.name)
    return type(value) is type(f.default) and bool(value == f.default)


def field(f: dataclasses.Field[Any], hint: str | None, use: UseOfName, where: str) -> str:
    """Return the arguments of `$.field()`: a field's name, default, metadata and other declared properties."""
    metadata = ", ".join(f"{key}: {value(x, use, where)}" for key, x in f.metadata.items())
    more = {
        "keyword": "true" if f.kw_only else None,
        "init": None if f.init else "false",
        "hint": hint,
        "factory": f"() => {_factory(f.default_factory)}" if f.default_factory is not dataclasses.MISSING else None,
    }
    properties = ", ".join(f"{key}: {text}" for key, text in more.items() if text is not None)
    default = None if f.default is dataclasses.MISSING else value(f.default, use, where)
    given = [json.dumps(f.name), default or "void 0", f"{{ {metadata} }}", f"{{ {properties} }}"]
    return f"[{', '.join(given[: 4 if properties else 3 if metadata else 2 if default else 1])}]"


def _factory(factory: Any) -> str:
    known = {dict: "new $.Dict()", list: "[]", tuple: "[]", set: "$.set()", frozenset: "$.frozenset()"}
    if factory not in known:
        raise HostError("default_factory")
    return known[factory]
