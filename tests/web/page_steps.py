"""Steps shared by the tests of the page: wait for text, show a panel, choose a file, save a download."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

MESSAGE = "#multiply-message"


def wait_text(page, selector: str, *texts: str) -> str:
    """Wait until the element contains one of `texts`; return its text."""
    page.wait_for_function(
        "([selector, texts]) => texts.some((text) => document.querySelector(selector)?.textContent.includes(text))",
        arg=[selector, list(texts)],
    )
    return page.inner_text(selector)


def show(page, name: str) -> None:
    page.click(f"#tab-{name}")
    page.wait_for_selector(f"#{name}:visible")


def upload(page, selector: str, name: str, data: bytes) -> None:
    page.set_input_files(selector, {"name": name, "mimeType": "application/octet-stream", "buffer": data})


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def saved(page, selector: str) -> bytes:
    with page.expect_download() as download:
        page.click(selector)
    return Path(download.value.path()).read_bytes()
