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
    └── ShaderError                    an engine rejected a shader: kernel, parameters, numbered source
"""

from __future__ import annotations

import re


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
    """An engine or validator rejected a shader."""


def numbered(source: str) -> str:
    """Return `source` with the line numbers that compilers cite."""
    return "\n".join(f"{i:4d} | {line}" for i, line in enumerate(source.splitlines(), 1))


def cited(message: str, source: str) -> str:
    """Return a compiler's message followed by the source line of its first line:column reference, if it has one."""
    place = re.search(r":(\d+):\d+", message)
    if not place:
        return message
    number, lines = int(place.group(1)), source.split("\n")  # an unexpected end is cited after the last newline
    return f"{message}\nline {number}: {lines[number - 1].strip()}"
