"""The size of subgroups in a shader's text: asked for, or compared before anything is exchanged.

This is added to the rendered text, not written in templates, so that no stage can be without, also none from outside
the package. The module is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from typing import Any

from webmm.errors import ShaderError
from webmm.kernels.base import Kernel
from webmm.kernels.subgroups import LEAST_SIZE

SIZE, ENTRY, OPENING = "@workgroup_size(", "fn main(", ") {"
BUILTIN = "@builtin(subgroup_size)"
# naga multiplies fragments only where control flow is uniform, and knows of nothing else that the size is.
UNIFORM = "lanes_found"


def sized(text: str, kernel: Kernel[Any], dialect: str, pinned: bool) -> str:
    """Return a rendered template with the attribute that asks for its size of subgroups, or else with a comparison."""
    if not pinned and not compares(kernel):
        return text
    before, *after = text.split(ENTRY)
    parameters, *blocks = "".join(after).split(OPENING)
    if before.count(SIZE) != 1 or len(after) != 1 or not blocks or "{" in parameters:
        raise ShaderError(
            f"{kernel.template} must have one entry point: {SIZE}…), then {ENTRY}, and {OPENING} before its body"
        )
    if pinned:
        return f"{before.replace(SIZE, f'@subgroup_size({kernel.subgroup}) {SIZE}')}{ENTRY}{after[0]}"
    body = OPENING.join(blocks)
    read = parameters.split(BUILTIN)[1:]
    name = read[0].split(":")[0].strip() if read else "subgroup_size"
    parameter = "" if read else f"\n{BUILTIN} {name}: u32,"
    if kernel.matrix_shape and dialect == "naga":
        before = before.replace("@compute", f"var<workgroup> {UNIFORM}: u32;\n\n@compute")
        body = f"{UNIFORM} = {name};\n{_comparison(kernel, f'workgroupUniformLoad(&{UNIFORM})')}{body}"
    else:
        body = f"{_comparison(kernel, name)}{body}"
    return f"{before}{ENTRY}{parameter}{parameters}{OPENING}\n{body}"


def compares(kernel: Kernel[Any]) -> bool:
    """Tell whether there are sizes of subgroups that do not suit `kernel`."""
    return kernel.subgroup > 0 and (kernel.exact or kernel.subgroup > LEAST_SIZE)


def contract(kernel: Kernel[Any], pinned: bool) -> str:
    """Return what a shader needs of subgroups, and how it gets that, as a sentence; "" if it uses none."""
    if not kernel.subgroup:
        return ""
    words = f"Subgroups: {'exactly' if kernel.exact else 'at least'} {kernel.subgroup} lanes"
    if pinned:
        return f"{words}, asked for by @subgroup_size."
    if not compares(kernel):
        return f"{words}, as all have in WebGPU."
    return f"{words}; not asked for, but compared with subgroup_size: if they have others, nothing is written."


def _comparison(kernel: Kernel[Any], size: str) -> str:
    sign, lanes = "!=" if kernel.exact else "<", f"{kernel.subgroup}u"
    return f"if ({size} {sign} {lanes}) {{\nreturn; // its lanes would exchange wrong values: write nothing\n}}\n"
