"""The built page, served on loopback, in a real browser; every page is checked for errors and foreign requests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from webmm.page import serve

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WEBGPU_FLAGS = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
TIMEOUT = 90_000  # milliseconds: the software adapter runs on two shared cores


def missing(what: str) -> None:
    """Fail in CI, where no test may be skipped; otherwise skip."""
    message = f"{what} is not installed; see tests/web/README.md"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def chromium_path(shell: bool = True) -> str:
    """Return the path of Chromium; by default of the one without a window, if it is there: a fifth less CPU time."""
    named = os.environ.get("WEBMM_CHROMIUM")
    names = ("chromium-headless-shell",) * shell + ("chromium", "chromium-browser", "google-chrome")
    found = named or next(filter(None, map(shutil.which, names)), None)
    if not found:
        missing("Chromium")
    return str(found)


@pytest.fixture(scope="session")
def quick_page(page_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built page, with measurements a tenth as long: tests judge no times, and each page opens with one."""
    folder = shutil.copytree(page_folder, tmp_path_factory.mktemp("quick") / "page")
    core = folder / "bundle" / "core.js"
    text, count = re.subn(r"\b(WARM_UP|SAMPLE_TIME)=\.", r"\1=.0", core.read_text())
    assert count == 2
    core.write_text(text)
    return folder


@pytest.fixture(scope="session")
def url(quick_page: Path) -> Iterator[str]:
    with serve.server(quick_page, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="module")
def playwright():
    """Playwright, per module: its event loop occupies this thread until it is stopped."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright")
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright):
    running = playwright.chromium.launch(executable_path=chromium_path(), args=[*FLAGS, *WEBGPU_FLAGS])
    yield running
    running.close()


class Watch:
    """The error messages of a page, and its requests to other hosts, until `detach()`."""

    def __init__(self, url: str, page) -> None:
        self.url, self.page = url, page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self._listeners = {
            "console": lambda m: self.errors.append(m.text) if m.type == "error" else None,
            "pageerror": lambda error: self.errors.append(str(error)),
            "request": lambda request: self._asked(request.url),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def _asked(self, address: str) -> None:
        if not address.startswith((self.url, "blob:", "data:")):
            self.foreign.append(address)

    def detach(self) -> None:
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)


class Kept:
    """A tab that tests of a module have one after the other: a new context costs a second of CPU, as its processes do.

    Nothing of a test is left for the next: the tab is emptied, with its storage, routes and size.
    """

    def __init__(self, browser) -> None:
        self.browser, self.page = browser, None

    def take(self):
        """Return the tab, empty, or a new one if it was closed."""
        if self.page is None or self.page.is_closed():
            context = self.browser.new_context(accept_downloads=True)
            context.set_default_timeout(TIMEOUT)
            self.page = context.new_page()
        self.page.set_viewport_size({"width": 1280, "height": 720})
        return self.page

    def give_back(self, url: str) -> None:
        """Empty the tab."""
        if self.page is None or self.page.is_closed():
            return
        if self.page.url.startswith(url):
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.page.emulate_media(color_scheme="null", reduced_motion="null", forced_colors="null", media="null")
        self.page.context.clear_permissions()
        self.page.context.clear_cookies()
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.goto("about:blank")


@pytest.fixture(scope="module")
def kept(browser) -> Kept:
    return Kept(browser)


@pytest.fixture
def open_page(browser, kept, url) -> Iterator[Callable[..., object]]:
    """Open the page, in a new context if it has options or is not the first; after the test, assert no errors and no
    requests to other hosts.
    """
    contexts, watches = [], []

    def opened(fragment: str = "", wait: bool = True, script: str = "", in_browser=None, **options):
        if options or script or in_browser or watches:
            context = (in_browser or browser).new_context(accept_downloads=True, **options)
            context.set_default_timeout(TIMEOUT)
            if script:
                context.add_init_script(script)
            page = context.new_page()
            contexts.append(context)
        else:
            page = kept.take()
        watches.append(Watch(url, page))
        page.goto(url + fragment)
        if wait:
            page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    if watches:
        kept.give_back(url)
    for watch in watches:
        watch.detach()
        assert watch.errors == []
        assert watch.foreign == []


@pytest.fixture
def page(open_page):
    return open_page()


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The development tools of web/package.json; installed by tests/web/prepare."""
    folder = ROOT / "web" / "node_modules"
    if not (folder / "axe-core").is_dir() or not shutil.which("node"):
        missing("node, or the packages of web/package.json,")
    return folder


@pytest.fixture(scope="session")
def node(node_modules: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run node on Chromium's software Vulkan driver, or on the one that WEBMM_VULKAN names."""

    def run(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
        software = next(Path("/usr/lib").glob("chromium*/vk_swiftshader_icd.json"), None)
        driver = os.environ.get("WEBMM_VULKAN") or software
        if driver is None:
            missing("Chromium's software Vulkan driver")
        environment = {**os.environ, "VK_DRIVER_FILES": str(driver)}
        return subprocess.run(
            ["node", *arguments], capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )

    return run
