"""Normalisations: kernels that reduce a row and go over it again with the result."""
