"""Pictures of calls: where the time of a product from NumPy to NumPy goes."""

from __future__ import annotations

import json

from webmm.learn.drawings import drawn
from webmm.learn.drawings.svg import Svg
from webmm.learn.numbers import RESULTS

WIDTH = 420.0


@drawn
def moving() -> Svg:
    """Return the times of moving and of multiplying, as shares of both, of the products in the records of transfers."""
    products = json.loads((RESULTS / "h200-transfers.json").read_text(encoding="utf-8"))["products"]
    words = [f"{p['n']}: {p['moving'] / (p['moving'] + p['multiplying']):.0%}" for p in products]
    svg = Svg(
        WIDTH + 118, 26 * len(products) + 24, f"Shares of moving data by the size of a product: {', '.join(words)}."
    )
    for i, product in enumerate(products):
        y, share = 4 + 26 * i, product["moving"] / (product["moving"] + product["multiplying"])
        svg.text(50, y + 14, f"{product['n']}³", anchor="end", css="small")
        svg.rect("slab", 56, y, share * WIDTH, 20)
        svg.rect("mine", 56 + share * WIDTH, y, (1 - share) * WIDTH, 20)
        svg.text(62, y + 14, f"{product['moving']:.3g} ms", css="small")
        svg.text(62 + WIDTH, y + 14, f"{product['multiplying']:.3g} ms", css="small")
    for x, kind, label in ((56.0, "slab", "moving data"), (190.0, "mine", "multiplying")):
        svg.rect(kind, x, 26 * len(products) + 8, 11, 11)
        svg.text(x + 17, 26 * len(products) + 18, label, css="small")
    return svg
