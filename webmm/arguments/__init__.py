"""What the arguments of a call mean: dtypes, shapes, axes and layouts of its arrays, and what is wrong with them.

This package is pure and in the translated subset: the calls of JavaScript use its translation, and give the same
messages. An array is anything with a `shape`, a `dtype` and, on a device, `strides` and an `offset` in elements.
"""
