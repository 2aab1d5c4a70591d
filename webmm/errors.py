"""All exceptions that webmm raises deliberately.

::

    WebmmError
    ├── ProblemError (ValueError)      invalid operands: shapes, dtypes, sizes, unreadable files
    ├── ConfigError (ValueError)       invalid settings: unknown kernel, tunable, option or adapter name
    ├── UnsupportedError               the device lacks a limit or feature; the message names it
    │   └── NoAdapterError             no usable adapter was found
    ├── MemoryLimitError (MemoryError) the device is out of memory; nothing was written
    ├── DeviceLostError                the device was lost (the message gives the reason) or closed, with all its arrays
    ├── FreedArrayError (ValueError)   an `Array` was used after `free()`
    └── ShaderError                    an engine rejected a shader: kernel, parameters, file, line, the compiler's words
"""

from __future__ import annotations


class WebmmError(Exception):
    """Base class of all exceptions that webmm raises deliberately."""


class ProblemError(WebmmError, ValueError):
    """The operands do not form a valid problem."""


class ConfigError(WebmmError, ValueError):
    """A setting is unknown or out of range."""


class UnsupportedError(WebmmError):
    """The device cannot run the operation; the message names the missing limit or feature."""


class NoAdapterError(UnsupportedError):
    """No adapter is available."""


class MemoryLimitError(WebmmError, MemoryError):
    """The device has too little free memory for a buffer."""


class DeviceLostError(WebmmError):
    """The device was lost or closed, and its arrays with it."""


class FreedArrayError(WebmmError, ValueError):
    """The array was used after its buffer was freed."""


class ShaderError(WebmmError):
    """An engine, a validator or a template rejected a shader, or its results are wrong.

    The first line says what is wrong, with the file and line if they are known; the others quote that line and the
    compiler. `wgsl` is the text that a compiler refused, `said` its message, `what` the beginning of the first line.
    """

    what = said = wgsl = ""
