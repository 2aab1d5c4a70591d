"""Naga's translations of each stage's default, shown next to the WGSL: MSL for Metal, HLSL for Direct3D.

`bundle/translated/OP-STAGE.deflate` is a compressed JSON document with the problem as text, and the name and the texts
of each dispatch. A bundle that is built without naga has none. SPIR-V is omitted because it is binary.
`translation()` is in the translated subset (docs/page.md): documents are JavaScript's there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from webmm.cases import OPS
from webmm.errors import ConfigError, ProblemError, UnsupportedError
from webmm.kernels import STAGES
from webmm.kernels.base import Kernel
from webmm.problems.base import Problem
from webmm.wgsl import naga
from webmm.wgsl.render import render

FOLDER = "translated"
TARGETS = ("MSL", "HLSL")


def write(bundle: Path) -> list[str]:
    """Write the translations to the folder `bundle`; return the names (op-stage) of the stages that have any."""
    try:
        naga.find()
    except ConfigError:
        return []
    (bundle / FOLDER).mkdir()
    with ThreadPoolExecutor() as pool:
        made = dict(pool.map(lambda kernel: (_name(kernel), document(kernel)), defaults()))
    for name, found in made.items():
        if found:
            (bundle / FOLDER / f"{name}.deflate").write_bytes(deflated(found))
    return sorted(name for name, found in made.items() if found)


def defaults() -> Iterator[Kernel[Any]]:
    """Yield each stage of each op with its default settings."""
    for stages in STAGES.values():
        yield from (stage() for stage in stages.values())


def document(kernel: Kernel[Any]) -> dict[str, Any] | None:
    """Return the translations of a kernel, or None if naga does not support it."""
    problem = example(kernel)
    if problem is None:
        return None
    try:
        texts = [(each.name, naga.translate(render(each, problem).wgsl, each.name)) for each in kernel.dispatches]
    except (ProblemError, UnsupportedError, ConfigError):
        return None
    written = [{"name": name, **{t: each[t].decode() for t in TARGETS if t in each}} for name, each in texts]
    text = f"{str(problem).removesuffix(f' {problem.dtype.name}')} {problem.dtype.name}"
    return {"problem": text, "naga": naga.version(), "dispatches": written}


def translation(found: Any, target: str, written: bool) -> tuple[str, str]:
    """Return the text of a document in a language of TARGETS, "" if it has none, and what the page says of it.

    `found` is None for a stage without a document, and `written` tells whether any stage has one.
    """
    texts: list[Any] = [getattr(each, target, None) for each in found.dispatches] if found else []
    if texts and all(texts):
        by = f"{target} written by naga {found.naga} for this stage with its default tile sizes, on {found.problem}."
        return "\n".join(texts), by
    if found or written:
        return "", f"naga cannot translate this stage to {target}: it uses a feature that wgpu does not support there."
    return "", f"This page was built without naga; webmm shader NAME --to {target.lower()} prints the translation."


def example(kernel: Kernel[Any]) -> Problem | None:
    """Return the first example problem of its op that suits a kernel, or None."""
    return next((problem for _, problem in OPS[kernel.op].examples() if kernel.unsuited(problem) is None), None)


def deflated(found: Any) -> bytes:
    """Return a JSON document in the format `deflate-raw` of browsers."""
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(json.dumps(found, separators=(",", ":")).encode()) + packer.flush()


def _name(kernel: Kernel[Any]) -> str:
    return f"{kernel.op}-{kernel.name}"
