"""Problems: what to compute, independent of the kernel. Each op has a module of the same name in every layer.

The package is in the translated subset (docs/page.md).
"""

OPS = ("gemm", "quantized", "weights", "reduce", "normalise", "attention", "elementwise")
DEFAULT_OP = OPS[0]  # of commands without --op
