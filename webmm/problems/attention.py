"""Attention: weighted sums of the rows of v, by the softmax of the products of q and k."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from webmm.dtypes import BOOL, I32, MATRIX_DTYPES, DType
from webmm.errors import ProblemError
from webmm.problems.base import Extent, Problem, check_floats

FURTHEST = 2**30  # tokens: positions and their sums fit an i32
LEAST_SCORE = -(2.0**126)  # a score below it counts as -∞: kernels begin with it as the maximum of a row


@dataclass(frozen=True)
class Heads:
    """Strides of q, k, v or o by (batch, head, token, column), or of a mask by (batch, head, query, key), in elements.

    The first element is at `offset`.
    """

    batch: int
    head: int
    token: int
    column: int
    offset: int = 0

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """All strides, in this order."""
        return self.batch, self.head, self.token, self.column

    def end(self, batch: int, heads: int, tokens: int, columns: int) -> int:
        """Return the index after the last element, for these lengths."""
        far = (batch - 1) * self.batch + (heads - 1) * self.head + (tokens - 1) * self.token
        return self.offset + far + (columns - 1) * self.column + 1

    def adjacent(self, columns: int) -> int:
        """Return how many adjacent columns, of so many, can be accessed at once everywhere: 8, 4, 2 or 1."""
        multiples = (columns, self.batch, self.head, self.token, self.offset)
        return next(n for n in (8, 4, 2, 1) if n == 1 or (self.column == 1 and all(x % n == 0 for x in multiples)))


def dense_heads(heads: int, tokens: int, columns: int, offset: int = 0) -> Heads:
    """Return the layout of a dense (batch, heads, tokens, columns) array."""
    return Heads(heads * tokens * columns, tokens * columns, columns, 1, offset)


@dataclass(frozen=True)
class Attention(Problem):
    """o[b, h, i] ← Σ_j w[j]·v[b, g, j], where w is the softmax of the scores of query i, and g = h // group.

    The score of key j is ``scale·(q[b, h, i]·k[b, g, j])``; with `softcap` c, it becomes c·tanh(score/c); then a float
    `mask` is added. Query i is at position ``i + shift``, plus the sequence's length if `from_end`; it sees the keys
    from `left` before its position to `right` after it (-1: all), that are within its sequence: `lengths` says that
    there is a buffer with the number of keys of each batch entry, from `first_key` on, the first one here. A mask of
    booleans hides keys where it is False. A query that sees no key, or only scores below LEAST_SCORE, gets zeros.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    dtype: DType
    out_dtype: DType
    q: Heads
    k: Heads
    v: Heads
    o: Heads
    scale: float
    softcap: float = 0.0
    left: int = -1
    right: int = -1
    shift: int = 0
    from_end: bool = False
    mask: Heads | None = None
    mask_dtype: DType | None = None
    lengths: bool = False
    lengths_offset: int = 0
    first_key: int = 0

    op: ClassVar[str] = "attention"

    def __post_init__(self) -> None:
        check_floats("attention", self.dtype, self.out_dtype)
        for name in ("batch", "heads", "kv_heads", "queries", "keys", "width", "value_width"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ProblemError(f"q has {self.heads} heads, which is no multiple of the {self.kv_heads} of k and v")
        if (self.mask is None) != (self.mask_dtype is None):
            raise ProblemError("a mask needs both a layout and a dtype")
        if self.mask_dtype is not None and self.mask_dtype not in (BOOL, *MATRIX_DTYPES):
            raise ProblemError(f"a mask must be bool or a float, not {self.mask_dtype.name}")
        if self.from_end and not self.lengths:
            raise ProblemError("from_end needs lengths; without them, add the number of keys to shift")
        if not 0 <= self.softcap < float("inf"):
            raise ProblemError(f"softcap must be 0 or a positive number, not {self.softcap}")

    @property
    def group(self) -> int:
        """The heads of q that share a head of k and v."""
        return self.heads // self.kv_heads

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Queries, keys, width, and heads of all batch entries."""
        return self.queries, self.keys, self.width, self.batch * self.heads

    @property
    def variant(self) -> str:
        """Whether each query sees a range of keys that depends on its position."""
        return "causal" if self.right >= 0 else "full"

    def buffers(self) -> tuple[Extent, ...]:
        """Return q, k, v, o, and the mask and lengths if there are any."""
        b = self.batch
        q = self.q.end(b, self.heads, self.queries, self.width)
        k = self.k.end(b, self.kv_heads, self.keys, self.width)
        v = self.v.end(b, self.kv_heads, self.keys, self.value_width)
        o = self.o.end(b, self.heads, self.queries, self.value_width)
        found = [
            Extent("q", self.dtype, q, start=self.q.offset),
            Extent("k", self.dtype, k, start=self.k.offset),
            Extent("v", self.dtype, v, start=self.v.offset),
            Extent("o", self.out_dtype, o, written=True, start=self.o.offset),
        ]
        if self.mask is not None and self.mask_dtype is not None:
            mask = self.mask.end(b, self.heads, self.queries, self.keys)
            found.append(Extent("mask", self.mask_dtype, mask, start=self.mask.offset))
        if self.lengths:
            found.append(Extent("lengths", I32, self.lengths_offset + b, start=self.lengths_offset))
        return tuple(found)

    def within(self, firsts: tuple[int, ...]) -> Attention:
        """Return the problem with `firsts`, numbers of elements, subtracted from the offsets into its buffers."""
        q, k, v, o = (
            replace(x, offset=x.offset - first)
            for x, first in zip((self.q, self.k, self.v, self.o), firsts[:4], strict=True)
        )
        more = list(firsts[4:])
        mask = None if self.mask is None else replace(self.mask, offset=self.mask.offset - more.pop(0))
        offset = self.lengths_offset - more[0] if self.lengths else 0
        return replace(self, q=q, k=k, v=v, o=o, mask=mask, lengths_offset=offset)

    def element_of(self, name: str) -> str:
        """Return the name of an element of a buffer."""
        if name == "lengths":
            return "lengths[b]"
        return f"{name}[b, h, {'j' if name in ('k', 'v') else 'i'}, {'j' if name == 'mask' else 'c'}]"

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """The places of the elements of each buffer, and their numbers."""
        lengths = {
            "q": ("h", "i", "c", "heads", "queries", "width"),
            "k": ("h", "j", "c", "heads / group", "keys", "width"),
            "v": ("h", "j", "c", "heads / group", "keys", "value_width"),
            "o": ("h", "i", "c", "heads", "queries", "value_width"),
            "mask": ("h", "i", "j", "heads", "queries", "keys"),
        }
        found: dict[str, tuple[str, str]] = {}
        for name, (head, token, column, heads, tokens, columns) in lengths.items():
            if name == "mask" and self.mask is None:
                continue
            x = f"{name}_strides"
            place = f"b * {x}.x + {head} * {x}.y + {token} * {x}.z + {column} * {x}.w"
            last = f"(entries - 1) * {x}.x + ({heads} - 1) * {x}.y + ({tokens} - 1) * {x}.z + ({columns} - 1) * {x}.w"
            found[name] = (f"{name}_offset + {place}", f"{name}_offset + {last} + 1")
        if self.lengths:
            found["lengths"] = ("lengths_offset + b", "lengths_offset + entries")
        return found

    @property
    def pairs(self) -> int:
        """The pairs of a query and a key that it sees, of one head, if sequences have all keys."""
        shift = self.shift + (self.keys if self.from_end else 0)
        most = self.queries * self.keys
        upper = most if self.right < 0 else _before(self.queries, self.keys, shift + self.right + 1)
        lower = 0 if self.left < 0 else _before(self.queries, self.keys, shift - self.left)
        return max(1, upper - lower)

    def tile_pairs(self, tile: int) -> int:
        """Return the pairs of a tile of so many queries and a key that one of them sees, of one head, likewise."""
        shift = self.shift + (self.keys if self.from_end else 0)
        count = 0
        for first in range(0, self.queries, tile):
            last = min(first + tile, self.queries) - 1
            end = self.keys if self.right < 0 else min(max(last + shift + self.right + 1, 0), self.keys)
            begin = 0 if self.left < 0 else min(max(first + shift - self.left, 0), self.keys)
            count += max(0, end - begin)
        return max(1, count)

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products, for the keys that queries see."""
        return 2 * self.pairs * (self.width + self.value_width) * self.heads * self.batch

    @property
    def bytes(self) -> int:
        """The minimum of bytes to move: q, k, v and a mask read once, o written once."""
        q, o = self.heads * self.queries * self.width, self.heads * self.queries * self.value_width
        kv = self.kv_heads * self.keys * (self.width + self.value_width)
        mask = 0
        if self.mask is not None and self.mask_dtype is not None:
            lengths = self.batch, self.heads, self.queries, self.keys
            mask = self.mask_dtype.itemsize
            for length, stride in zip(lengths, self.mask.strides, strict=True):
                mask *= length if stride else 1
        return self.batch * ((q + kv) * self.dtype.itemsize + o * self.out_dtype.itemsize) + mask

    def __str__(self) -> str:
        heads = (
            f"{self.batch * self.heads}" if self.heads == self.kv_heads else f"{self.batch * self.heads}/{self.group}"
        )
        width = f"{self.width}" if self.width == self.value_width else f"{self.width}+{self.value_width}"
        return f"{self.variant} attention of {heads} x {self.queries}x{self.keys}x{width}"


def _before(queries: int, keys: int, ahead: int) -> int:
    """Return Σ_i of min(max(i + ahead, 0), keys) over the queries i: the keys before ``i + ahead``."""
    first = min(max(1 - ahead, 0), queries)  # the first query that has any
    full = min(max(keys - ahead, first), queries)  # the first one that has all
    count = full - first
    return count * ahead + (first + full - 1) * count // 2 + (queries - full) * keys
