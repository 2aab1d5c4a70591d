"""Mappings whose values are made when they are first needed, such as modules that few programs use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TypeVar


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Return the `__getattr__()` of a package by which its modules are attributes, imported at their first use."""

    def find(name: str) -> ModuleType:
        if name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return find


K = TypeVar("K")
V = TypeVar("V")


class Lazy(MutableMapping[K, V]):
    """A dict in which `make(key)` gives the values of `keys`; these come first, in their order, and stay."""

    def __init__(self, keys: Iterable[K], make: Callable[[K], V]) -> None:
        self._keys, self._make, self._made = dict.fromkeys(keys), make, dict[K, V]()

    def __getitem__(self, key: K) -> V:
        if key not in self._made and key in self._keys:
            self._made.setdefault(key, self._make(key))  # another thread may have been faster
        return self._made[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._made[key] = value

    def __delitem__(self, key: K) -> None:
        del self._made[key]

    def __contains__(self, key: object) -> bool:
        return key in self._keys or key in self._made

    def __iter__(self) -> Iterator[K]:
        return iter({**self._keys, **dict.fromkeys(self._made)})

    def __len__(self) -> int:
        return len({*self._keys, *self._made})
