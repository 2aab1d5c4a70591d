"""The layers of the package: modules import only from lower layers; modules and classes stay small."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import webmm

PACKAGE = Path(webmm.__file__).parent
# Lowest first. Each layer is a module or a package; modules of one package may import each other.
LAYERS = (
    *("version", "errors", "text", "dtypes", "log", "config", "files", "params", "epilogues", "expressions", "records"),
    "problems",
    *("kernels", "render"),
    "engine",
    "choose",
    *("verify", "roofline", "cases"),
    "calls",
    "array_api",
    "dask",
    *("naga", "tint", "check", "plugins", "bench", "foreign", "debug", "selftest", "tuner", "learn"),
    "page",
    *("plot", "report", "cli"),
    "",  # webmm itself: exports public names, and passes objects of higher layers to lower ones
)
MAX_LINES, MAX_METHODS = 350, 25
EXCUSE = " is long because "  # in the sentence of a docstring that gives the reason

TREES = {path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


def layer(module: str) -> str:
    """Return the layer that contains webmm.`module`."""
    return module.partition(".")[0]


def name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): tree for path, tree in TREES.items()}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name (below webmm) of every import of webmm, including lazy and type-checking imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have full names"
            base = node.module or ""
            # A name imported from webmm itself is a layer or a public name.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "webmm" else [base]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "webmm":
                yield node.lineno, rest if layer(rest) in LAYERS else ""


def test_every_module_has_a_layer():
    assert {layer(name) for name in MODULES} == set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module):
    height = LAYERS.index(layer(module))
    upwards = [
        f"line {line}: webmm.{name}"
        for line, name in imports(MODULES[module])
        if layer(name) != layer(module) and LAYERS.index(layer(name)) >= height
    ]
    assert not upwards


def test_every_form_of_import_is_found():
    text = """
import webmm
import webmm.cli as x
from webmm import report, Array
from webmm.page.bundle import build
if TYPE_CHECKING:
    from webmm.engine import device
def lazy():
    import numpy, webmm.choose.tuned
"""
    expected = ["", "cli", "report", "", "page.bundle", "engine", "choose.tuned"]
    assert sorted(name for _, name in imports(ast.parse(text))) == sorted(expected)


def too_long() -> Iterator[str]:
    for path, tree in TREES.items():
        if len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) > MAX_LINES and not excused(tree):
            yield path.as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
                if len(methods) > MAX_METHODS and not excused(node):
                    yield f"{path.as_posix()}: {node.name}"


def excused(node: ast.Module | ast.ClassDef) -> bool:
    return EXCUSE in (ast.get_docstring(node) or "")


def test_modules_and_classes_stay_small():
    assert list(too_long()) == []
