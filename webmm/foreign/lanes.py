"""The lanes of a workgroup in the other order: what shows that a barrier is missing, on a driver that keeps an order.

Lavapipe runs the lanes of a workgroup 8 or 16 at a time from barrier to barrier, one group after the other: what a
barrier protects is lost every time, where a GPU may happen to be in step. The groups come in order, which hides a
barrier between earlier lanes that read and later ones that write; so texts are run with the lanes in reverse, too.
"""

from __future__ import annotations

import re

from webmm.errors import ConfigError

_ENTRY = r"((?:@\w+(?:\([^)]*\))?\s*)*)\bfn\s+{}\s*\("
_NUMBER = r"local_invocation_index|local_invocation_id|global_invocation_id"
_BUILTIN = re.compile(rf"@builtin\(\s*({_NUMBER})\s*\)\s*(\w+)\s*:")


def workgroup_size_of(text: str, entry: str = "main") -> tuple[int, int, int] | None:
    """Return the workgroup size that a text says in numbers, None where it says it by names.

    Raises ConfigError where it has no such entry point.
    """
    found = re.search(_ENTRY.format(re.escape(entry)), text)
    said = re.search(r"@workgroup_size\(([^)]*)\)", found[1]) if found else None
    if not said:
        raise ConfigError(f"the text has no compute entry point {entry}(): --entry names it")
    numbers = [part.strip().rstrip("ui") for part in said[1].split(",") if part.strip()]
    if not all(number.isdigit() for number in numbers):
        return None
    x, y, z = (*map(int, numbers), 1, 1)[:3]
    return x, y, z


def in_reverse(text: str, workgroup: tuple[int, int, int], entry: str = "main") -> str:
    """Return a WGSL text with the lanes of a workgroup numbered from the last to the first.

    Raises ConfigError where the entry point does not take their numbers as parameters.
    """
    found = re.search(_ENTRY.format(re.escape(entry)), text)
    end = _closed(text, found.end()) if found else 0
    if not found or not end:
        raise ConfigError(f"the text has no compute entry point {entry}()")
    taken, body = text[found.end() : end], text.index("{", end) + 1
    names = _BUILTIN.findall(taken)
    if not names:
        raise ConfigError(f"{entry}() takes no number of a lane as a parameter of its own")
    size = f"vec3u({', '.join(f'{length}u' for length in workgroup)})"
    x, y, z = workgroup
    how = {
        "local_invocation_index": f"{x * y * z - 1}u - {{0}}",
        "local_invocation_id": f"{size} - 1u - {{0}}",
        "global_invocation_id": f"{{0}} / {size} * {size} + ({size} - 1u - {{0}} % {size})",
    }
    lines = [f"\n    let {name} = {how[builtin].format(f'{name}_in_order')};" for builtin, name in names]
    renamed = _BUILTIN.sub(r"@builtin(\1) \2_in_order:", taken)
    return text[: found.end()] + renamed + text[end:body] + "".join(lines) + text[body:]


def _closed(text: str, start: int) -> int:
    """Return where the bracket that was opened before `start` is closed, 0 where it is not."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at
    return 0
