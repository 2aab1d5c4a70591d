"""Plot the errors that `precision.py` measured: the largest of each precision over K.

    python bench/plot_precision.py bench/results/h200-precision-errors.json docs/precision.png

The dotted line is the bound of all products, 2·K units.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from webmm.report.plot import BEST, GRID, INK, MUTED

PANELS = {
    "positive": "positive, from [0, 1)",
    "signed": "signed, from [−1, 1)",
    "2^±20": "±2ᵉ, e uniform in [−20, 20)",
}
STYLES = {"highest": (MUTED, "o"), "high": (BEST, "s")}


@click.command()
@click.argument("errors", type=click.Path(exists=True, path_type=Path))
@click.argument("picture", type=click.Path(path_type=Path))
def main(errors: Path, picture: Path) -> None:
    """Read ERRORS and write PICTURE, a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = json.loads(errors.read_text())["records"]
    with plt.rc_context({"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID}):
        figure, panels = plt.subplots(1, len(PANELS), figsize=(11, 3.6), sharey=True, layout="constrained")
        for axes, (data, title) in zip(panels, PANELS.items(), strict=True):
            ks = sorted({row["k"] for row in rows})
            axes.loglog(ks, [2 * k for k in ks], color=MUTED, linestyle=":", linewidth=1, label="bound")
            for precision, (colour, marker) in STYLES.items():
                points = sorted(
                    (r["k"], r["largest"]) for r in rows if (r["data"], r["precision"]) == (data, precision)
                )
                axes.loglog(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, label=precision)
            axes.set_title(title, loc="left", fontsize=10)
            axes.set_xticks(ks[::2], [f"{k:,}" for k in ks[::2]])
            axes.minorticks_off()
            axes.set_xlabel("K")
            axes.grid(color=GRID, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("largest error, units of 2⁻²⁴·(|A|·|B|)")
        panels[0].legend(frameon=False, fontsize=9)
        figure.savefig(picture, dpi=144, facecolor="white", metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
