"""The ops that the page loads on demand: their entries of the tables that the rest of the ops are in from the start.

What it names for the page is in the translated subset (docs/page.md).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from webmm.choose import COLUMNS
from webmm.kernels import STAGES

OPS = ("attention",)
LATE_STAGES: dict[str, dict[str, type[Any]]] = {op: STAGES[op] for op in OPS}
LATE_COLUMNS: dict[str, ModuleType] = {op: COLUMNS[op] for op in OPS}
WITHOUT = {"webmm.kernels.STAGES": OPS, "webmm.choose.COLUMNS": OPS}  # tables, and the keys that they lack at the start
