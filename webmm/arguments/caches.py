"""Arguments of caches of keys and values.

The module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from typing import Any

from webmm.arguments.arrays import Shape, Shaped, element_of
from webmm.dtypes import I32
from webmm.errors import ProblemError
from webmm.problems.base import check_floats


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise ProblemError, with the name of an argument, unless it is a whole number from `least` on."""
    if not isinstance(value, int):
        raise ProblemError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ProblemError(f"{name} must be at least {least}, not {value}")


def check_layer(layer: int, layers: int) -> None:
    """Raise ProblemError unless a cache has this layer."""
    check_whole("layer", layer, 0)
    if layer >= layers:
        raise ProblemError(f"layer {layer} is out of range: the cache has {layers} layers, from 0 on")


def new_tokens(k: Shaped, v: Shaped, keys: Shape, values: Shape) -> int:
    """Return how many tokens keys and values are of; raises ProblemError unless they fit a cache of these shapes."""
    tokens = k.shape[2] if k.ndim == 4 else 1
    for name, x, into in (("k", k, keys), ("v", v, values)):
        check_floats(f"KVCache: {name}", element_of(x))
        wanted = (*into[:2], tokens, into[3])
        if x.shape != wanted:
            raise ProblemError(f"{name} must have shape {wanted}, not {x.shape}")
    return tokens


def check_room(layer: int, start: int, tokens: int, capacity: int) -> None:
    """Raise ProblemError unless a layer that holds `start` tokens has room for more."""
    if start + tokens > capacity:
        words = f"layer {layer} holds {start:,} of {capacity:,} tokens; {tokens:,} more do not fit"
        raise ProblemError(f"{words}: truncate() it, or make a larger KVCache")


def check_places(at: Shaped, batch: int) -> None:
    """Raise ProblemError unless `at` may hold the places of new tokens, one or one for each sequence of a batch."""
    if element_of(at) != I32 or at.shape not in ((1,), (batch,)):
        shapes = "(1,)" if batch == 1 else f"(1,) or ({batch},)"
        raise ProblemError(f"at must be an int32 array of shape {shapes}, not {element_of(at).name} of {at.shape}")
