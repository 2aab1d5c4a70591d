"""What the names in Python code mean: definitions to translate, or expressions of JavaScript."""

from __future__ import annotations

from types import ModuleType

from webmm.page.script import runtime
from webmm.page.script.names import HostError, Name, is_ours, resolve
from webmm.page.script.values import value as value_text


def refer(module: str, id: str) -> Name | str:
    """Return the meaning of `id`, a name `x` or a member `x.y`, in a module; "" for a member of an ordinary object.

    Raises HostError for Python-only names.
    """
    owner, _, member = id.partition(".")
    if not member:
        return resolve(module, id)
    found = resolve(module, owner)
    if isinstance(found, str):
        return ""
    value = found.value
    if not isinstance(value, ModuleType):
        return ""
    if is_ours(value.__name__):
        return resolve(value.__name__, member)
    if expression := runtime.spelled(getattr(value, member, None)):
        return expression
    if value in runtime.MODULES and member in runtime.MODULES[value]:
        return f"$.{value.__name__}.{member}"
    raise HostError(id)


def expressible(found: Name | str) -> Name | str:
    """Return `found`; raises HostError for a constant that has no counterpart in JavaScript."""
    if isinstance(found, Name) and not isinstance(found.value, ModuleType):
        try:
            value_text(found.value, str, "")
        except HostError as error:
            raise HostError(found.name) from error
    return found
