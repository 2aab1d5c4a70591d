"""The normalisation kernels: they reduce a row, then scale it by the result."""
