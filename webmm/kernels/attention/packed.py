"""Copies of k and v in textures, which CPU drivers read a vector register at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from webmm.dtypes import F32
from webmm.kernels.attention.base import FOUR, WRITE, AttentionChoices, AttentionKernel
from webmm.kernels.base import Binding, Scratch, Texture, ceil_div
from webmm.problems.attention import Attention

DEPTH = 8192  # texels along a side of a layer: the size that every device supports
K_TEXTURE, V_TEXTURE = "k_texture", "v_texture"


@dataclass(frozen=True)
class Pack(AttentionKernel):
    """A dispatch that copies k or v, with a layer for each head of k and v, or several if it is long."""

    reads: ClassVar[str]

    @property
    def depth(self) -> int:
        """Texels along a side of a layer."""
        return DEPTH

    @property
    def texture(self) -> str:
        """The name of the texture."""
        return f"{self.reads}_texture"

    @property
    def workgroup_size(self) -> tuple[int, int, int]:
        """Four tokens and four columns each."""
        return (8, 4, 1)

    def dispatch(self, problem: Attention) -> tuple[int, int, int]:
        """Return the workgroup counts (x, y, z): z is the head."""
        p = problem
        columns = p.width if self.reads == "k" else p.value_width
        return ceil_div(p.keys, FOUR * 8), ceil_div(columns, FOUR * 4), p.kv_heads * p.batch

    def grid_rule(self, spec: Any) -> dict[str, Any] | None:
        """Return the rule of `dispatch`, for hosts in other languages."""
        del spec
        across, down = f"ceil(keys / {FOUR * 8})", f"ceil({self.columns} / {FOUR * 4})"
        heads = "heads / group * entries"
        return {"x": across, "y": down, "z": heads, "rule": f"dispatch ({across}, {down}, {heads})"}

    def moved_for(self, problem: Attention) -> float:
        """Return the bytes of k or v, and of the texture, for each head of q."""
        p = problem
        columns = p.width if self.reads == "k" else p.value_width
        return p.keys * columns * (p.dtype.itemsize + F32.itemsize) / p.group

    @property
    def columns(self) -> str:
        """The size of its rows."""
        return "width" if self.reads == "k" else "value_width"

    def iterations(self, problem: Attention) -> int:
        """Return 0: it has no loop."""
        del problem
        return 0

    def bindings(self, spec: AttentionChoices) -> Iterator[Binding]:
        """Yield the array, the texture, and the lengths if there are any."""
        vec = spec.vec_k if self.reads == "k" else spec.vec_v
        types = {self.reads: spec.dtype.array(vec), self.texture: WRITE}
        yield from self.numbered(types | ({"lengths": "array<i32>"} if spec.lengths else {}))


@dataclass(frozen=True)
class PackK(Pack):
    """Copy k: texel (x, y) of a layer has column y of four keys."""

    name = "pack_k"
    summary = "a copy of k in a texture"
    reads = "k"

    def scratch(self, problem: Attention) -> tuple[Texture | Scratch, ...]:
        """Return the texture."""
        p = problem
        fours = ceil_div(p.keys, FOUR)
        layers = ceil_div(fours, DEPTH) * p.kv_heads * p.batch
        return (Texture(K_TEXTURE, min(fours, DEPTH), FOUR * ceil_div(p.width, FOUR), layers),)

    def scratch_rule(self, problem: Attention) -> dict[str, Any]:
        """Return the rule of the texture's size."""
        del problem
        layers = f"ceil(ceil(keys / 4) / {DEPTH}) * heads / group * entries"
        return {
            K_TEXTURE: {"width": f"min(ceil(keys / 4), {DEPTH})", "height": "4 * ceil(width / 4)", "layers": layers}
        }


@dataclass(frozen=True)
class PackV(Pack):
    """Copy v: texel (x, y) of a layer has four columns of key y; zeros for keys beyond the last one."""

    name = "pack_v"
    summary = "a copy of v in a texture"
    reads = "v"

    def scratch(self, problem: Attention) -> tuple[Texture | Scratch, ...]:
        """Return the texture."""
        p = problem
        keys = FOUR * ceil_div(p.keys, FOUR)
        layers = ceil_div(keys, DEPTH) * p.kv_heads * p.batch
        return (Texture(V_TEXTURE, ceil_div(p.value_width, FOUR), min(keys, DEPTH), layers),)

    def scratch_rule(self, problem: Attention) -> dict[str, Any]:
        """Return the rule of the texture's size."""
        del problem
        layers = f"ceil(4 * ceil(keys / 4) / {DEPTH}) * heads / group * entries"
        height = f"min(4 * ceil(keys / 4), {DEPTH})"
        return {V_TEXTURE: {"width": "ceil(value_width / 4)", "height": height, "layers": layers}}
