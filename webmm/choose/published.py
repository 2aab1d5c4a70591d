"""Rates that the makers of common GPUs publish: what the cost model assumes of one that was not probed."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path

from webmm.engine.rates import Rates

FILE = Path(__file__).parents[1] / "tuned" / "rates" / "published.json"
# Nobody publishes these: the cache's rate for each multiprocessor, as of a GeForce RTX 4060, and the µs of a dispatch.
CACHE_GBYTES, LAUNCH_US = 62.5, 5.0


def published(adapter: str) -> Rates | None:
    """Return the rates of the GPU with an adapter's name, or None if it is not in the table."""
    return _table().get(_plain(adapter))


@functools.cache
def _table() -> Mapping[str, Rates]:
    return {
        _plain(row["name"]): Rates(
            row["tflops"] * 1e3,
            row["gbytes"],
            row["multiprocessors"] * CACHE_GBYTES,
            LAUNCH_US,
            row["multiprocessors"],
        )
        for row in json.loads(FILE.read_text(encoding="utf-8"))["devices"]
    }


def _plain(name: str) -> str:
    """Return a name without what drivers add in brackets, such as "(RADV NAVI32)"."""
    return " ".join(re.sub(r"\([^)]*\)", " ", name.lower()).split())
