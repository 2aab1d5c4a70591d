"""Make the tuned records that webmm ships from benchmark results: the fastest kernel of each size.

    python bench/ship.py bench/results/h200-f32.json webmm/tuned/nvidia-h200.json

Several result files may be given; the last argument is the output file.
"""

from __future__ import annotations

from pathlib import Path

import click

from webmm.choose import tuned
from webmm.kernels import label_of
from webmm.measure.records import from_json, provenance, save, to_json


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.argument("output", type=click.Path(path_type=Path))
def main(results: tuple[Path, ...], output: Path) -> None:
    """Write the fastest records of RESULTS to OUTPUT."""
    best = tuned.fastest(record for path in results for record in from_json(path.read_text()))
    save(output, to_json(best, **provenance()))
    for record in best:
        print(f"{record.size} {record.dtype}: {label_of(record)}, {record.gflops:,.0f} GFLOP/s")


if __name__ == "__main__":
    main()
