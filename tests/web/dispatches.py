"""Kernels as data for `dispatch.js`, which runs them with plain WebGPU: WGSL for Tint, bindings, counts and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from webmm.kernels.base import Kernel, Scratch
from webmm.problems.base import Problem
from webmm.wgsl.render import params_bytes, render

DISPATCH_JS = Path(__file__).with_name("dispatch.js")


def case(kernel: Kernel[Any], problem: Problem, **inputs: np.ndarray) -> dict[str, Any]:
    """Return the arguments of `dispatch()` that compute `problem`; `inputs` are given by buffer name.

    If the result's buffer is not among them, all its bits are set: NaN, or -1.
    """
    steps = [
        {
            "wgsl": (shader := render(step, problem, "tint")).wgsl,
            "bindings": [binding.name for binding in shader.bindings],
            "params": params_bytes(step, problem).hex(),
            "counts": step.dispatch(problem),
        }
        for step in kernel.dispatches
    ]
    scratch = {left.name: "00" * left.nbytes for left in kernel.scratch(problem) if isinstance(left, Scratch)}
    (written,) = (extent for extent in problem.buffers() if extent.written)
    given = {name: _padded(x.tobytes()).hex() for name, x in inputs.items()}
    buffers = {written.name: "ff" * written.nbytes, **given, **scratch}
    return {"steps": steps, "buffers": buffers, "result": written.name}


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def quarter(table: list[Any], which: int) -> list[Any]:
    """Return a quarter of a table, 0 to 3: node takes one, a browser another. Neighbours are divided."""
    return [row for i, row in enumerate(table) if (i + i // 4) % 4 == which]


def in_chromium(page, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the cases in the page's browser."""
    function = DISPATCH_JS.read_text().replace("export async", "async")
    outcome: dict[str, Any] = page.evaluate(
        f"async (cases) => {{ {function}\n return dispatch(navigator.gpu, cases); }}", cases
    )
    return outcome


def in_node(node, node_modules: Path, folder: Path, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the cases in node on Dawn; write their JSON to `folder`."""
    (folder / "cases.json").write_text(json.dumps(cases))
    dawn = node_modules / "webgpu" / "index.js"
    done = node(str(DISPATCH_JS.with_name("node_dispatch.mjs")), str(folder / "cases.json"), str(dawn))
    assert done.returncode == 0, done.stderr[-2000:]
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def result(outcome: dict[str, str], dtype: Any, shape: tuple[int, ...], label: str) -> np.ndarray:
    """Return the result of one case as an array."""
    assert "error" not in outcome, f"{label}: {outcome['error']}"
    return np.frombuffer(bytes.fromhex(outcome["hex"]), dtype)[: int(np.prod(shape))].reshape(shape)
