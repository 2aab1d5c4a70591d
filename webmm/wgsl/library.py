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
ORDERED = {  # comparisons of floats: of any two, and of one with 0
    "<": ("less_f32({0}, {1})", "below_zero_f32({0})"),
    "<=": ("at_most_f32({0}, {1})", "to_zero_f32({0})"),
    ">": ("less_f32({1}, {0})", "above_zero_f32({0})"),
    ">=": ("at_most_f32({1}, {0})", "from_zero_f32({0})"),
}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
ALONE = ("functions", "integers")  # they call no functions of other files


def files_of(wgsl: str) -> list[str]:
    """Return the files whose functions `wgsl` calls, and those that these need."""
    found = [file for file in FILES if FILES[file] in wgsl]
    if all(file in ALONE for file in found):
        return found
    return ["functions", "numbers", *(file for file in found if file not in ("functions", "numbers"))]


def ordered(sign: str, left_zero: bool, right_zero: bool) -> str:
    """Return a comparison of floats in WGSL, given whether its sides are literals of value 0; "" for == and !=."""
    if sign not in ORDERED:
        return ""
    if left_zero and not right_zero:
        return ORDERED[MIRRORED[sign]][1].replace("{0}", "{1}")
    return ORDERED[sign][1 if right_zero else 0]
