"""`webmm serve`: headers and policy of its answers; paths, links and host names that it refuses."""

from __future__ import annotations

import http.client
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from webmm.errors import ConfigError
from webmm.page import serve


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "text/html"),
        ("style.css", "text/css"),
        ("webmm.js", "text/javascript"),
        ("bundle/index.json", "application/json"),
        ("icon.svg", "image/svg+xml"),
        ("manifest.webmanifest", "application/manifest+json"),
    ],
)
def test_types_and_policy(url: str, path: str, kind: str) -> None:
    with urllib.request.urlopen(url + path) as response:
        assert response.headers["Content-Type"].split(";")[0] == kind
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"


HOSTILE = [
    "bundle/",
    "bundle",
    "style.css/",
    "../pyproject.toml",
    "%2e%2e/%2e%2e/etc/passwd",
    "nothing",
    "%00",
    "style.css%00",
    "%ed%a0%80",  # half of a surrogate pair
    "%ff%fe",
    "x" * 5000,
]


@pytest.mark.parametrize("path", HOSTILE)
def test_other_paths_are_not_served(url: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url + path)
    assert capsys.readouterr().err == ""


@pytest.fixture
def linked(page_folder: Path, tmp_path: Path) -> Iterator[str]:
    """Serve a page whose folder contains links and a pipe; return its address."""
    folder = tmp_path / "page"
    shutil.copytree(page_folder, folder, ignore=lambda *_: ["templates", "cases"])
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "circle.txt").symlink_to(folder / "circle.txt")
    (folder / "alias.css").symlink_to("style.css")
    (folder / "sub").mkdir()
    (folder / "sub" / "index.html").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(folder / "pipe")
    with serve.server(folder, 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize("path", ["out.txt", "up/secret.txt", "up/", "sub/", "circle.txt", "pipe"])
def test_links_out_of_the_folder_are_not_followed(linked: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with urllib.request.urlopen(linked + "alias.css") as response:
        assert response.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(linked + path, timeout=20)
    assert capsys.readouterr().err == ""


def status(url: str, *hosts: str) -> int:
    """Return the response status of a request with these Host headers."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=20)
    connection.putrequest("GET", "/", skip_host=True)
    for host in hosts:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse().status
    connection.close()
    return answer


def test_other_host_names_are_refused(url: str) -> None:
    port = urllib.parse.urlsplit(url).port
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert status(url, f"{name}:{port}") == 200
    for host in (
        "attacker.example",
        f"attacker.example:{port}",
        "127.0.0.1",
        "localhost:1",
        f"localhost.attacker.example:{port}",
        "",
    ):
        assert status(url, host) == 421, host
    assert status(url) == 421
    assert status(url, f"localhost:{port}", f"attacker.example:{port}") == 421


def test_the_page_states_the_same_policy(page_folder: Path) -> None:
    html = (page_folder / "index.html").read_text()
    for rule in serve.CONTENT_SECURITY_POLICY.split("; "):
        assert rule in html or rule.startswith("frame-ancestors")  # not allowed in <meta>


def test_folders_and_ports_that_cannot_be_served(tmp_path: Path, page_folder: Path) -> None:
    with pytest.raises(ConfigError, match="holds no page"):
        serve.server(tmp_path, 0)
    with serve.server(page_folder, 0) as running, pytest.raises(ConfigError, match="choose another port"):
        serve.server(page_folder, running.server_address[1])
