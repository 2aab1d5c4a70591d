"""The device that all GPU tests share. Without an adapter they fail; in CI a skipped test fails, too."""

import os
from pathlib import Path

import pytest

from webmm import Device


@pytest.fixture(scope="session")
def device():
    with Device() as device:
        yield device


@pytest.fixture(scope="session")
def swiftshader():
    """Return an environment with Chromium's software driver beside the others: Dawn refuses that of Mesa 22."""
    icd = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
    assert icd.is_file(), f"Dawn is tested on Chromium's software driver, {icd}: tools/ensure-browser installs it"
    others = [str(path) for path in Path("/usr/share/vulkan/icd.d").glob("*.json")]
    return {**os.environ, "VK_DRIVER_FILES": ":".join([*others, str(icd)])}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which is no pass in CI: {call.excinfo.value}"
    return report
