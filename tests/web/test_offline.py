"""The page without a network; its service worker caches only the page's files, and nothing on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.web.conftest import FLAGS, ROOT, TIMEOUT, WEBGPU_FLAGS, chromium_path
from tests.web.page_steps import wait_text

HOST = "webmm.test"
CACHED = """async () => {
  const names = await caches.keys();
  const requests = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
  return requests.flat().map((request) => request.url);
}"""
WORKERS = "async () => (await navigator.serviceWorker.getRegistrations()).length"
OLD_WORKER = """async () => {
  await (await caches.open("webmm")).put("account?token=1", new Response("private"));
  await (await caches.open("another's")).put("theirs", new Response("theirs"));
  await navigator.serviceWorker.register("sw.js");
  for (let i = 0; i < 200 && (await navigator.serviceWorker.getRegistrations()).length > 0; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}"""


class Host(SimpleHTTPRequestHandler):
    """A host with the page in the folder /page/, and other programs next to it and inside that folder."""

    def do_GET(self) -> None:
        """Serve the page and the other programs."""
        name = urlsplit(self.path).path.removeprefix("/page/")
        if name in ("account", "notes", "/notes", "bundle/templates/notes"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"another program's")
        else:
            super().do_GET()

    def end_headers(self) -> None:
        """Forbid storing the account and the manifest."""
        if "account" in self.path or "manifest" in self.path:
            self.send_header("Cache-Control", "private, no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def offline_page(playwright, page_folder: Path, tmp_path: Path) -> Iterator[object]:
    """Return the loaded page, at a secure address other than loopback."""
    (tmp_path / "page").symlink_to(page_folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Host, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://{HOST}:{server.server_address[1]}"
        secure = [f"--host-resolver-rules=MAP {HOST} 127.0.0.1", f"--unsafely-treat-insecure-origin-as-secure={origin}"]
        whole = chromium_path(shell=False)  # the headless shell does not treat this address as secure
        browser = playwright.chromium.launch(executable_path=whole, args=[*FLAGS, *WEBGPU_FLAGS, *secure])
        page = browser.new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(f"{origin}/page/")
        page.wait_for_selector("body[data-ready]")
        wait_text(page, "#offline", "opens offline")
        yield page
        browser.close()
        server.shutdown()


def test_opens_offline(offline_page) -> None:
    offline_page.context.set_offline(True)
    for address in ("./", "./?shared=1"):
        offline_page.goto(offline_page.evaluate("(address) => new URL(address, location).href", address))
        offline_page.wait_for_selector("body[data-ready]")
        assert float(offline_page.inner_text("#hero-figure")) > 0


def test_only_files_of_the_page_are_cached(offline_page, page_folder: Path) -> None:
    others = [
        "account",
        "notes",
        "../notes",
        "bundle/templates/notes",
        "account?token=1",
        "style.css?token=1",
        "?token=1",
    ]
    offline_page.reload()  # through the service worker
    offline_page.wait_for_selector("body[data-ready]")
    texts = "(others) => Promise.all(others.map(async (name) => (await fetch(name)).text()))"
    for _ in range(2):
        answers = offline_page.evaluate(texts, others)
        assert answers[:4] == ["another program's"] * 4
    offline_page.wait_for_timeout(500)
    folder = offline_page.evaluate("new URL('.', location).href")
    kept = [address.removeprefix(folder) for address in offline_page.evaluate(CACHED)]
    files = {str(path.relative_to(page_folder)) for path in page_folder.rglob("*") if path.suffix != ".npy"}
    assert set(kept) <= files | {""}
    assert len(kept) == len(set(kept))
    assert any(name.startswith("bundle/templates/") for name in kept)
    assert {"", "main.js", "bundle/index.json"} <= set(kept)
    assert "manifest.webmanifest" not in kept, "the manifest must not be stored"


def test_no_worker_on_loopback(page) -> None:
    page.wait_for_timeout(1500)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.wait_for_timeout(500)
    assert page.evaluate(WORKERS) == 0
    assert page.evaluate(CACHED) == []


def test_a_worker_on_loopback_unregisters_itself(page, url: str) -> None:
    page.evaluate(OLD_WORKER)
    assert page.evaluate(WORKERS) == 0
    assert page.evaluate(CACHED) == [url + "theirs"]


def test_page_and_worker_define_loopback_alike() -> None:
    page, worker = (
        next(line for line in (ROOT / "web" / name).read_text().splitlines() if line.startswith("const LOOPBACK"))
        for name in ("main.js", "sw.js")
    )
    assert page.split(";")[0] == worker.split(";")[0]
