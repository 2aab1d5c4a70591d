"""Translator from Python to JavaScript, for the page's copy of this package's kernels, problems and choice.

`program` starts from a few names and follows everything that they need; functions and classes are translated from their
syntax trees, constants from their values. Only the subset of Python that these modules use is supported; anything else
is an error with its file and line. A function that uses Python-only features (NumPy, files) becomes one that raises an
error when it is called, unless JavaScript provides an implementation.
"""
