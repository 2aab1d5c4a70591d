"""Functions that wait: in JavaScript they are `async`, and translated code awaits them.

A function waits if it calls one of AWAITED (`webmm.page.script.names`), one of METHODS, a parameter of PARAMETERS, or a
function that waits.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from webmm.page.script.names import HostError, Name, definitions, is_awaited, resolve

METHODS = {  # by the name of the object
    "bench": ("probe", "start", "time", "verdict"),
    "call": ("array", "empty", "read", "result", "run", "sum"),
}
PARAMETERS = ("compute",)  # functions that are passed to others, which call them


@functools.cache
def waits(name: Name) -> bool:
    """Tell whether a definition is a function that waits."""
    seen: set[Name] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if is_awaited(one):
            return True
        node = definitions(one.module).get(one.name)
        if one in seen or not isinstance(node, ast.FunctionDef):
            continue
        seen.add(one)
        called = list(_called(node))
        if any(map(is_awaited_call, called)):
            return True
        waiting += _definitions(one.module, called, node)
    return False


def node_waits(module: str, node: ast.AST) -> bool:
    """Tell whether a function within a function of `module`, or an expression there, waits."""
    called = list(_called(node))
    return any(map(is_awaited_call, called)) or any(map(waits, _definitions(module, called, node)))


def is_awaited_call(node: ast.Call) -> bool:
    """Tell whether a call is one of a method or a parameter that waits."""
    if isinstance(node.func, ast.Name):
        return node.func.id in PARAMETERS
    if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
        return False
    return node.func.attr in METHODS.get(node.func.value.id, ())


def _called(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that a function makes itself, and those of the functions within it that it calls."""
    within = {each.name: each for each in ast.walk(node) if isinstance(each, ast.FunctionDef) and each is not node}
    seen: set[str] = set()
    waiting: list[ast.AST] = list(ast.iter_child_nodes(node))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(one, ast.Call):
            yield one
            if isinstance(one.func, ast.Name) and one.func.id in within and one.func.id not in seen:
                seen.add(one.func.id)
                waiting += within[one.func.id].body
        waiting += ast.iter_child_nodes(one)


def _definitions(module: str, called: list[ast.Call], node: ast.AST) -> Iterator[Name]:
    """Yield the definitions that are called by name."""
    bound = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    bound |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    bound |= {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef) and each is not node}
    for call in called:
        if isinstance(call.func, ast.Name) and call.func.id not in bound:
            try:
                found = resolve(module, call.func.id)
            except HostError:
                continue
            if isinstance(found, Name):
                yield found
