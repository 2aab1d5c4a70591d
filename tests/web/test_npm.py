"""The npm package: packed, installed in a separate project, used from node and through vite, with its types."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import ROOT, TIMEOUT
from webmm.page import npm

PAGE = (ROOT / "docs" / "javascript.md").read_text()
EXAMPLES = re.findall(r"```js\n(.*?)```\n\n```\n(.*?)```", PAGE, flags=re.DOTALL)
# Runs a program with `navigator.gpu`, as in a browser, and exits: Dawn would keep node alive.
RUN = """import { pathToFileURL } from "node:url";
const { create, globals } = await import(process.argv[2]);
Object.assign(globalThis, globals);
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]), userAgent: "node" } });
await import(pathToFileURL(process.argv[3]));
process.stdout.write("", () => process.exit(0));
"""
TYPED = """import { Device, DeviceArray, HostArray, Matrix, ProblemError, quantizeBlocks } from "webmm";
import { shader, stages } from "webmm/shaders";

const gpu: Device = await Device.open();
const host: HostArray = await gpu.matmul([[1, 2]], [[3], [4]], { activation: "gelu", outDtype: "float16" });
const matrix: Matrix = await gpu.matmul(Matrix.random(2, 3), Matrix.random(3, 4));
const x: DeviceArray = await gpu.array(new Float32Array(6), { shape: [2, 3] });
const there: DeviceArray = await gpu.matmul(x, x, { transposeB: true });
const rows: number[] = [...there.shape, host.rows, matrix.rows];
const sums: DeviceArray = await gpu.reduce(x, "sum", { axis: -1, keepdims: true });
await gpu.qmatmulWeights(sums, quantizeBlocks([[1]], { bits: 8 }));
// @ts-expect-error: no such option
await gpu.matmul(x, x, { transposedB: true });
// @ts-expect-error: no such activation
await gpu.matmul(x, x, { activation: "tanhh" });
// @ts-expect-error: no such operation
await gpu.reduce(x, "median");
const { dispatches, buffers } = await shader("tile_2d", { op: "gemm", m: 3, n: 4, k: 5, transposeB: true });
const text: string = dispatches[0].wgsl + buffers[0].name + (await stages("reduce"))[0].summary;
// @ts-expect-error: a product has no rows
await shader("tile_2d", { op: "gemm", m: 3, n: 4, k: 5, rows: 2 });
export { ProblemError, rows, text };
"""
BUNDLED = """import { Device } from "webmm";

const gpu = await Device.open();
const c = await gpu.matmul([[1, 2], [3, 4]], [[5, 6], [7, 8]], { bias: [1, 1], activation: "relu" });
const sums = await gpu.reduce(new Float32Array([1, 2, 3]), "sum");
document.body.textContent = JSON.stringify([c.toList(), sums.toList()]);
"""
STRICT = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext"]  # and no --skipLibCheck


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, node_modules: Path) -> Path:
    """A user's project, with the packed package installed."""
    folder: Path = tmp_path_factory.mktemp("npm")
    package, user = folder / "package", folder / "user"
    npm.build(package)
    settings = ["--project", str(ROOT / "web" / "tsconfig.npm.json"), "--outDir", str(package / "types")]
    _run("node", str(node_modules / "typescript" / "bin" / "tsc"), *settings, cwd=package)
    _run("npm", "pack", "--pack-destination", str(folder), cwd=package)
    (packed,) = folder.glob("webmm-*.tgz")
    installed = user / "node_modules" / "webmm"
    shutil.unpack_archive(packed, folder / "unpacked")
    shutil.copytree(folder / "unpacked" / "package", installed)
    (user / "package.json").write_text('{"type": "module"}')
    return user


def _run(*arguments: str, cwd: Path) -> None:
    environment = {**os.environ, "npm_config_offline": "true", "npm_config_update_notifier": "false"}
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("compiler", ["typescript", "typescript-5.8"])
def test_types_of_the_package(project: Path, node_modules: Path, compiler: str) -> None:
    """TypeScript 7 knows WebGPU; 5.8 needs its types beside the package."""
    (project / "typed.ts").write_text(TYPED)
    types = project / "node_modules" / "@webgpu" / "types"
    if compiler == "typescript-5.8" and not types.exists():
        shutil.copytree(node_modules / "@webgpu" / "types", types)
    more = ["--types", "@webgpu/types"] if types.exists() else []
    _run("node", str(node_modules / compiler / "bin" / "tsc"), *STRICT, *more, "typed.ts", cwd=project)


@pytest.mark.parametrize("i", range(len(EXAMPLES)))
def test_examples_print_the_output_of_the_docs(
    i: int, project: Path, node_modules: Path, node: Callable[..., Any]
) -> None:
    code, output = EXAMPLES[i]
    (project / "run.mjs").write_text(RUN)
    (project / f"example{i}.mjs").write_text(code)
    dawn = node_modules / "webgpu" / "index.js"
    done = node(str(project / "run.mjs"), str(dawn), str(project / f"example{i}.mjs"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_a_page_built_by_vite(project: Path, node_modules: Path, browser: Any) -> None:
    """Kernels and records are found where the bundler puts them, without manual copies or paths."""
    (project / "main.js").write_text(BUNDLED)
    (project / "index.html").write_text('<!doctype html><body><script type="module" src="main.js"></script></body>')
    settings = ["--base", "./", "--outDir", "built", "--logLevel", "warn"]
    _run("node", str(node_modules / "vite" / "bin" / "vite.js"), "build", *settings, cwd=project)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(project / "built"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        tab.wait_for_function("document.body.textContent.startsWith('[')", timeout=TIMEOUT)
        assert tab.text_content("body") == "[[[20,23],[44,51]],6]"
        server.shutdown()


def test_every_example_of_the_docs_has_output() -> None:
    assert PAGE.count("```js") == len(EXAMPLES) > 0


def test_the_package_has_no_dependencies_and_no_modules_of_the_page() -> None:
    assert not {"dependencies", "peerDependencies"} & npm.PACKAGE.keys()
    modules = npm.modules(ROOT / "web")
    assert {"webmm.js", "engine/device.js"} <= set(modules)
    assert not {"main.js", "dom.js", "charts.js"} & set(modules)
