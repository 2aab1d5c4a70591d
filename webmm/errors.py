"""Everything that webmm raises on purpose.

::

    WebmmError
    ├── ProblemError (ValueError)      the operands: shapes, dtypes, sizes, unreadable files
    ├── ConfigError (ValueError)       the settings: unknown kernel, tunable, option or adapter name
    ├── UnsupportedError               this device lacks a limit or feature; the message names it
    │   └── NoAdapterError             no usable adapter at all
    ├── MemoryLimitError (MemoryError) the device is out of memory; nothing was written
    ├── DeviceLostError                the driver gave it up, for the reason told, or it was closed; its arrays are gone
    ├── FreedArrayError (ValueError)   an `Array` was used after `free()`
    └── ShaderError                    an engine refused a shader: kernel, parameters, numbered source
"""

from __future__ import annotations

import re


class WebmmError(Exception):
    """Base class of all errors that webmm raises on purpose."""


class ProblemError(WebmmError, ValueError):
    """The operands do not make a valid problem."""


class ConfigError(WebmmError, ValueError):
    """A setting is unknown or out of range."""


class UnsupportedError(WebmmError):
    """The device cannot run this; the message names the missing limit or feature."""


class NoAdapterError(UnsupportedError):
    """No adapter is available."""


class MemoryLimitError(WebmmError, MemoryError):
    """The device has no memory left for a buffer."""


class DeviceLostError(WebmmError):
    """The device was lost or closed; its arrays are gone with it."""


class FreedArrayError(WebmmError, ValueError):
    """The array's buffer was freed."""


class ShaderError(WebmmError):
    """An engine or validator refused a shader."""


def numbered(source: str) -> str:
    """Return `source` with line numbers, as compilers cite them."""
    return "\n".join(f"{i:4d} | {line}" for i, line in enumerate(source.splitlines(), 1))


def cited(message: str, source: str) -> str:
    """Return a compiler's message with the line of `source` that it cites first as line:column, if it cites one."""
    place = re.search(r":(\d+):\d+", message)
    if not place:
        return message
    number, lines = int(place.group(1)), source.split("\n")  # an end that is missing is cited behind the last newline
    return f"{message}\nline {number}: {lines[number - 1].strip()}"
