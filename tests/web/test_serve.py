"""The server's headers, and what it keeps to itself."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

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


@pytest.mark.parametrize("path", ["bundle/", "../pyproject.toml", "%2e%2e/%2e%2e/etc/passwd", "nothing"])
def test_nothing_else_is_served(url: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url + path)


def test_the_page_states_the_same_policy(page_folder: Path) -> None:
    html = (page_folder / "index.html").read_text()
    for rule in serve.CONTENT_SECURITY_POLICY.split("; "):
        assert rule in html or rule.startswith("frame-ancestors")  # which a <meta> cannot state


def test_what_cannot_be_served(tmp_path: Path, page_folder: Path) -> None:
    with pytest.raises(ConfigError, match="holds no page"):
        serve.server(tmp_path, 0)
    with serve.server(page_folder, 0) as running, pytest.raises(ConfigError, match="choose another port"):
        serve.server(page_folder, running.server_address[1])


def test_the_service_worker_keeps_the_whole_page(page_folder: Path) -> None:
    text = (page_folder / "sw.js").read_text()
    shell = set(re.findall(r'"([^"]+)"', text[text.index("const SHELL") : text.index("];")]))
    files = {str(path.relative_to(page_folder)) for path in page_folder.rglob("*") if path.is_file()}
    needed = {name for name in files if not name.endswith((".wgsl", ".npy")) and name != "sw.js"}
    assert shell - {"./"} == needed - {"index.html"}
