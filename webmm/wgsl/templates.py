"""The Jinja environment of the shaders' templates."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import string
import sys
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from webmm.errors import ConfigError
from webmm.files import write_atomically
from webmm.wgsl import reductions
from webmm.wgsl.functions import OWN

OPTIONS: dict[str, Any] = {
    **{"undefined": jinja2.StrictUndefined, "autoescape": False},
    **{"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True},
}


# The roots of absolute paths, by what precedes the first slash.
ROOTS = {"": "/"} if os.name == "posix" else {f"{drive}:": f"{drive}:/" for drive in string.ascii_uppercase}


class _Prefixes(jinja2.PrefixLoader):
    """Jinja's, except that templates keep their whole names, from which those that they include are found."""

    def load(self, environment: jinja2.Environment, name: str, globals: Any = None) -> jinja2.Template:
        """Load the template of this name."""
        return jinja2.BaseLoader.load(self, environment, name, globals)


def _own_epilogue(name: str) -> str | None:
    """Return the text of an epilogue of one's own, NAME.wgsl, or its statements, NAME/WIDTH.wgsl; None if unknown."""
    own_name, _, width = name.removesuffix(".wgsl").partition("/")
    own = OWN.get(own_name)
    if own is None:
        return None
    if width:
        return f"{{% raw %}}{own.statements(int(width))}{{% endraw %}}"
    functions = "".join(f'{{% include "elementwise/{file}.wgsl" %}}\n\n' for file in own.included)
    return f"{functions}{{% raw %}}{own.text}{{% endraw %}}"


def _own_reduction(name: str) -> str | None:
    """Return the template of a declared reduction, operations/NAME.wgsl; None if there is none."""
    own = reductions.OWN.get(name.removeprefix("operations/").removesuffix(".wgsl"))
    return own.template if own else None


def _loader(folder: Path) -> jinja2.BaseLoader:
    """Return the loader of templates in `folder`, of plugins' by their absolute paths, and of epilogues."""
    files: dict[str, jinja2.BaseLoader] = {prefix: jinja2.FileSystemLoader(root) for prefix, root in ROOTS.items()}
    own, built_in = jinja2.FunctionLoader(_own_epilogue), jinja2.FileSystemLoader(folder / "epilogues")
    files["epilogues"] = jinja2.ChoiceLoader([own, built_in])
    reduce = jinja2.FileSystemLoader(folder / "reduce")
    files["reduce"] = jinja2.ChoiceLoader([jinja2.FunctionLoader(_own_reduction), reduce])
    return jinja2.ChoiceLoader([_Prefixes(files), jinja2.FileSystemLoader(folder)])


class TemplateCode(BytecodeCache):
    """Keeps the code that Jinja makes of templates in `folder` where Python keeps that of modules: in `__pycache__`.

    As for modules, PYTHONDONTWRITEBYTECODE and PYTHONPYCACHEPREFIX apply, and a folder that cannot be written is left
    as it is. The code of plugins' templates is not kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of the code; "" if it is not kept."""
        if filename is None or not Path(filename).is_relative_to(self.folder) or not sys.implementation.cache_tag:
            return ""
        return importlib.util.cache_from_source(f"{filename}.py")  # such as __pycache__/naive.wgsl.cpython-313.pyc

    def get_bucket(self, environment: jinja2.Environment, name: str, filename: str | None, source: str) -> Bucket:
        """Return the code, if there is some that was made from the same source at the same place."""
        made_from = f"{jinja2.__version__} {OPTIONS} {filename} {source}"
        bucket = Bucket(environment, self.get_cache_key(name, filename), self.get_source_checksum(made_from))
        self.load_bytecode(bucket)
        return bucket

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the code, if it is there and of the same source."""
        with contextlib.suppress(OSError):
            data = Path(bucket.key).read_bytes() if bucket.key else b""
            try:
                bucket.bytecode_from_string(data)
            except Exception:  # a damaged file: it is written again
                bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the code, at once or not at all."""
        if not bucket.key or sys.dont_write_bytecode:
            return
        path = Path(bucket.key)
        with contextlib.suppress(OSError, ConfigError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda file: file.write(bucket.bytecode_to_string()))


class Environment(jinja2.Environment):
    """The environment of the templates in `folder`, in which a plugin's template can include files of its own folder.

    An undefined name is an error.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(loader=_loader(folder), bytecode_cache=TemplateCode(folder), **OPTIONS)

    def join_path(self, template: str, parent: str) -> str:
        """Return the name of `template` as `parent` includes it."""
        if not os.path.isabs(parent):  # webmm's own, most of all calls
            return template
        sibling = Path(os.path.normpath(Path(parent).parent / template))
        return sibling.as_posix() if sibling.is_file() else template
