"""Random problems of attention, beside the three public calls that compute the same with its scores in memory.

    python bench/shapes.py --op attention --seeds 1 --count 60 --seconds 600 FILE.json

Heads, tokens and widths are drawn as models have them: half of the problems are causal, some have few queries, and some
have ragged numbers of tokens. Both ways are called in turn in one process, results stay on the device, and the medians
are compared. The three calls, matmul, softmax and matmul, leave a causal mask out, which would cost them more.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from results import header

import webmm
from webmm.measure.records import lines

WIDTHS = (40, 64, 64, 80, 96, 128, 256)
MOST_HEADS, MOST_TOKENS = 64, 8192
FLOPS = {"cpu": 1e10, "gpu": 1e13}
SCORES = 2**28  # bytes
WARM_UP, LEAST_SECONDS, LEAST_TIMES = 0.3, 0.3, 5  # in time, since operands and compilers leave a GPU idle, and slow


def drawn(seed: int, count: int, flops: float) -> Iterator[dict[str, Any]]:
    """Yield `count` problems, the same ones for the same seed and limit."""
    source = random.Random(seed)
    while count:
        heads = round(2 ** source.uniform(0, math.log2(MOST_HEADS)))
        tokens = round(2 ** source.uniform(0, math.log2(MOST_TOKENS)))
        queries = source.choice((tokens, tokens, tokens, max(1, tokens // 16), 1))
        if source.random() < 0.5:
            tokens, queries = (max(1, n // 64 * 64) if n >= 64 else n for n in (tokens, queries))
        width, causal = source.choice(WIDTHS), source.random() < 0.5
        if 4 * heads * queries * tokens * width <= flops and 4 * heads * queries * tokens <= SCORES:
            count -= 1
            yield {"heads": heads, "queries": queries, "keys": tokens, "width": width, "causal": causal}


def timed(device: webmm.Device, calls: list[Callable[[], Any]]) -> list[float]:
    """Return the median seconds of each call, made in turn until LEAST_SECONDS have passed."""

    def in_turn(seconds: float, least: int) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in calls]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(found[0]) < least:
            for call, times in zip(calls, found, strict=True):
                start = time.perf_counter()
                call()
                device.synchronize()
                times.append(time.perf_counter() - start)
        return found

    in_turn(0.0, 2)  # compiles
    if device.info.kind != "cpu":
        in_turn(WARM_UP, 0)
    return [statistics.median(times) for times in in_turn(LEAST_SECONDS, LEAST_TIMES)]


def measured(device: webmm.Device, row: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return a problem with the µs of both ways."""
    heads, width, scale = row["heads"], row["width"], row["width"] ** -0.5
    rng = np.random.default_rng(0)
    tokens = (row["queries"], row["keys"], row["keys"])
    q, k, v = (device.array(rng.random((heads, n, width), np.float32) - 0.5, dtype) for n in tokens)
    causal = "end" if row["causal"] else False

    def attention() -> Any:
        return webmm.attention(q, k, v, causal=causal)

    def three_calls() -> Any:
        return webmm.matmul(webmm.softmax(webmm.matmul(q, k.mT, alpha=scale)), v)

    ours, theirs = (1e6 * seconds for seconds in timed(device, [attention, three_calls]))
    if not row["causal"]:
        np.testing.assert_allclose(attention().numpy().astype(float), three_calls().numpy().astype(float), atol=0.02)
    for x in (q, k, v):
        x.free()
    return row | {"dtype": dtype, "us": round(ours, 1), "three_calls_us": round(theirs, 1)}


def measure(adapter: str, engine: str, dtype: str, seeds: str, count: int, seconds: float, output: Path) -> None:
    """Measure random problems for about `seconds`, write them to `output`, and print how the ratios are spread."""
    end, rows = time.monotonic() + seconds, []
    with webmm.Device(**{k: v for k, v in {"adapter": adapter, "engine": engine}.items() if v}) as device:
        flops = FLOPS["cpu" if device.info.kind == "cpu" else "gpu"]
        for row in (row for seed in map(int, seeds.split(",")) for row in drawn(seed, count, flops)):
            if time.monotonic() > end:
                break
            rows.append(measured(device, row, dtype or "float32"))
            print(json.dumps(rows[-1] | {"ratio": round(ratio(rows[-1]), 2)}), flush=True)
        about = header(device.engine.version(), device.info)
    output.write_text(lines({**about, "problems": rows}), encoding="utf-8")
    ratios = sorted(map(ratio, rows))
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"{len(rows)} problems, three calls ÷ attention: geometric mean {mean:.2f}, a tenth below", end=" ")
    print(f"{ratios[len(ratios) // 10]:.2f}, worst {ratios[0]:.2f}")


def ratio(row: dict[str, Any]) -> float:
    """Return the time of the three calls ÷ that of attention."""
    return float(row["three_calls_us"] / row["us"])
