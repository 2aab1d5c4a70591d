"""Arguments of attention: shapes, alignment of queries and keys, and the problem of strided arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from webmm.arguments.arrays import Layout, Shape, Shaped, Strided, element_of, is_dense, merged
from webmm.dtypes import BOOL, I32, MATRIX_DTYPES, names
from webmm.errors import ProblemError
from webmm.problems.attention import FURTHEST, Attention, Heads
from webmm.problems.base import ALIGNMENT

ALIGNMENTS = ("start", "end")


@dataclass(frozen=True)
class Seen:
    """The keys that queries see: before and after their position (-1: all), positions from the start or the end."""

    left: int
    right: int
    from_end: bool


def seen_by(causal: bool | str, window: Sequence[int]) -> Seen:
    """Return what `causal` and `window` mean; raises ProblemError for other values."""
    if not isinstance(causal, (bool, str)) or (isinstance(causal, str) and causal not in ALIGNMENTS):
        raise ProblemError(f'causal must be False, True, which is "start", or "end", not {causal!r}')
    sides = list(window) if isinstance(window, (tuple, list)) else []
    if len(sides) != 2 or not all(isinstance(n, int) and n >= -1 for n in sides):
        raise ProblemError(f"window must be two whole numbers of keys (left, right), -1 for no limit, not {window!r}")
    left, right = (min(n, FURTHEST) for n in sides)
    if causal:
        right = 0
    return Seen(left, right, causal == "end")


def cap_of(softcap: float) -> float:
    """Return `softcap`; raises ProblemError for a value that bounds nothing."""
    if not 0 <= softcap < math.inf:
        raise ProblemError(f"softcap must be 0, for none, or a positive number, not {softcap!r}")
    return softcap


def factor_of(scale: float | None, width: int) -> float:
    """Return the factor of scores of `width` columns; raises ProblemError for one that is not finite."""
    if scale is None:
        return 1 / math.sqrt(max(width, 1))
    if not math.isfinite(scale):
        raise ProblemError(f"scale must be a finite number, not {scale!r}")
    return scale


@dataclass(frozen=True)
class Settings:
    """What scores are multiplied by, their bound, which keys queries see, and the position of the first query.

    The position counts from the end of the sequence if those of `seen` do and sequences have lengths of their own. Of a
    piece of the keys, `first_key` is the number of its first one.
    """

    factor: float
    cap: float
    seen: Seen
    shift: int
    first_key: int = 0


def settings_of(
    causal: bool | str,
    window: Sequence[int],
    softcap: float,
    scale: float | None,
    q: Shaped,
    k: Shaped,
    counted: bool,
) -> Settings:
    """Return what these options mean; `counted` tells whether sequences have lengths of their own.

    Raises ProblemError for values that they do not have.
    """
    seen, cap = seen_by(causal, window), cap_of(softcap)
    queries, keys = q.shape[-2], k.shape[-2]
    shift = 0 if not seen.from_end else -queries if counted else keys - queries
    return Settings(factor_of(scale, q.shape[-1]), cap, seen, shift)


def attention_shape(q: Shaped, k: Shaped, v: Shaped) -> Shape:
    """Return the shape of the result; raises ProblemError for shapes or dtypes that do not match."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim < 2:
            raise ProblemError(f"{name} has shape {x.shape}; attention takes (…, heads, tokens, width)")
        if element_of(x) not in MATRIX_DTYPES:
            raise ProblemError(
                f"{name} is {element_of(x).name}, which attention does not compute; cast it to one of "
                f"{names(MATRIX_DTYPES)}, as in {name}.astype('float32')"
            )
        if element_of(x) != element_of(q):
            raise ProblemError(f"q is {element_of(q).name} and {name} is {element_of(x).name}; cast one of them")
    if q.ndim != k.ndim or k.ndim != v.ndim:
        raise ProblemError(f"q, k and v have shapes {q.shape}, {k.shape} and {v.shape}, of different numbers of axes")
    if k.shape[:-1] != v.shape[:-1]:
        raise ProblemError(f"k and v have shapes {k.shape} and {v.shape}; all axes but the last must be equal")
    if q.shape[-1] != k.shape[-1]:
        raise ProblemError(f"q and k have shapes {q.shape} and {k.shape}; their last axes must be equal")
    if q.shape[:-3] != k.shape[:-3]:
        raise ProblemError(f"q and k have shapes {q.shape} and {k.shape}; the axes before the heads must be equal")
    heads, shared = heads_of(q), heads_of(k)
    if heads != shared and (shared == 0 or heads % shared):
        raise ProblemError(f"q has {heads} heads, which is no multiple of the {shared} of k and v")
    return (*q.shape[:-1], v.shape[-1])


def heads_of(x: Shaped) -> int:
    """Return the number of heads of q, k or v; 1 for a matrix."""
    return x.shape[-3] if x.ndim > 2 else 1


