"""The device that all GPU tests share. Without an adapter they fail; in CI a skipped test fails, too."""

import os

import pytest

from webmm import Device


@pytest.fixture(scope="session")
def device():
    with Device() as device:
        yield device


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which is no pass in CI: {call.excinfo.value}"
    return report
