"""The table of calls: attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.table_case import EPS, INF, RNG, Case, Views, X, drawn

Q, K, V = (2, 4, 9, 12), (2, 2, 21, 12), (2, 2, 21, 7)  # two batch entries, grouped heads, columns of both lengths
COLUMNS_FIRST: Views = (("transpose", (0, 1, 3, 2)),)


def attention() -> Iterator[Case]:
    """Yield each option, alone and with others, on the host and on the device, and what is refused."""
    yield attended("matrices", q=Q[2:], k=K[2:], v=V[2:])
    yield attended("causal from the end, softcap", causal="end", softcap=2.0, resident=True)
    yield attended("a window, some queries without keys", window=(1, 0), scale=0.5, q=(2, 4, 30, 12))
    yield attended(
        "lengths from the end, a window", causal="end", window=(5, -1), lengths=X(np.array([21, 6], np.int32))
    )
    shown = RNG.random((9, 21)) < 0.5
    shown[2] = False
    yield attended("a mask of booleans, lengths in a list", mask=X(shown), lengths=[0, 13])
    added = drawn(2, 1, 9, 21)
    added[0, 0, 3, ::2] = -INF
    yield attended("a mask of floats by batch, columns before tokens", mask=X(added), causal=True, views=COLUMNS_FIRST)
    yield attended("float16", dtype="float16", mask=X(drawn(4, 1, 21, dtype="float16")), causal=True)
    yield attended("no queries", q=(2, 4, 0, 12))
    yield attended("no keys", k=(2, 2, 0, 12), v=(2, 2, 0, 7), out_dtype="float32", resident=True)
    yield from refused()


BINDING = 8192  # bytes
FAR = {"q": (2, 4, 9, 24), "k": (2, 2, 180, 24), "v": (2, 2, 180, 20)}  # a head's keys take more than that


def beyond_a_binding() -> Iterator[Case]:
    """Yield calls whose keys of a head, or of a row of the mask, take more than BINDING."""
    yield attended("keys in pieces", **FAR)
    yield attended("keys in pieces from the end, a window", **FAR, causal="end", window=(70, -1), resident=True)
    lengths = X(np.array([180, 97], np.int32))
    yield attended("keys in pieces, lengths", **FAR, lengths=lengths, causal="end", softcap=2.0, scale=9.0)
    mask = X(drawn(1, 4, 9, 180))
    yield attended("keys in pieces, a mask of floats", **FAR, mask=mask, window=(60, 20), views=COLUMNS_FIRST)
    shown = X(RNG.random((9, 180)) > 0.9)
    yield attended("keys in pieces, rows without keys", **FAR, mask=shown, lengths=[20, 0], out_dtype="float16")
    longer: dict[str, Any] = {"q": (1, 1, 2, 4), "k": (1, 1, 3000, 4), "v": (1, 1, 3000, 2)}
    yield attended("keys in pieces for a row of the mask", **longer, mask=X(drawn(3000)))


def refused() -> Iterator[Case]:
    """Yield calls with one wrong argument each."""
    for name, given, options in (
        ("vectors", {"q": (12,), "k": (12,), "v": (7,)}, {}),
        ("other columns", {"q": (2, 4, 9, 11)}, {}),
        ("other keys", {"v": (2, 2, 20, 7)}, {}),
        ("other batch", {"q": (3, 4, 9, 12)}, {}),
        ("heads that do not divide", {"q": (2, 3, 9, 12)}, {}),
        ("other axes", {"q": (4, 9, 12)}, {}),
        ("causal by another word", {}, {"causal": "middle"}),
        ("a window of one side", {}, {"window": (3,)}),
        ("a window of -2", {}, {"window": (-2, 1)}),
        ("a negative softcap", {}, {"softcap": -1.5}),
        ("a mask of bytes", {}, {"mask": X(drawn(9, 21, dtype="uint8"))}),
        ("a mask that does not broadcast", {}, {"mask": X(drawn(9, 20))}),
        ("too few lengths", {}, {"lengths": X(np.array([3], np.int32))}),
        ("lengths of floats", {}, {"lengths": X(drawn(2))}),
        ("more than the keys", {}, {"lengths": X(np.array([3, 22], np.int32))}),
    ):
        shapes = {"q": Q, "k": K, "v": V, **given}
        operands = tuple(X(drawn(*shape)) for shape in shapes.values())
        yield Case(f"attention of {name}", "attention", operands, options, error="ProblemError")
    doubles = tuple(X(drawn(*shape, dtype="float64")) for shape in (Q, K, V))
    yield Case("attention of float64", "attention", doubles, error="ProblemError")


def attended(
    name: str,
    q: tuple[int, ...] = Q,
    k: tuple[int, ...] = K,
    v: tuple[int, ...] = V,
    dtype: str = "float32",
    views: Views = (),
    resident: bool = False,
    **options: Any,
) -> Case:
    """Return a case of `attention()`; with `views`, COLUMNS_FIRST, of arrays on the device in that order."""
    arrays = [drawn(*shape, dtype=dtype) for shape in (q, k, v)]
    laid = tuple(X(np.ascontiguousarray(x.swapaxes(-1, -2)) if views else x, views) for x in arrays)
    expected = reference(*arrays, **{key: x.data if isinstance(x, X) else x for key, x in options.items()})
    out = options.get("out_dtype", dtype)
    allowed = 64 * EPS["float32"] * (1 + np.abs(arrays[2]).astype(float).max(initial=0)) + EPS[out] * np.abs(expected)
    return Case(
        name, "attention", laid, options, expected, allowed + 4 * EPS[out], out, resident=resident or bool(views)
    )


def reference(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    causal: bool | str = False,
    window: tuple[int, int] = (-1, -1),
    lengths: Any = None,
    mask: NDArray[Any] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    out_dtype: str = "",
) -> NDArray[np.float64]:
    """Return the attention in float64."""
    del out_dtype
    group = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    if group > 1:
        k, v = (np.repeat(x, group, axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    counts = np.full(q.shape[:-3], k.shape[-2]) if lengths is None else np.array(lengths)
    counts = counts.reshape(*counts.shape, *(1,) * (min(q.ndim, 3)))
    keys, place = np.arange(k.shape[-2]), np.arange(q.shape[-2])[:, None]
    if causal == "end":
        place = place + counts - q.shape[-2]
    seen = (keys < counts) & (keys <= place if causal else True)
    seen = seen & ((window[0] < 0) | (keys >= place - window[0])) & ((window[1] < 0) | (keys <= place + window[1]))
    if mask is not None:
        seen, scores = (seen & mask, scores) if mask.dtype == bool else (seen, scores + mask)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ v)
