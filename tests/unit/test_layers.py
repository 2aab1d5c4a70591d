"""The layers of the package: modules import only from lower layers, without circles, and stay small, as classes do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import webmm

PACKAGE = Path(webmm.__file__).parent
SCRIPTS = PACKAGE.parent / "web" / "python"  # the runtime library of translated Python
# Lowest first. Each layer is a module or a package; modules of one package may import each other, but not in a circle.
LAYERS = (
    *("version", "lazy", "errors", "text", "dtypes", "log", "reading", "config", "files", "wgsl", "measure"),
    *(
        "wgsl.compilers",
        "wgsl.activations",
        "wgsl.params",
        "wgsl.library",
        "wgsl.compiler",
        "wgsl.grammar",
        "wgsl.terms",
        "wgsl.expressions",
        "wgsl.functions",
        "wgsl.links",
        "wgsl.own",
    ),
    *("wgsl.states", "wgsl.reductions", "wgsl.epilogues", "wgsl.templates", "measure.records"),
    *("arguments.arrays", "arguments.options", "arguments.quantized"),
    "problems",
    *("kernels", "hooks", "wgsl.subgroups", "wgsl.render", "wgsl.export", "wgsl.places"),
    "cut",
    "arguments",
    "engine",
    "choose",
    *("measure.verify", "measure.roofline", "measure.idle", "cases"),
    "calls",
    "einops",
    "dask",
    *("wgsl.naga", "wgsl.tint", "wgsl.check", "plugins"),
    *("measure.references", "measure.diagnosis", "measure.bench", "measure.benchmark"),
    *("debug", "foreign", "measure.selftest", "measure.tuner", "measure.first_use"),
    *("learn", "page"),
    *("report", "cli", "__main__"),
    "",  # webmm itself: exports public names, and passes objects of higher layers to lower ones
)
MAX_LINES, MAX_METHODS = 350, 25
EXCUSE = " is long because "  # in the sentence of a docstring that gives the reason

TREES = {path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


def layer(module: str) -> str:
    """Return the layer that contains webmm.`module`: in some rooms, modules belong to different layers."""
    room, _, rest = module.partition(".")
    inside = f"{room}.{rest.partition('.')[0]}"
    return inside if inside in LAYERS else room


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


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the modules, below webmm, of every import; `from package import name` is one of `package.name`, if any."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for top, _, name in (name.partition(".") for name in names):
            if top == "webmm":
                yield name if name in MODULES else name.rpartition(".")[0]


def imported_scripts(path: Path) -> Iterator[str]:
    """Yield the names of the modules beside a JavaScript module that it imports, also those imported for types only."""
    yield from re.findall(r"""(?:from|import) *\(? *["']\./([\w/.]+)["']""", path.read_text(encoding="utf-8"))


def circles(imported: dict[str, set[str]]) -> list[str]:
    """Return the modules in circles of imports, or between two, each with those of its imports that are there, too."""
    left = {name: names & imported.keys() - {name} for name, names in imported.items()}
    size = 0
    while size != len(left):  # drop what imports nothing that is left, and what nothing that is left imports
        size, used = len(left), set().union(*left.values())
        left = {name: names & left.keys() for name, names in left.items() if names & left.keys() and name in used}
    return [f"{name} -> {', '.join(sorted(names))}" for name, names in sorted(left.items())]


def test_modules_import_each_other_without_circles():
    assert circles({name: set(imported_modules(tree)) for name, tree in MODULES.items()}) == []


def test_scripts_import_each_other_without_circles():
    assert circles({path.name: set(imported_scripts(path)) for path in SCRIPTS.glob("*.js")}) == []


def test_every_circle_is_found(tmp_path):
    assert circles({"a": {"b", "x"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b -> c", "c -> b"]
    text = "from webmm import errors\nfrom webmm.engine.pool import Pool\nfrom webmm.kernels import base, KERNELS\n"
    text += "import webmm.log\ndef lazy():\n    import numpy, webmm\n"
    expected = ["", "engine.pool", "errors", "kernels", "kernels.base", "log"]
    assert sorted(imported_modules(ast.parse(text))) == expected
    script = tmp_path / "script.js"
    script.write_text('import {\n  x } from "./a.js";\nimport "./b.js";\n/** @type {import("./c.js").C} */\n')
    assert list(imported_scripts(script)) == ["a.js", "b.js", "c.js"]


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
