"""Pictures of packed integers: what lies in a word of 32 bits, and how it is multiplied."""

from __future__ import annotations

from typing import Any

from webmm.kernels.base import Kernel
from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg

BITS = {"quantized": 8, "weights": 4}  # of an integer, by op
WIDTH = 384.0


@drawn
def word(kernel: Kernel[Any]) -> Svg:
    """Return the integers of a word of an operand, and what they are multiplied with."""
    bits = BITS[kernel.op]
    count, side = 32 // bits, WIDTH * bits / 32
    packed = kernel.op == "quantized"
    rows = "a row of A, and four of a column of B" if packed else "a column, and eight elements of x"
    label = f"{'four elements' if packed else 'eight weights'} of {rows}"
    done = "dot4I8Packed: four products and their sum" if packed else "shift, mask, - zero, · scale, and a product"
    svg = Svg(WIDTH + 2, 172, f"A word of 32 bits holds {count} integers of {bits} bits: {label}. {done}.")
    svg.text(1, 14, label, css="small")
    for i in range(count):
        x = 1 + i * side
        for kind, y in (("tile", 22), ("slab", 70)):
            svg.rect(kind, x, y, side - 1, 26)
            svg.text(x + side / 2, y + 18, f"k+{i}" if i else "k", anchor="middle", css="small")
        svg.line("line", x + side / 2, 50, x + side / 2, 68)
        svg.line("line", x + side / 2, 98, WIDTH / 2, 124)
    svg.rect("mine", WIDTH / 2 - 20, 126, 40, 22)
    svg.text(WIDTH / 2, 166, done, anchor="middle", css="small")
    return svg
