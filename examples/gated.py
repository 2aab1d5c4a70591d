"""Two functions of one's own in the store of a product: a leaky ReLU, and the gate of a feed-forward layer."""

import numpy as np

import webmm


def leaky(slope: float) -> webmm.Epilogue:
    """Return a leaky ReLU; every slope is computed by the same shader."""
    return webmm.Epilogue("where(x > 0, x, slope * x)", slope=slope)


def gated(x: webmm.Array, gate: webmm.Array, up: webmm.Array) -> webmm.Array:
    """Return silu(x @ gate) * (x @ up), in two dispatches: the second product is read where the first is stored."""
    with webmm.matmul(x, up) as y:
        return webmm.matmul(x, gate, activation=webmm.Epilogue("silu(x) * y", y=y))


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x, w, up = (rng.standard_normal(shape, np.float32) for shape in ((8, 64), (64, 32), (64, 32)))
    with webmm.Device() as gpu:
        product = x @ w
        for slope in (0.1, 0.2):
            got, expected = (
                webmm.matmul(x, w, activation=leaky(slope), device=gpu),
                np.where(product > 0, 1, slope) * product,
            )
            print(f"slope {slope}: largest error {np.abs(got - expected).max():.0e}")
        gate = gated(*(gpu.array(each) for each in (x, w, up))).numpy()
        print(f"gate: largest error {np.abs(gate - product / (1 + np.exp(-product)) * (x @ up)).max():.0e}")
