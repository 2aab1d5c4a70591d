"""The tasks of the comparison, by group, in the format of tasks.js."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from attention_shapes import drawn
from random_problems import draw

SQUARES = {"browser": (256, 512, 1024), "node": (512, 1024, 2048, 4096)}
SCALE = {"browser": 200.0, "node": 20.0}  # divisor of the random problems' size limits
SIDE = {"browser": 1024, "node": 4096}  # order of the other ops' matrices
SEED, COUNT = 16, 40  # of random problems
ATTENTION, HEADS = {"browser": 3e8, "node": 1e12}, 20  # most operations of random attention, and how many problems


def groups(host: str) -> dict[str, list[dict[str, Any]]]:
    """Return tasks of a size that suits the host: square products, other ops, random attention and random products."""
    side = SIDE[host]
    matrix, weights = {"m": side, "n": side}, {"op": "weights", "n": side, "k": side, "bits": 4, "block": 32}
    return {
        "squares": [{"op": "gemm", "m": size, "n": size, "k": size} for size in SQUARES[host]],
        "ops": [
            *({"op": op, **matrix} for op in ("softmax", "layer_norm")),
            *({"op": "sum", **matrix, "axis": axis} for axis in (1, 0)),
            *({**weights, "m": m} for m in (1, 128)),
        ],
        "attention": [
            # Libraries align the first or the last query of a causal mask that is not square.
            {"op": "attention", "layout": "", **each, "causal": each["causal"] and each["queries"] == each["keys"]}
            for each in drawn(SEED, HEADS, ATTENTION[host])
        ],
        "random": [{"op": "gemm", **problem} for problem in draw(SEED, COUNT, SCALE[host])],
    }
