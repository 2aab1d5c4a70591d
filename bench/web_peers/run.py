"""webmm.js beside TensorFlow.js, ONNX Runtime Web and jax-js, in headless Chromium or in node on Dawn.

    npm ci --prefix bench/web_peers --ignore-scripts
    python bench/web_peers/run.py --host browser records.json
    VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json \\
        python bench/web_peers/run.py --host node --sizes 64 records.json

What is measured, and how, is in compare.js. Writes `webmm.records/1` and prints a table.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

from webmm.page import bundle
from webmm.records import from_json, save

HERE = Path(__file__).resolve().parent
SIZES = {"browser": "256,512,1024,333x257x129", "node": "512,1024,2048,4096,333x257x129"}
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
@click.option("--host", type=click.Choice(list(SIZES)), default="browser", show_default=True)
@click.option("--sizes", help="Comma-separated, M×N×K or one length. Default: " + "; ".join(map(str, SIZES.items())))
@click.option("--rounds", type=int, default=9, show_default=True, help="Samples of each library per size.")
@click.option("--libraries", help="Comma-separated; webmm must be among them. Default: all.")
@click.option("--page", type=click.Path(path_type=Path), help="A folder written by `webmm bundle`. Default: a new one.")
@click.option("--chromium", default="/usr/bin/chromium", show_default=True, help="The browser's executable.")
@click.option(
    "--adapter", default="swiftshader", show_default=True, help="The browser's WebGPU adapter; '' for its own."
)
@click.option("--toggles", default="", help="Dawn toggles of the node host, comma-separated.")
@click.option("--pack", is_flag=True, help="Only write to OUTPUT what the comparison needs of the page.")
@click.argument("output", type=click.Path(path_type=Path))
def main(
    host: str,
    sizes: str | None,
    rounds: int,
    libraries: str | None,
    page: Path | None,
    chromium: str,
    adapter: str,
    toggles: str,
    pack: bool,
    output: Path,
) -> None:
    """Run the comparison and write its records to OUTPUT."""
    if pack:
        write_chosen(output)
        return
    if not (HERE / "node_modules").is_dir():
        raise click.ClickException(f"install the peers first: npm ci --prefix {HERE} --ignore-scripts")
    options: dict[str, Any] = {"sizes": sizes or SIZES[host], "rounds": rounds, "libraries": libraries}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "peers").symlink_to(HERE)
        if page:
            (folder / "page").symlink_to(page.resolve())
        else:
            bundle.build(folder / "page")
        if host == "browser":
            flags = [*CHROMIUM_FLAGS, *([f"--use-webgpu-adapter={adapter}"] if adapter else [])]
            text, table = in_browser(folder, chromium, flags, options)
        else:
            text, table = in_node(folder, {**options, "toggles": toggles})
    from_json(text)  # raises where it is not of our schema
    save(output, text)
    click.echo(table)


def write_chosen(output: Path) -> None:
    """Write the module and, of the bundle, what it runs products of floats by."""
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "page"
        bundle.build(whole)
        for name in ("common", "epilogues", "gemm"):
            shutil.copytree(whole / "bundle/templates" / name, output / "bundle/templates" / name)
        for name in ("core.js", "index.json"):
            shutil.copy(whole / "bundle" / name, output / "bundle")
        for folder in (".", "calls", "engine"):
            (output / folder).mkdir(exist_ok=True)
            for script in (whole / folder).glob("*.js"):
                shutil.copy(script, output / folder)


def in_browser(folder: Path, chromium: str, flags: list[str], options: dict[str, Any]) -> tuple[str, str]:
    """Return records and table of one page in one browser."""
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
            result = tab.evaluate("options => compareHere(options)", options)
        finally:
            browser.close()
            server.shutdown()
    return result["document"], result["table"]


class Handler(SimpleHTTPRequestHandler):
    """Serves the page, the bench and the packages, quietly."""

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
        """Keep the terminal for the results."""


def in_node(folder: Path, options: dict[str, Any]) -> tuple[str, str]:
    """Return records and table of a node process; which driver it finds is up to the environment."""
    records = folder / "records.json"
    command = ["node", str(HERE / "node.js"), "--page", str(folder / "page"), "--output", str(records)]
    for name, value in options.items():
        if value:
            command += [f"--{name}", str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LONGEST, check=False)
    if done.returncode:
        raise click.ClickException(f"node ended with {done.returncode}")
    return records.read_text(encoding="utf-8"), done.stdout.rstrip()


if __name__ == "__main__":
    main()
