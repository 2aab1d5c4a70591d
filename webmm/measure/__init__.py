"""Measuring: timing, tuning, self-tests, and the records of what was found."""

from webmm.lazy import submodules

__getattr__ = submodules(__name__)
