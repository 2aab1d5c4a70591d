"""The whole ladder and some tile sizes over several sizes, compared with NumPy and, if present, the vendor's library.

    python bench/ladder.py --sizes 256,512,1024 --budget 300 bench/results/my-gpu.json

Every kernel is checked before it is timed. Writes `webmm.records/1` and prints, for each size, the fraction of the
vendor's rate that is reached.
"""

from __future__ import annotations

from pathlib import Path

import click
import peers

from webmm import Device
from webmm.cases.gemm import Operands
from webmm.cli import parse_kernels, parse_sizes
from webmm.kernels import LADDER, label_of
from webmm.measure import roofline
from webmm.measure.bench import Bench
from webmm.measure.records import Record, provenance, save, to_json
from webmm.problems.gemm import gemm

# No set of tiles suits all sizes: large tiles reuse more data, small tiles fill the machine.
TILES = ",".join(
    [
        "pipelined:bm=32:bn=64:tm=4:tn=4",
        "pipelined:bk=8:unroll=8",
        "pipelined:prefetch=workgroup",
        "pipelined:bm=128:order=rows",
        "pipelined:bm=128:bk=8:tm=16:unroll=8:order=rows",
        "persistent:workgroups=396",
    ]
)


@click.command()
@click.option("--sizes", default="256,512,1024,1536,2048,3072,4096,6144,8192", show_default=True)
@click.option("--kernels", help="Default: the ladder, and further tiles of pipelined and persistent.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--adapter")
@click.option("--budget", type=float, default=240, show_default=True, help="Time budget in seconds.")
@click.argument("output", type=click.Path(path_type=Path))
def main(sizes: str, kernels: str | None, dtype: str, adapter: str | None, budget: float, output: Path) -> None:
    """Run the sweep and write its records to OUTPUT."""
    chosen = parse_kernels(kernels) if kernels else [*(stage() for stage in LADDER), *parse_kernels(TILES)]
    records: list[Record] = []
    with Device(adapter) as device:
        ceiling = roofline.measure(device)
        print(f"{device.info}: {ceiling.gflops:,.0f} GFLOP/s, {ceiling.gbytes:,.0f} GB/s", flush=True)
        bench = Bench(device, chosen, parse_sizes(sizes), dtype, budget, ceiling)
        for record in bench.run():
            records.append(record)
            if record.kernel == "cpu" and peers.available():  # NumPy comes first at each size
                problem = gemm(record.m, record.n, record.k, dtype=dtype)
                records.append(peers.cublas(problem, Operands(device, problem).checker, ceiling.gflops))
    save(output, to_json(records, **provenance()))
    for size in dict.fromkeys(record.size for record in records):
        print(summary([record for record in records if record.size == size]), flush=True)


def summary(records: list[Record]) -> str:
    """Return a line with the fastest kernel of a size, and its rate relative to each reference."""
    references = [r for r in records if r.kernel in ("cpu", "cublas") and r.gflops]
    best = max((r for r in records if r.gflops and r not in references), key=lambda r: r.gflops or 0, default=None)
    if best is None or best.gflops is None:
        return f"{records[0].size}: no kernel ran"
    shares = ", ".join(f"{best.gflops / (r.gflops or 1):.3f} × {r.kernel} ({r.gflops:,.0f})" for r in references)
    wrong = [label_of(r) for r in records if r.status not in ("ok", "skipped")]
    return f"{best.size}: {best.gflops:,.0f} GFLOP/s by {label_of(best)}, {shares}" + (
        f"; not ok: {wrong}" if wrong else ""
    )


if __name__ == "__main__":
    main()
