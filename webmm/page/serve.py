"""A static web server for the page, on loopback, with correct MIME types and security headers."""

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
LOOPBACK = (HOST, "localhost", "[::1]")  # host names that a URL may have
DEFAULT_PORT = 8080

# Everything is loaded from the page's folder; there is no inline script or style. web/index.html has the same policy in
# a <meta> element, for hosts that send no headers.
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
    """Serves the files of one folder, without logging."""

    extensions_map = TYPES  # not the system's map, which may lack types that browsers require
    server_version = "webmm"

    protocol_version = "HTTP/1.1"  # the page has about fifty files: keep connections open
    disable_nagle_algorithm = True  # headers and body are two writes, and the second would be delayed
    timeout = 30  # seconds after which an idle connection is closed

    def end_headers(self) -> None:
        """Add the security headers, and make browsers revalidate files, so that they load a rebuilt page."""
        self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def send_head(self) -> Any:
        """Open the requested file, if it is in the folder and the request is for this server's host name."""
        if not self._is_for_loopback():
            self.send_error(421, explain=f"This page answers at http://{self._names[0]}/ only")
        elif not self._is_served(self.translate_path(self.path)):
            self.send_error(404, "File not found")
        else:
            return super().send_head()
        return None

    def translate_path(self, path: str) -> str:
        """Return the file for the URL's `path`; for a folder its index.html."""
        file = super().translate_path(path)
        return os.path.join(file, "index.html") if os.path.isdir(file) else file

    @property
    def _names(self) -> list[str]:
        """The values of the Host header for this server; browsers omit port 80."""
        port = self.connection.getsockname()[1]
        return [host if port == 80 else f"{host}:{port}" for host in LOOPBACK]

    def _is_for_loopback(self) -> bool:
        """Tell whether the Host header names loopback: another name may be a DNS rebinding attack."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].lower() in self._names

    def _is_served(self, name: str) -> bool:
        """Tell whether `name` is a regular file in the folder after all links are resolved."""
        try:
            file = Path(name).resolve(strict=True)
            return file.is_file() and file.is_relative_to(Path(self.directory).resolve())
        except (OSError, RuntimeError, ValueError):  # no such file; a cycle of links; invalid bytes in the name
            return False

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


class Server(ThreadingHTTPServer):
    """Serves each request in a thread; closed connections are not reported as errors."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors other than closed connections."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def server(folder: Path, port: int = DEFAULT_PORT) -> Server:
    """Return a server of `folder` bound to loopback, not yet running; port 0 selects a free port.

    Raises ConfigError if the folder has no page, or the port is not available.
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
