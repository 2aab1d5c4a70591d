"""`webmm report`: small, complete, without personal data; the leaderboard takes it, unless it is forged."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from webmm.cli import main
from webmm.dtypes import F32
from webmm.engine import adapters
from webmm.errors import ProblemError, UnsupportedError
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.measure.records import REPORT, from_json, to_json
from webmm.page import leaderboard
from webmm.report import evidence

FORMS = Path(__file__).parents[2] / ".github" / "ISSUE_TEMPLATE"
USER, HOST = "planted-user", "planted-host"


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Plant a user, a host and a home folder; make the report short, with a stage that fails and quotes all three."""
    home = tmp_path / USER
    home.mkdir()
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, USER)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(socket, "gethostname", lambda: f"{HOST}.example")
    monkeypatch.setattr(evidence, "SELFTEST", 0.01)
    monkeypatch.setattr(evidence, "LADDERS", {F32: (1, 1.0)})
    monkeypatch.setattr(evidence, "_sizes", lambda ceiling: [(64, 64, 64)])
    monkeypatch.setattr(evidence, "_kernels", lambda problem, device: [Tile2D(), Naive()])
    monkeypatch.setattr(
        Naive, "check", lambda *_: f"{home}/kernel.wgsl of {USER} on {HOST} is missing (C:\\Users\\{USER}\\x)"
    )
    return home


def written(output: Path, *options: str) -> tuple[str, str]:
    """Run `webmm report`; return the text of the report, and what the command printed."""
    done = CliRunner().invoke(main, ["report", "-o", str(output), "--budget", "20", *options])
    assert done.exit_code == 0, done.output
    return output.read_text(), done.output


@pytest.mark.usefixtures("plant")
def test_a_report_is_complete_small_and_impersonal(tmp_path):
    file = tmp_path / "report.json"
    text, printed = written(file)
    assert len(text.encode()) < leaderboard.MAX_BYTES
    assert [word for word in (USER, HOST, str(tmp_path)) if word in text] == []
    assert [str(f) for f in tmp_path.iterdir() if f.name.startswith(".report")] == []
    document = json.loads(text)
    assert document["report"] == REPORT
    assert {each["engine"] for each in document["adapters"]} <= {engine.name for engine in adapters.installed()}
    for each in document["engines"]:
        assert each["limits"]["max-buffer-size"] > 0
        assert each["selftest"]["tried"] > 0
        assert each["selftest"]["wrong"] == 0
        assert all(rate > 0 for name, rate in each["rates"].items() if name != "fragments")
        assert each["first_product"]["first_s"] >= each["first_product"]["second_s"] > 0
    failed = [r for r in from_json(text) if r.kernel == "naive"]
    assert [r.reason for r in failed] == ["…/kernel.wgsl of … on … is missing (…/x)"] * len(document["engines"])
    assert "contains" in printed
    assert "1 measurements of kernels by wgpu-py" in printed
    assert "address is not set" in printed
    refuses_forgeries(file, text)


def refuses_forgeries(file: Path, text: str) -> None:
    (best, *_) = leaderboard.read([file])
    assert (best.kernel, best.status) == ("tile_2d", "ok")
    records = from_json(text)
    place = records.index(best)
    for forged, words in (
        ({"gflops": best.gflops * 2}, "and not"),
        (
            {"gflops": best.gflops * 2, "median_us": best.median_us / 2, "best_us": None},
            "measured peak|different peaks",
        ),
        ({"max_error": None}, "not compared"),
    ):
        changed = [dataclasses.replace(r, **forged) if i == place else r for i, r in enumerate(records)]
        if "best_us" in forged:
            changed[place] = dataclasses.replace(changed[place], peak_fraction=1.5)
        with pytest.raises(ProblemError, match=words):
            leaderboard.checked(to_json(changed), "forged.json")


def test_a_report_that_is_too_large_is_not_written(tmp_path, plant, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_BYTES", 1000)
    monkeypatch.setattr(evidence, "_measured", lambda *_: iter(()))
    done = CliRunner().invoke(main, ["report", "-o", str(tmp_path / "report.json"), "--budget", "5"])
    assert (done.exit_code, done.output.strip().count("\n")) == (2, 0)
    assert "of at most 1,000" in done.output
    assert list(tmp_path.iterdir()) == [plant]


def test_a_device_that_fails_says_so(monkeypatch, device):
    def fails(device):
        raise UnsupportedError("no rates")

    monkeypatch.setattr(evidence, "first_product", lambda engine, info: {})
    monkeypatch.setattr(evidence, "SELFTEST", 0.001)
    monkeypatch.setattr(evidence.roofline, "measure", fails)
    with pytest.raises(UnsupportedError, match="no rates"):
        evidence.report(lambda: type(device)(), 5)


def test_the_form_is_filled_once_the_address_is_known(monkeypatch):
    monkeypatch.setattr(evidence, "ADDRESS", "https://example.org/webmm")
    link = evidence.form("NVIDIA H200 & more", "Vulkan 580")
    assert link.startswith("https://example.org/webmm/issues/new?template=new-gpu.yml&device=NVIDIA+H200+%26+more&")
    assert "&driver=Vulkan+580&version=" in link
    forms = {path.name: path.read_text() for path in FORMS.glob("*.yml") if path.name != "config.yml"}
    assert set(forms) == {evidence.FORM, "bug.yml", "wrong-result.yml", "slow-shape.yml"}
    for name, form in forms.items():
        assert [word for word in ("device", "driver", "version", "report") if f"id: {word}" not in form] == [], name
        assert "webmm report -o" in form
