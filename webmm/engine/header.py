"""How cffi parses wgpu.h for wgpu-py, which takes longer than a first product; see docs/engines.md."""

from __future__ import annotations

import copy
import gc
import re
import sys
from typing import Any


def load_backend() -> None:
    """Import wgpu-native's bindings, and make cffi parse only what a type needs afterwards.

    Meanwhile no garbage is collected: parsing the header makes many objects, nearly all of which stay.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        from wgpu.backends.wgpu_native import ffi
    finally:
        if collecting:
            gc.enable()
    parse_named(ffi)


def parse_named(ffi: Any) -> None:
    """Make `ffi`, and no other, parse a C type with the typedefs that it names instead of all.

    cffi repeats all typedefs before each new type, since they influence the parsing; those that a type does not name
    cannot (docs/engines.md). cffi before 1.15 and from 3 on, and an `ffi` of another kind, are left as they are.
    """
    parser: Any = getattr(ffi, "_parser", None)
    version = getattr(sys.modules.get("cffi"), "__version_info__", ())
    declared, whole = getattr(parser, "_declarations", None), getattr(parser, "_parse", None)
    if not (1, 15) <= version < (3,) or type(declared) is not dict or not whole or "_parse" in vars(parser):
        return

    def parse(source: str) -> Any:
        part = copy.copy(parser)
        named = {f"typedef {word}" for word in re.findall(r"[\w$]+", source)}
        part._declarations = {name: declared[name] for name in named & declared.keys()}
        try:
            return type(parser)._parse(part, source)
        except Exception:  # what the type lacks is reported as cffi does
            return whole(source)

    parser._parse = parse