def check_mask(mask: Shaped, shape: Shape) -> None:
    """Raise ProblemError unless a mask is bool or a float, and broadcasts to `shape`, (…, heads, queries, keys)."""
    if element_of(mask) not in (BOOL, *MATRIX_DTYPES):
        raise ProblemError(f"a mask must be bool or one of {names(MATRIX_DTYPES)}, not {element_of(mask).name}")
    padded = (*((1,) * (len(shape) - mask.ndim)), *mask.shape)
    if len(padded) != len(shape) or any(n not in (1, whole) for n, whole in zip(padded, shape, strict=True)):
        raise ProblemError(f"a mask of shape {mask.shape} does not broadcast to (…, heads, queries, keys) {shape}")


def check_lengths(lengths: Shaped, batch: Shape) -> None:
    """Raise ProblemError unless there is an integer for each sequence of a batch of shape `batch`."""
    if lengths.shape != batch:
        raise ProblemError(f"lengths must have the shape of the batch, {batch}, not {lengths.shape}")


def check_counts(kind: str, least: int, most: int, keys: int) -> None:
    """Raise ProblemError unless lengths, of elements called `kind`, are from 0 to the number of keys."""
    if not kind.startswith(("int", "uint")):
        raise ProblemError(f"lengths must be integers, not {kind}")
    if least < 0 or most > keys:
        raise ProblemError(f"lengths must be from 0 to the {keys} keys, not {least} to {most}")


def check_resident_counts(lengths: Shaped) -> None:
    """Raise ProblemError unless lengths on a device are dense and int32."""
    if element_of(lengths) != I32 or not is_dense(lengths):
        found = element_of(lengths).name if element_of(lengths) != I32 else "a view with gaps or repetitions"
        raise ProblemError(f"lengths must be contiguous and int32, not {found}")


def grouped_shape(x: Shaped, groups: int) -> Shape:
    """Return the shape (batch, groups, heads of a group, tokens, columns) of (…, heads, tokens, columns)."""
    heads = heads_of(x)
    apart = (1, 1) if heads == 1 else (groups, heads // groups)
    return (math.prod(x.shape[:-3]), *apart, *x.shape[-2:])


def grouped(x: Strided, groups: int) -> Layout | None:
    """Return an array with that shape, as a view; None if it takes a copy."""
    shape = grouped_shape(x, groups)
    axes = merged(zip(x.shape[:-3], x.strides[:-3], strict=True))
    if len(axes) > 1:
        return None
    outer = axes[0][1] if axes else 0
    head = x.strides[-3] if x.ndim > 2 else 0
    return Layout(shape, (outer, head * shape[2], head, *x.strides[-2:]), x.offset)


def mask_shape(mask: Shaped, batch: Shape) -> Shape:
    """Return the shape of a mask with all axes of q, whose batch is `batch`, or of ones."""
    padded = (*((1,) * (len(batch) + 3 - mask.ndim)), *mask.shape)
    over = all(n == 1 for n in padded[:-3])
    return padded if over else (*batch, *padded[-3:])


def layout_of(x: Strided) -> Heads:
    """Return the layout of an array of (batch, groups, heads of a group, tokens, columns)."""
    batch, group, member, token, column = (0 if n == 1 else far for n, far in zip(x.shape, x.strides, strict=True))
    head = member if x.shape[2] > 1 else group
    return Heads(batch, head, token, column if x.shape[4] > 1 else 1, x.offset)


def attention_of(
    q: Strided,
    k: Strided,
    v: Strided,
    o: Strided,
    settings: Settings,
    first: int,
    mask: Strided | None,
    lengths: Strided | None,
) -> Attention:
    """Return the problem of arrays on a device, (batch, groups, heads of a group, tokens, columns), from a query on."""
    batch, groups, members, queries, width = q.shape
    seen = settings.seen
    return Attention(
        batch=batch,
        heads=groups * members,
        kv_heads=groups,
        queries=queries,
        keys=k.shape[3],
        width=width,
        value_width=v.shape[4],
        dtype=element_of(q),
        out_dtype=element_of(o),
        q=layout_of(q),
        k=layout_of(k),
        v=layout_of(v),
        o=layout_of(o),
        scale=settings.factor,
        softcap=settings.cap,
        left=seen.left,
        right=seen.right,
        shift=settings.shift + first - settings.first_key,
        from_end=seen.from_end and lengths is not None,
        mask=None if mask is None else layout_of(mask),
        mask_dtype=None if mask is None else element_of(mask),
        lengths=lengths is not None,
        lengths_offset=0 if lengths is None else lengths.offset,
        first_key=settings.first_key,
    )


def keys_at_once(binding: int, k: Shaped, v: Shaped, mask: Shaped | None) -> int:
    """Return how many keys of a head fit a binding of so many bytes, with their part of a row of the mask."""
    row = element_of(k).itemsize * max(k.shape[-1], v.shape[-1], 1)
    if mask is not None and mask.ndim > 0 and mask.shape[-1] > 1:
        row = max(row, element_of(mask).itemsize)
    keys = k.shape[-2]
    return keys if keys and keys * row <= binding else max(1, (binding - 2 * ALIGNMENT) // row)


def of_row_sums(problem: Attention) -> Attention:
    """Return the problem whose result is that of `RowSums`: two columns for each query."""
    return replace(problem, value_width=2, v=replace(problem.v, column=0))
