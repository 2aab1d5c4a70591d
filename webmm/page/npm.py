"""The npm package: `web/webmm.js`, the modules that it imports, and the kernels, as one folder that `npm pack` takes.

Types come from the modules' own JSDoc: `npm run build` in `web/` has TypeScript write them beside.
"""

from __future__ import annotations

import json
import shutil
from importlib.metadata import files
from pathlib import Path

from webmm.page import bundle, index
from webmm.version import __version__

ENTRIES = {".": "webmm", "./shaders": "shaders"}  # what users import, and the module that it is
PACKAGE = {
    "name": "webmm",
    "version": __version__,
    "description": "Matrix multiplication and other ops on the GPU, through WebGPU: in browsers and in node on Dawn",
    "license": "MIT",
    "type": "module",
    "exports": {
        path: {"types": f"./types/{name}.d.ts", "default": f"./entries/{name}.js"} for path, name in ENTRIES.items()
    },
    "types": "./types/webmm.d.ts",
    "sideEffects": ["./bundle/**", "./entries/**"],
    "keywords": ["webgpu", "wgsl", "gemm", "matmul", "gpu", "softmax", "quantization"],
}


def build(out: Path, *, force: bool = False) -> int:
    """Write the package to the folder `out`; return how many files it has. Raises ConfigError as `bundle.build()`."""
    with bundle.written(out, force) as package:
        bundle.write_kernels(package / "bundle")
        for name in modules(bundle.web_folder(), (package / "bundle" / "core.js").read_text(encoding="utf-8")):
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.web_folder() / name, package / name)
        bundle.write_index(package / bundle.MARKER, index.index())
        _write_entries(package)
        (package / "package.json").write_text(json.dumps(PACKAGE, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(bundle.web_folder() / "README.md", package / "README.md")
        shutil.copyfile(_licence(), package / "LICENSE")
    return sum(path.is_file() for path in out.rglob("*"))


def modules(folder: Path, kernels: str = "") -> list[str]:
    """Return the modules that users get, relative to `folder`: the entry, and all that it and `kernels` import."""
    needed = (name.removeprefix("../") for name in bundle.IMPORT.findall(kernels))
    return bundle.imported(folder, *(f"{name}.js" for name in ENTRIES.values()), *needed)


def _write_entries(package: Path) -> None:
    """Write what users import: the modules, with the bundle's files named one by one, so that bundlers find them."""
    bundled = package / "bundle"
    names = sorted(path.relative_to(bundled).as_posix() for path in bundled.rglob("*.js*"))
    modules = [f'  "{name}": () => import("./{name}"),' for name in names if name.endswith(".js")]
    files = [f'  "{name}": new URL("./{name}", import.meta.url),' for name in names if name.endswith(".json")]
    head = '// @ts-check\nimport { Bundle, packed } from "../bundle.js";\n\nBundle.source = packed({'
    (bundled / "files.js").write_text("\n".join([head, *modules, "}, {", *files, "});", ""]), encoding="utf-8")
    (package / "entries").mkdir()
    for name in ENTRIES.values():
        text = f'import "../bundle/files.js";\nexport * from "../{name}.js";\n'
        (package / "entries" / f"{name}.js").write_text(text, encoding="utf-8")


def _licence() -> Path:
    """Return the licence: a file of the installed package's metadata, or of the checkout."""
    beside = bundle.web_folder().parent / "LICENSE"
    if beside.is_file():
        return beside
    (found,) = (file for file in files("webmm") or [] if file.name == "LICENSE")
    return Path(str(found.locate()))
