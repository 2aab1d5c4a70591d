"""The npm package: `web/webmm.js`, the modules that it imports, and the kernels, as one folder that `npm pack` takes.

Types come from the modules' own JSDoc: `npm run build` in `web/` has TypeScript write them beside.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from webmm.page import bundle, index
from webmm.version import __version__

ENTRY = "webmm.js"
PACKAGE = {
    "name": "webmm",
    "version": __version__,
    "description": "Matrix multiplication and other ops on the GPU, through WebGPU: in browsers and in node on Dawn",
    "license": "MIT",
    "type": "module",
    "exports": {".": {"types": "./types/webmm.d.ts", "default": "./webmm.js"}},
    "types": "./types/webmm.d.ts",
    "sideEffects": ["./bundle/templates/**"],
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
        (package / "package.json").write_text(json.dumps(PACKAGE, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(bundle.web_folder() / "README.md", package / "README.md")
    return sum(path.is_file() for path in out.rglob("*"))


def modules(folder: Path, kernels: str = "") -> list[str]:
    """Return the modules that users get, relative to `folder`: the entry, and all that it and `kernels` import."""
    needed = (name.removeprefix("../") for name in bundle.IMPORT.findall(kernels))
    return bundle.imported(folder, ENTRY, *needed)
