"""Python to JavaScript: what the page knows of kernels, problems and choice is this package's own code, translated.

`program` walks from a few names to all that they need; functions and classes come from their syntax trees, constants
from their values. The subset is what these modules use, and no more: what is not known is an error with its file and
line. A function that uses what only Python has (NumPy, files) becomes one that says so when it is called, unless
JavaScript provides its own.
"""
