"""A static server for the page, on loopback: right types, and headers that keep the page to itself."""

from __future__ import annotations

import functools
import os
import sys
import threading
import webbrowser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from webmm.errors import ConfigError
from webmm.page.bundle import MARKER

HOST = "127.0.0.1"
LOOPBACK = (HOST, "localhost", "[::1]")  # what a URL may call this machine
DEFAULT_PORT = 8080

# Everything comes from the page's own folder; there is no inline script or style. web/index.html says the same in a
# <meta>, for hosts that send no headers.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
TYPES = {
    "": "application/octet-stream",
    ".deflate": "application/octet-stream",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".npy": "application/octet-stream",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".wgsl": "text/wgsl; charset=utf-8",
}


class Handler(SimpleHTTPRequestHandler):
    """Serves files of one folder, quietly."""

    extensions_map = TYPES  # not the system's, which may lack types that browsers insist on
    server_version = "webmm"

    protocol_version = "HTTP/1.1"  # a page is some fifty files: connections are kept between them
    disable_nagle_algorithm = True  # headers and body leave in two writes, of which the second would wait
    timeout = 30  # seconds that a connection may idle

    def end_headers(self) -> None:
        """Add the security headers; have browsers ask again each time, so that a rebuilt page shows."""
        self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def send_head(self) -> Any:
        """Open what is asked for, if it is a file of the folder and the URL was this server's own."""
        if not self._is_named():
            self.send_error(421, explain=f"This page answers at http://{self._names[0]}/ only")
        elif not self._is_served(self.translate_path(self.path)):
            self.send_error(404, "File not found")
        else:
            return super().send_head()
        return None

    def translate_path(self, path: str) -> str:
        """Return the file that the URL's `path` means; a folder has none but its index.html."""
        named = super().translate_path(path)
        return os.path.join(named, "index.html") if os.path.isdir(named) else named

    @property
    def _names(self) -> list[str]:
        """What a browser calls this server; it leaves port 80 out."""
        port = self.connection.getsockname()[1]
        return [host if port == 80 else f"{host}:{port}" for host in LOOPBACK]

    def _is_named(self) -> bool:
        """Tell whether the URL named loopback: another name may be a foreign page's, made to resolve here."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].lower() in self._names

    def _is_served(self, name: str) -> bool:
        """Tell whether `name` is a regular file of the folder, which no link leads out of."""
        try:
            file = Path(name).resolve(strict=True)
            return file.is_file() and file.is_relative_to(Path(self.directory).resolve())
        except (OSError, RuntimeError, ValueError):  # no such file; links in a circle; bytes that no name has
            return False

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal for what matters."""


class Server(ThreadingHTTPServer):
    """Serves each request in a thread; a browser that hangs up is no error."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what is an error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def server(folder: Path, port: int = DEFAULT_PORT) -> Server:
    """Return a server of `folder` bound to loopback, not yet running; port 0 takes a free one.

    Raises ConfigError where the folder holds no page, or the port cannot be had.
    """
    if not (folder / MARKER).is_file():
        raise ConfigError(f"{folder} holds no page; build one with: webmm bundle {folder}")
    try:
        return Server((HOST, port), functools.partial(Handler, directory=str(folder)))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {HOST}:{port}: {error}; choose another port") from error


def serve(folder: Path, port: int = DEFAULT_PORT, open_browser: bool = True) -> None:
    """Serve `folder` on loopback until interrupted; raises ConfigError as `server()` does."""
    with server(folder, port) as running:
        url = f"http://{HOST}:{running.server_address[1]}/"
        print(f"webmm: {url} (Ctrl-C stops)", flush=True)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print()
