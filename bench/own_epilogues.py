"""What an epilogue of your own costs a product: device time of whole products, in turns, relative to the plain one.

    python bench/own_epilogues.py [--engine wgpu|dawn] [--dtype float32] [--size 4096]

A number is a member of the uniform; an array of the result's shape is read in the store, and may cost the time that its
bytes take at the bandwidth of a copy, which stands beside it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import webmm
from webmm.dtypes import dtype_of
from webmm.measure import roofline


def main() -> None:
    """Print a line per epilogue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--size", type=int, default=4096)
    options = parser.parse_args()
    n, dtype = options.size, dtype_of(options.dtype).numpy
    with webmm.Device(engine=options.engine) as gpu:
        draw = np.random.default_rng(0).standard_normal
        a, b, y = (gpu.array(draw((n, n), np.float32).astype(dtype)) for _ in range(3))
        row = gpu.array(draw(n, np.float32).astype(dtype))
        cases: dict[str, Any] = {
            "relu": "relu",
            "leaky, a number": webmm.Epilogue("where(x > 0, x, slope * x)", slope=0.1),
            "silu": "silu",
            "scaled, a row": webmm.Epilogue("x * y", y=row),
            "gate, an array": webmm.Epilogue("silu(x) * y", y=y),
        }
        copied = y.nbytes / roofline.measure(gpu).gbytes / 1e3
        print(f"{n}³ {options.dtype} on {gpu.info}; {y.nbytes} bytes take {copied:.0f} µs at the bandwidth of a copy")

        def plain(a: webmm.Array, b: webmm.Array) -> webmm.Array:
            return webmm.matmul(a, b)

        for name, epilogue in cases.items():

            def fused(a: webmm.Array, b: webmm.Array, epilogue: Any = epilogue) -> webmm.Array:
                return webmm.matmul(a, b, activation=epilogue)

            print(f"{name:16} {webmm.benchmark(fused, a, b, against=plain)}")


if __name__ == "__main__":
    main()
