"""What to compute, apart from how: a module for each op, of the same name in every layer."""

OPS = ("gemm", "quantized", "weights", "reduce", "normalise", "elementwise")
