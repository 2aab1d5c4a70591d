"""The reduction kernels."""
