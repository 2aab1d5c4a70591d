"""A program that uses webmm: `mypy --strict` and pyright accept it beside the installed wheel."""

import numpy as np

import webmm


def program() -> float:
    """Call what most programs call."""
    with webmm.Device() as gpu:
        x = gpu.array(np.ones((3, 4), np.float32))
        y: webmm.Array = x @ x.T
        y[0] = 2.0
        total: webmm.Array = (y * 2 + 1).sum(axis=1)
        row: webmm.Array = x[0, 1:]
        shape: tuple[int, ...] = row.shape
        for each in x:
            print(each.T.reshape(-1).copy().numpy().dtype, len(each), str(each))
        product = webmm.matmul(x, x.T, activation="gelu", device=gpu)
        own = webmm.Epilogue("where(x > 0, x, slope * x)", slope=0.1)
        webmm.map(product, own)
        webmm.elementwise("exp(x) * s", x=x, s=2.0)
        webmm.reduce(x, webmm.Reduction(map="x * x", combine="a + b", identity=0.0), axis=1)
        with webmm.profile(gpu) as found:
            webmm.softmax(x)
        found.save("trace.json")
        print(shape, webmm.benchmark(lambda: x @ x.T).wall.median_us)
        webmm.config.set(tune="off")
        return float(total[0])


try:
    print(program())
except webmm.UnsupportedError as error:
    print(error)
