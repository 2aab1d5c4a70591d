"""The functions in WGSL that expressions call: files of shaders/elementwise.

This module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

# How the names of a file's functions end, with the bracket of a call. Those of `functions` are used by the other files
# of functions of floats, those of `numbers` by the rest of them.
FILES = {
    "functions": "_f32(",
    "numbers": "_number(",
    "angles": "_angle(",
    "divisions": "_division(",
    "powers": "_power(",
    "integers": "_i32(",
}
ALONE = ("functions", "integers")  # they call no functions of other files


def files_of(wgsl: str) -> list[str]:
    """Return the files whose functions `wgsl` calls, and those that these need."""
    found = [file for file in FILES if FILES[file] in wgsl]
    if all(file in ALONE for file in found):
        return found
    return ["functions", "numbers", *(file for file in found if file not in ("functions", "numbers"))]
