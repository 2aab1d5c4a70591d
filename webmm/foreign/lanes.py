"""Reversal of the invocations of a workgroup, which exposes missing barriers on a driver with a fixed order.

Lavapipe runs the invocations of a workgroup 8 or 16 at a time from barrier to barrier, one group after the other, so a
missing barrier gives a wrong result every time; a GPU may happen to run all of them in step. As the groups run in
order, a missing barrier between earlier invocations that read and later ones that write is hidden: so the text is also
run with the invocations in reverse order.
"""

from __future__ import annotations

import re

from webmm.errors import ConfigError
from webmm.foreign.tunables import without_comments

_ENTRY = r"((?:@\w+(?:\([^)]*\))?\s*)*)\bfn\s+{}\s*\("
_NUMBER = r"local_invocation_index|local_invocation_id|global_invocation_id"
_PLAIN = re.compile(r"(?:^|,)\s*(\w+)\s*:\s*(\w+)")  # a parameter without attributes, and its type
_BUILTIN = re.compile(rf"@builtin\(\s*({_NUMBER})\s*\)\s*(\w+)\s*:")


def workgroup_size_of(text: str, entry: str = "main") -> tuple[int, int, int] | None:
    """Return the workgroup size of an entry point, or None if the text computes it from constants.

    Raises ConfigError if the text has no such entry point.
    """
    found = re.search(_ENTRY.format(re.escape(entry)), text)
    declared = re.search(r"@workgroup_size\(([^)]*)\)", found[1]) if found else None
    if not declared:
        raise ConfigError(f"the text has no compute entry point {entry}(); name it with --entry")
    parts = [part.strip() for part in declared[1].split(",") if part.strip()]
    numbers = [(_constant(text, part) or part).rstrip("ui") for part in parts]
    if not all(number.isdigit() for number in numbers):
        return None
    x, y, z = (*map(int, numbers), 1, 1)[:3]
    return x, y, z


def _constant(text: str, name: str) -> str:
    """Return the number that a constant of this name has as its value; empty if there is none."""
    form = rf"\b(?:const|override)\s+{re.escape(name)}\s*(?::\s*\w+\s*)?=\s*(\d+)[ui]?\s*;"
    found = re.search(form, without_comments(text))
    return found[1] if found else ""


def in_reverse(text: str, workgroup: tuple[int, int, int], entry: str = "main") -> str:
    """Return a WGSL text with the invocations of a workgroup numbered from the last to the first.

    Raises ConfigError if the entry point does not take their indices as parameters.
    """
    found = re.search(_ENTRY.format(re.escape(entry)), text)
    end = _closed(text, found.end()) if found else 0
    if not found or not end:
        raise ConfigError(f"the text has no compute entry point {entry}()")
    parameters, body = text[found.end() : end], text.index("{", end) + 1
    names = _BUILTIN.findall(parameters)
    structs = [(name, _indices(text, kind)) for name, kind in _PLAIN.findall(parameters)]
    structs = [(name, members) for name, members in structs if members]
    if not names and not structs:
        raise ConfigError(
            f"the order of invocations cannot be reversed: {entry}() has no @builtin index as a parameter"
        )
    size = f"vec3u({', '.join(f'{length}u' for length in workgroup)})"
    x, y, z = workgroup
    reversed_index = {
        "local_invocation_index": f"{x * y * z - 1}u - {{0}}",
        "local_invocation_id": f"{size} - 1u - {{0}}",
        "global_invocation_id": f"{{0}} / {size} * {size} + ({size} - 1u - {{0}} % {size})",
    }
    lines = [f"\n    let {name} = {reversed_index[builtin].format(f'{name}_in_order')};" for builtin, name in names]
    for name, members in structs:
        lines.append(f"\n    var {name} = {name}_in_order;")
        lines += [
            f"\n    {name}.{member} = {reversed_index[builtin].format(f'{name}_in_order.{member}')};"
            for builtin, member in members
        ]
    renamed = _BUILTIN.sub(r"@builtin(\1) \2_in_order:", parameters)
    for name, _ in structs:
        renamed = re.sub(rf"(^|,)(\s*){name}(\s*:)", rf"\1\2{name}_in_order\3", renamed)
    return text[: found.end()] + renamed + text[end:body] + "".join(lines) + text[body:]


def _indices(text: str, struct: str) -> list[tuple[str, str]]:
    """Return the builtin indices among the members of a struct, and the members' names."""
    found = re.search(rf"\bstruct\s+{re.escape(struct)}\s*\{{([^}}]*)\}}", without_comments(text))
    return _BUILTIN.findall(found[1]) if found else []


def _closed(text: str, start: int) -> int:
    """Return the position of the bracket that closes one opened before `start`, or 0 if there is none."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at
    return 0
