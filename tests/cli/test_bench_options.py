"""Options of `webmm bench`: layouts, batches, epilogues, clocks, comparison with an earlier run, ablation."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Cli
from tests.sampled import sampled
from webmm import Device
from webmm.cases import op_of
from webmm.choose import tuned
from webmm.cli import main
from webmm.measure.bench import Bench
from webmm.measure.records import from_json, to_json

ONE = ("bench", "--sizes", "32", "--kernels", "naive", "--budget", "60")


def test_a_batch_of_transposed_matrices(webmm: Cli, tmp_path: Path) -> None:
    done = webmm("bench", "--sizes", "24x40x33@3", "--layout", "tt", "--kernels", "tile_2d", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert "24×40×33@3 tt float32" in done.stdout
    assert "A @ B, wall clock of a call" in done.stdout
    _, record = from_json((tmp_path / "r.json").read_text())
    assert (record.status, record.batch, record.layout) == ("ok", 3, "tt")
    assert record.max_error is not None
    assert record.error_bound is not None
    assert record.max_error <= record.error_bound


@pytest.mark.parametrize(("name", "missing"), [("torch", "torch"), ("onnxruntime", "onnxruntime onnx")])
def test_a_reference_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, name: str, missing: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(main, [*ONE, "--reference", name])
    assert done.exit_code == 2
    assert f"to install it: pip install {missing}\n" in done.output


def test_a_stage_for_short_rows_is_timed(webmm: Cli, tmp_path: Path) -> None:
    """It takes no cube, on which a stage's rate is estimated."""
    done = webmm("bench", "--op", "reduce:sum", "--sizes", "64x16", "--kernels", "row_tiles", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    _, record = from_json((tmp_path / "r.json").read_text())
    assert (record.kernel, record.status) == ("row_tiles", "ok")


@pytest.mark.parametrize(
    ("options", "variant"),
    sampled(
        [
            (("--bias", "column"), "bias-column"),
            (("--bias", "row", "--activation", "gelu"), "bias-row+gelu"),
            (("--out-dtype", "float32"), ""),
            (("--activation", "silu", "--out-dtype", "float16"), "silu+to-float16"),
        ],
        first=1,
    ),
)
def test_epilogues_are_computed_checked_and_printed(
    webmm: Cli, tmp_path: Path, options: tuple[str, ...], variant: str
) -> None:
    done = webmm("bench", "--sizes", "24x40x33@2", "--kernels", "naive,tile_2d", "--json", "r.json", *options)
    assert done.returncode == 0, done.stderr
    assert f"24×40×33@2 float32 {variant}".strip() in done.stdout
    assert "A @ B, wall clock of a call" in done.stdout
    numpy, *records = from_json((tmp_path / "r.json").read_text())
    for record in records:
        assert (record.status, record.variant) == ("ok", variant)
        assert record.max_error is not None
        assert record.error_bound is not None
        assert 0 < record.max_error <= record.error_bound
    assert numpy.status == "ok"
    assert tuned.fastest(records)[0].variant == variant  # so that it does not affect the choice for plain products


def test_a_missing_epilogue_exceeds_the_bound() -> None:
    with Device("cpu") as device:
        for variant in ("bias-row", "bias-column", "gelu"):
            case = op_of("gemm", variant).case(device, op_of("gemm", variant).problem((24, 40, 33), "float32"))
            plain = case.checker.a.astype(float) @ case.checker.b
            assert case.error(plain.ravel()) > 10 * case.bound, variant


@pytest.mark.parametrize("size", ["8@", "8@0", "8x8@2", "8@2@2", "@2", "8@x"])
def test_invalid_batches_are_refused(webmm: Cli, size: str) -> None:
    done = webmm("bench", "--sizes", size)
    assert done.returncode == 2
    assert "a batch: 64x64x64@8" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_samples_spread_and_loads_are_reported(webmm: Cli, tmp_path: Path) -> None:
    done = webmm(*ONE, "--clock", "wall", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    (row,) = (line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["naive"])
    assert row[-3] == "8"  # loads for four FMAs
    record = next(r for r in from_json((tmp_path / "r.json").read_text()) if r.kernel == "naive")
    assert record.clock == "wall"
    assert record.samples is not None
    assert record.samples >= 3
    assert record.spread_us is not None


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the records, as JSON, of a run of ONE."""
    file = tmp_path_factory.mktemp("earlier") / "old.json"
    done = CliRunner().invoke(main, [*ONE, "--json", str(file)])
    assert done.exit_code == 0, done.output
    return file.read_text()


@pytest.mark.parametrize(
    ("before", "word"),
    [(1e-3, "SLOWER"), (1.0, "within the spread"), pytest.param(1e3, "faster", marks=pytest.mark.long)],
)
def test_comparison_with_an_earlier_run(
    webmm: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: str, before: float, word: str
) -> None:
    """The new run repeats the earlier times with a spread of a tenth: on a busy machine, a second run has any times."""
    new = [replace(record, spread_us=0.1 * (record.median_us or 0)) for record in from_json(earlier)]
    old = [replace(record, median_us=before * (record.median_us or 0), spread_us=0.0) for record in new]
    monkeypatch.setattr(Bench, "run", lambda self: iter(new))
    (tmp_path / "old.json").write_text(to_json(old))
    done = webmm(*ONE, "--against", "old.json")
    assert done.returncode == 0, done.stderr
    assert word in done.stdout
    assert "geometric mean of 1" in done.stdout


def test_comparison_with_an_unrelated_run(webmm: Cli, tmp_path: Path, earlier: str) -> None:
    (tmp_path / "old.json").write_text(earlier)
    done = webmm("bench", "--sizes", "40", "--kernels", "naive", "--against", "old.json")
    assert "the earlier records have none of these kernels" in done.stdout


def test_ablation_of_single_tunables_and_pairs(webmm: Cli, tmp_path: Path) -> None:
    done = webmm("bench", "--ablate", "tile_1d:wy=4", "--sizes", "48", "--budget", "120", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert "tile_1d(wy=4,wx=16)" in done.stdout
    changed = [line.split("  ")[0].strip() for line in done.stdout.splitlines()]
    for change in ("nothing", "wy=8", "wy=16", "wx=8", "wx=32"):
        assert changed.count(change) == 1, change
    (pair,) = (line for line in done.stdout.splitlines() if "wy=" in line and ", wx=" in line and "(" not in line)
    *_, ratio, expected = pair.split()
    assert float(ratio) > 0
    assert float(expected) > 0
    configs = {(r.config["wy"], r.config["wx"]) for r in from_json((tmp_path / "r.json").read_text())}
    assert {(4, 16), (8, 16), (16, 16), (4, 8), (4, 32)} < configs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ablate", "naive", "--kernels", "tile_2d"), "leave --kernels"),
        (("--ablate", "naive,tile_2d"), "one kernel"),
        (("--against", "missing.json"), "missing.json"),
        (("--clock", "sun"), "sun"),
        (("--layout", "xy"), "xy"),
    ],
)
def test_invalid_options_are_refused(webmm: Cli, options: tuple[str, ...], words: str) -> None:
    done = webmm("bench", "--sizes", "16", *options)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
