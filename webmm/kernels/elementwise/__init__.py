"""Kernels of elementwise functions."""
