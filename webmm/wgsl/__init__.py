"""Shaders as text: templates and what they are given, user code in them, and the tools that check them."""

from webmm.lazy import submodules

__getattr__ = submodules(__name__)
