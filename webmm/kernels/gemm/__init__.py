"""Kernels of float matrix products."""
