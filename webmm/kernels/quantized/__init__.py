"""Kernels of products of 8-bit integers."""
