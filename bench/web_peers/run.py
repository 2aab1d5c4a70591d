"""webmm.js compared with TensorFlow.js, ONNX Runtime Web and jax-js, in headless Chromium or in node on Dawn.

    npm ci --prefix bench/web_peers --ignore-scripts
    python bench/web_peers/run.py --host browser OUT
    VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json \\
        python bench/web_peers/run.py --host node --only squares,ops OUT

tasks.py defines the tasks, compare.js the measurement. Writes OUT/GROUP.json with `webmm.records/1` for each group, and
prints tables; in node, also writes OUT/host_time.json, the host time of webmm.js calls.
"""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
from tasks import groups

from webmm.measure.records import from_json, provenance, save, to_json
from webmm.page import bundle

HERE = Path(__file__).resolve().parent
CHROMIUM_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
]
LONGEST = 3600  # seconds


@click.command()
@click.option("--host", type=click.Choice(["browser", "node"]), default="browser", show_default=True)
@click.option("--only", help="Comma-separated groups: squares, ops, random; in node also host_time. Default: all.")
@click.option("--rounds", type=int, default=9, show_default=True, help="Samples of each library per task.")
@click.option("--warm-up", type=int, default=200, show_default=True, help="Milliseconds per library and task.")
@click.option("--batch-time", type=int, default=50, show_default=True, help="Minimum milliseconds per sample.")
@click.option("--libraries", help="Comma-separated; webmm must be among them. Default: all.")
@click.option("--page", type=click.Path(path_type=Path), help="A folder written by `webmm bundle`. Default: a new one.")
@click.option("--chromium", default="/usr/bin/chromium", show_default=True, help="The browser's executable.")
@click.option(
    "--adapter", default="swiftshader", show_default=True, help="The browser's WebGPU adapter; '' for its default."
)
@click.option("--toggles", default="", help="Dawn toggles of the node host, comma-separated.")
@click.option("--pack", is_flag=True, help="Only write the page and the tasks to OUTPUT, for use without Python.")
@click.argument("output", type=click.Path(path_type=Path))
def main(
    host: str,
    only: str | None,
    rounds: int,
    warm_up: int,
    batch_time: int,
    libraries: str | None,
    page: Path | None,
    chromium: str,
    adapter: str,
    toggles: str,
    pack: bool,
    output: Path,
) -> None:
    """Run the comparison and write its records to the folder OUTPUT."""
    output.mkdir(parents=True, exist_ok=True)
    if pack:
        bundle.build(output / "page")
        (output / "tasks.json").write_text(json.dumps(groups(host)))
        return
    if not (HERE / "node_modules").is_dir():
        raise click.ClickException(f"install the peers first: npm ci --prefix {HERE} --ignore-scripts")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "peers").symlink_to(HERE)
        if page:
            (folder / "page").symlink_to(page.resolve())
        else:
            bundle.build(folder / "page")
        tasks = {name: each for name, each in groups(host).items() if not only or name in only.split(",")}
        if host == "browser":
            flags = [*CHROMIUM_FLAGS, *([f"--use-webgpu-adapter={adapter}"] if adapter else [])]
            options = {"rounds": rounds, "warmUp": warm_up, "batchTime": batch_time, "seconds": LONGEST}
            for name, text in in_browser(folder, chromium, flags, tasks, {**options, "libraries": libraries or None}):
                save(output / f"{name}.json", to_json(from_json(text), **provenance()))
        else:
            options = {"rounds": rounds, "warm-up": warm_up, "batch-time": batch_time, "only": only}
            in_node(folder, output, tasks, {**options, "libraries": libraries, "toggles": toggles})


def in_browser(
    folder: Path, chromium: str, flags: list[str], tasks: dict[str, list[dict[str, Any]]], options: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Run all tasks in one page of one browser; yield the name and the records of each group."""
    from playwright.sync_api import sync_playwright

    handler = functools.partial(Handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        try:
            tab = browser.new_page()
            tab.on("console", lambda message: click.echo(message.text, err=True))
            tab.on("pageerror", lambda error: click.echo(str(error), err=True))
            tab.goto(f"http://127.0.0.1:{server.server_address[1]}/peers/index.html")
            tab.wait_for_function("typeof compareHere === 'function'")
            tab.set_default_timeout(LONGEST * 1e3)
            for name, each in tasks.items():
                result = tab.evaluate("([tasks, options]) => compareHere(tasks, options)", [each, options])
                click.echo(f"\n{result['table']}")
                yield name, result["document"]
        finally:
            browser.close()
            server.shutdown()


class Handler(SimpleHTTPRequestHandler):
    """Serves the page, the bench and the packages, without logging requests."""

    extensions_map = {  # noqa: RUF012
        "": "application/octet-stream",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript",
        ".json": "application/json",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".wgsl": "text/wgsl; charset=utf-8",
    }

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, so that the terminal shows the results only."""


def in_node(folder: Path, output: Path, tasks: dict[str, list[dict[str, Any]]], options: dict[str, Any]) -> None:
    """Run node.js, which prints and writes the results; environment variables select its driver."""
    (folder / "tasks.json").write_text(json.dumps(tasks))
    command = ["node", str(HERE / "node.js"), "--page", str(folder / "page"), "--tasks", str(folder / "tasks.json")]
    command += ["--output", str(output), "--command", provenance()["command"]]
    for name, value in options.items():
        if value:
            command += [f"--{name}", str(value)]
    done = subprocess.run(command, timeout=LONGEST, check=False)
    if done.returncode:
        raise click.ClickException(f"node ended with {done.returncode}")


if __name__ == "__main__":
    main()
