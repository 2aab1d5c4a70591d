"""Reductions of two arrays: dot products of rows, and the cosine of the angle between them, with a state of three."""

from __future__ import annotations

import numpy as np

import webmm

dot = webmm.Reduction(map="x * y", combine="a + b", identity=0.0)

cosine = webmm.Reduction(
    map={"xy": "x * y", "xx": "x * x", "yy": "y * y"},
    combine={name: f"a.{name} + b.{name}" for name in ("xy", "xx", "yy")},
    identity={"xy": 0.0, "xx": 0.0, "yy": 0.0},
    finish="xy / (sqrt(xx) * sqrt(yy))",
)


def main() -> None:
    """Compare each row of a matrix with one vector in a single pass, and find the most similar one."""
    rows = np.random.default_rng(0).standard_normal((512, 768)).astype(np.float32)
    vector = rows[37] + np.float32(0.5)
    with webmm.Device() as gpu:
        x, y = gpu.array(rows), gpu.array(vector)
        similar = webmm.reduce(x, cosine, axis=1, y=y)
        print("most similar:", webmm.reduce(similar, "argmax").numpy())
        lengths = np.linalg.norm(rows.astype(float), axis=1) * np.linalg.norm(vector.astype(float))
        print("right:", np.allclose(similar.numpy(), rows.astype(float) @ vector / lengths, atol=1e-5))
        products = webmm.reduce(x, dot, axis=1, y=y).numpy()
        print("dot products right:", np.allclose(products, rows.astype(float) @ vector, rtol=1e-5, atol=1e-3))


if __name__ == "__main__":
    main()
