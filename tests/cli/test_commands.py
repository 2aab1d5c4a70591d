"""Every command: its output, files and exit code."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.cli.conftest import Cli
from tests.sampled import sampled
from webmm.cases import OPS
from webmm.cli import OP_HELP, main
from webmm.engine.rates import Rates
from webmm.kernels import KERNELS, LADDER
from webmm.measure.bench import Bench
from webmm.measure.records import SCHEMA, Record, from_json
from webmm.wgsl import check
from webmm.wgsl.check import shipped

BUDGET = ("--budget", "250")  # seconds; more than needed on a busy machine


def test_bench_prints_a_table_and_writes_its_records(webmm: Cli, tmp_path: Path) -> None:
    done = webmm("bench", "--sizes", "64", *BUDGET, "--json", "r.json", "--csv", "r.csv", "--plot", "r.svg")
    assert done.returncode == 0, done.stderr
    for word in ("64×64×64", "GFLOP/s", "× naive", "× NumPy", "of peak", "bound", "cpu (NumPy)"):
        assert word in done.stdout
    records = from_json((tmp_path / "r.json").read_text())
    (lacking,) = [r for r in records if r.status == "unsupported"]
    assert (lacking.kernel, lacking.reason[:18]) == ("matrix_unit_f32", "needs matrix units")
    there = [r for r in records if r is not lacking]
    assert sorted(r.kernel for r in there) == sorted(["cpu", *(stage.name for stage in LADDER)])
    for record in there:
        assert record.status == "ok", (record.kernel, record.reason)
        assert record.max_error is not None
        assert record.error_bound is not None
        assert record.max_error <= record.error_bound
        assert record.median_us is not None
        assert record.best_us is not None
        assert 0 < record.best_us <= record.median_us
    assert len(list(csv.DictReader((tmp_path / "r.csv").open()))) == len(records)
    assert "<svg" in (tmp_path / "r.svg").read_text()


def test_a_table_per_size_and_the_public_format_of_records(webmm: Cli, tmp_path: Path) -> None:
    done = webmm("bench", "--sizes", "32,33x17x29", "--kernels", "naive", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert "32×32×32" in done.stdout
    assert "33×17×29" in done.stdout
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["schema"] == SCHEMA
    assert document["command"] == "webmm bench --sizes 32,33x17x29 --kernels naive --json r.json"
    assert len(document["records"]) == 4
    fields = (
        "op kernel m n k batch dtype layout variant config engine adapter backend driver status reason median_us "
        "best_us spread_us samples gflops clock max_error error_bound peak_fraction version"
    )
    for record in document["records"]:
        assert set(record) == set(fields.split())


def test_bench_of_settings_and_float16(webmm: Cli, tmp_path: Path) -> None:
    kernels = "tile_2d:tm=8,blocked:bm=32:bn=32:tm=4:tn=4"
    assert webmm("bench", "--sizes", "48", "--kernels", kernels, "--dtype", "f16", "--json", "r.json").returncode == 0
    records = {r.kernel: r for r in from_json((tmp_path / "r.json").read_text())}
    assert records["tile_2d"].config["tm"] == 8
    assert records["tile_2d"].dtype == "float16"
    assert all(r.status == "ok" for r in records.values())


def test_a_reason_is_printed_without_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(self: Bench) -> Iterator[Record]:
        yield Record(
            "gemm", "naive", *(8, 8, 8, 1), *("?",) * 6, {}, status="runtime", reason="a [/x] of [red]the driver"
        )

    monkeypatch.setattr(Bench, "run", failed)
    done = CliRunner().invoke(main, ["bench", "--sizes", "8", "--kernels", "naive"])
    assert "naive: runtime: a [/x] of [red]the driver" in done.output


def test_a_slow_case_is_skipped_with_a_reason(webmm: Cli, tmp_path: Path) -> None:
    assert webmm("bench", "--sizes", "1024", "--kernels", "naive", "--budget", "4", "--json", "r.json").returncode == 0
    naive = next(r for r in from_json((tmp_path / "r.json").read_text()) if r.kernel == "naive")
    assert naive.status == "skipped"
    assert naive.reason
    assert "would take" in naive.reason


def test_info(webmm: Cli) -> None:
    done = webmm("info")
    assert done.returncode == 0
    assert "Adapters" in done.stdout
    data = json.loads(webmm("info", "--json").stdout)
    assert data["adapters"]
    assert data["limits"]["max-compute-workgroup-storage-size"] >= 16384
    assert {s["kernel"] for s in data["stages"]} == {stage.name for stage in KERNELS.values()}


def test_probe_stores_its_rates(webmm: Cli, tmp_path: Path) -> None:
    done = webmm("probe", "--adapter", "cpu", WEBMM_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    for words in ("GFLOP/s f32", "GB/s from memory", "GB/s from cache", "for a dispatch", "at once", "rates.json"):
        assert words in done.stdout
    assert " 0 GB/s" not in done.stdout, "a slow memory has a rate, too"
    (found,) = json.loads((tmp_path / "cache" / "rates.json").read_text())["drivers"].values()
    assert Rates.of(found)
    assert found["workgroups"] <= 4 * (os.cpu_count() or 1)
    assert webmm("cache", "clear", WEBMM_CACHE_DIR=str(tmp_path / "cache")).returncode == 0
    assert not (tmp_path / "cache" / "rates.json").exists()


def test_info_without_an_adapter_says_what_to_install_and_exits_1(webmm: Cli) -> None:
    done = webmm("info", VK_DRIVER_FILES="/nonexistent.json", VK_ICD_FILENAMES="/nonexistent.json")
    assert done.returncode == 1
    assert "mesa-vulkan-drivers" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("kernel", "dialect"), [*((stage.name, "naga") for stage in LADDER), ("shared", "tint"), ("split_k", "tint")]
)
def test_shader_prints_what_runs(kernel: str, dialect: str) -> None:
    command = ["shader", kernel, "--dialect", dialect]
    text = CliRunner().invoke(main, command)
    assert text.exit_code == 0, text.output
    data = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert "\n".join(each["wgsl"] for each in data["dispatches"]) == text.stdout
    assert data["wgsl"] in text.stdout, "that of the main dispatch"
    assert data["grid"]["rule"]
    names = {b["name"].removesuffix("_texture") for b in data["bindings"]}
    assert names >= {"params", "a", "b", "c"}
    assert np.prod(data["workgroup_size"]) == data["limits"]["maxComputeInvocationsPerWorkgroup"]


def test_shader_is_general_unless_a_size_is_given(webmm: Cli) -> None:
    general, special = (webmm("shader", "shared", *size).stdout for size in ((), ("--size", "64")))
    assert "// Shapes: any sizes, strides and offsets.\n" in general
    assert "// Shapes: only m, n, k a multiple of 16.\n" in special
    numbers = json.loads(webmm("shader", "shared", "--size", "33x17x65", "--general", "--json").stdout)
    assert numbers["wgsl"] == general
    assert numbers["dispatches"][0]["workgroups"] == [6, 1, 1]
    assert [each["elements"] for each in numbers["buffers"]] == [33 * 65, 65 * 17, 33 * 17]


def test_shader_of_several_dispatches(webmm: Cli) -> None:
    stage = ("shader", "split_k", "--set", "splits=4")
    first = webmm(*stage, "--dispatch", "2")
    assert first.stdout.startswith("// sum_splits:")
    beyond = webmm(*stage, "--dispatch", "3")
    assert (beyond.returncode, beyond.stderr) == (2, "webmm: split_k has no dispatch 3: its dispatches are 1 to 2\n")
    binary = webmm(*stage, "--to", "spirv")
    assert binary.returncode == 2
    assert "choose one: --dispatch 1" in binary.stderr


def test_shader_uses_settings(webmm: Cli) -> None:
    done = webmm("shader", "blocked", "--set", "bm=32", "--dialect", "tint")
    assert "const BM: u32 = 32u; // rows of C per workgroup" in done.stdout


def test_debug_takes_tiles_that_fit_the_device(webmm: Cli) -> None:
    at = ("2x20x40", "--op", "attention", "--at", "0,1,5")
    done = webmm("debug", "blocked", *at)  # its 64 queries need more than lavapipe's 32 KiB
    assert (done.returncode, done.stdout.splitlines()[-1][-5:]) == (0, "right")
    done = webmm("debug", "blocked", *at, "--set", "bq=64")
    assert "needs 45,568 bytes of workgroup memory" in done.stderr
    done = webmm("debug", "matrix_unit", *at, "--dtype", "float16")
    assert "needs matrix units, lavapipe has none" in done.stderr


def test_debug_does_not_unroll_loops(webmm: Cli) -> None:
    # With 16 copies of its inner loop, the text of `packed` has 260,000 characters: lavapipe took over 13 minutes.
    tiles = (word for tile in ("bm=16", "bn=16", "bk=8", "tm=4", "tn=4") for word in ("--set", tile))
    done = webmm("debug", "packed", 9, 10, 11, "--op", "quantized", "--at", "1,2", *tiles)
    assert (done.returncode, done.stdout.splitlines()[-1][-5:]) == (0, "right")
    assert "unroll=1," in done.stdout


def test_debug_shows_each_step_next_to_numpy(webmm: Cli) -> None:
    done = webmm("debug", "shared", 5, 6, 19, "--set", "tile=8", "--at", "4,5", "--layout", "tn", "--steps", "17:21")
    assert done.returncode == 0, done.stderr
    for word in ("A loaded", "A shared", "B loaded", "sum", "NumPy", "C[4, 5]", ": right"):
        assert word in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0].isdigit()] == ["17", "18", "19", "20"]
    data = json.loads(webmm("debug", "naive", 2, 3, 4, "--dtype", "f16", "--json", "--steps").stdout)
    assert data["right"] is True
    assert [step["k"] for step in data["steps"]] == [0, 1, 2, 3]
    assert data["steps"][1]["LOADED_A"]["value"] == data["steps"][1]["numpy"]["A"]


def test_check_validates_shaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of each stage: `make test` runs the command for all of them."""
    monkeypatch.setattr(check, "shipped", lambda: itertools.islice(shipped(), 1, None, 24))
    done = CliRunner().invoke(main, ["check"])
    assert done.exit_code == 0, done.output
    assert "SPIR-V, MSL, HLSL" in done.stdout
    assert "matrix_unit of quantized is rendered for Tint only; naga: its matrices hold floats only" in done.stdout
    assert "shaders are valid for browsers (Tint of wgpudawn" in done.stdout, (
        "Tint must not be skipped: see webmm/wgsl/tint.py"
    )


def test_check_without_naga_says_how_to_install_it(webmm: Cli) -> None:
    done = webmm("check", WEBMM_NAGA="/nonexistent/naga")
    assert done.returncode == 2
    assert "cargo install naga-cli" in done.stderr


def test_run_multiplies_files(webmm: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (33, 70)).astype(np.float32), rng.integers(-4, 5, (70, 21)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.asfortranarray(b))
    done = webmm("run", "a.npy", "b.npy", "-o", "c.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), a @ b)

    before = (tmp_path / "c.npy").stat().st_mtime_ns
    assert webmm("run", "a.npy", "b.npy", "-o", "c.npy").returncode == 2
    assert (tmp_path / "c.npy").stat().st_mtime_ns == before
    done = webmm("run", "a.npy", "b.npy", "-o", "c.npy", "--force", "--kernel", "shared:tile=8", "--profile=t.json")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), a @ b)
    for word in ("upload", "dispatch", "shared", "download"):
        assert word in done.stdout
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_run_multiplies_float64(webmm: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((20, 30)), rng.random((30, 10))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    done = webmm("run", "a.npy", "b.npy", "-o", "c.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), a @ b, rtol=1e-13)


def test_run_writes_into_a_pipe(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3, dtype=np.float32))
    arguments = ["run", "a.npy", "a.npy", "-o", "/dev/stdout", "--force"]
    done = subprocess.run([sys.executable, "-m", "webmm", *arguments], cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout)), np.eye(3))
    assert Path("/dev/stdout").is_symlink()


def test_a_bundle_replaces_no_files_of_others(webmm: Cli, tmp_path: Path) -> None:
    """test_wheel.py builds one."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("keep")
    assert webmm("bundle", "mine").returncode == 2
    assert (tmp_path / "mine" / "precious.txt").exists()
    assert webmm("serve", "mine", "--no-browser").returncode == 2


def test_explain(webmm: Cli) -> None:
    done = webmm("explain", "100", "200", "300")
    assert done.returncode == 0
    assert "→" in done.stdout
    assert "\npredicted by rates fitted to times on such a CPU, shipped with webmm\n" in done.stdout


def test_explain_of_a_stage_has_its_summary_and_its_gain_here(webmm: Cli) -> None:
    done = webmm("explain", "tile_1d")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tile_1d: ")
    assert re.search(
        r"^  \S+ workgroup_2d: [\d.]+ GFLOP/s.*\n  \S+ tile_1d: .*: \d+\.\d\d × workgroup_2d$",
        done.stdout,
        re.MULTILINE,
    )
    assert "neither a size nor a stage" in webmm("explain", "tile_3d").stderr
    assert "serial: one invocation" in webmm("explain", "serial").stdout  # of another op
    assert re.search(
        r"^  \S+ rows: [\d.]+ GB/s$", webmm("explain", "rows").stdout, re.MULTILINE
    )  # at a size of the page


def test_the_help_names_every_op() -> None:
    assert all(name in OP_HELP for name in OPS)


def test_bench_of_reductions(webmm: Cli, tmp_path: Path) -> None:
    arguments = ("bench", "--op", "reduce", "--sizes", "33x1001,3x4x256")
    done = webmm(*arguments, "--kernels", "serial,per_row,subgroup:lanes=64", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    for word in ("33×1001×1", "12×256×1", "GB/s", "× serial", "subgroup lanes=64", "cpu (NumPy)"):
        assert word in done.stdout
    records = from_json((tmp_path / "r.json").read_text())
    assert len(records) == 8
    for record in records:
        assert (record.op, record.status) == ("reduce", "ok"), record.reason
        assert record.max_error is not None
        assert record.error_bound is not None
        assert record.max_error <= record.error_bound
    assert webmm(*arguments, "--plot", "r.svg").returncode == 2
    assert webmm("shader", "--op", "reduce", "tree", "--layout", "tt").returncode == 2


@pytest.mark.parametrize(("op", "kernel"), sampled([("normalise:layer_norm", "rows"), ("elementwise", "map")]))
def test_bench_of_normalisations_and_maps(webmm: Cli, tmp_path: Path, op: str, kernel: str) -> None:
    done = webmm("bench", "--op", op, "--sizes", "5x301", "--json", "r.json", "--profile=t.json")
    assert done.returncode == 0, done.stderr
    variant = op.partition(":")[2] or "gelu"
    assert f"float32 {variant}" in done.stdout
    assert "download" in done.stdout
    kinds = [event.get("cat") for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]]
    assert (kinds.count("product"), kinds.count("upload")) == (1, 1)
    for record in from_json((tmp_path / "r.json").read_text()):
        assert (record.variant, record.status) == (variant, "ok"), record.reason
    assert f"y{'[i]' * (kernel == 'map')} = {variant}" in webmm("shader", kernel, "--op", op).stdout


@pytest.mark.parametrize(
    ("op", "kernel", "dtype"), sampled([("quantized", "packed", "int8"), ("weights", "vector", "float16")], first=1)
)
def test_ops_of_quantised_operands(webmm: Cli, tmp_path: Path, op: str, kernel: str, dtype: str) -> None:
    settings = "packed:bm=32:bn=32:tn=4:unroll=1,unpacked" if op == "quantized" else "vector:lanes=8:tm=1"
    variant = ":8bit-128" if op == "weights" else ""
    arguments = ("bench", "--op", op + variant, "--sizes", "3x33x65", "--kernels", settings, "--json", "r.json")
    assert webmm(*arguments).returncode == 0
    for record in from_json((tmp_path / "r.json").read_text()):
        assert (record.op, record.variant, record.status) == (op, variant[1:], "ok"), record.reason
        assert record.dtype == ("uint8" if op == "quantized" else "float32")
    done = webmm("shader", kernel, "--op", op, "--dtype", dtype, "--dialect", "tint", "--json")
    assert json.loads(done.stdout)["kernel"] == kernel
    assert ("dot4I8Packed" if op == "quantized" else "enable f16;") in json.loads(done.stdout)["wgsl"]
    assert webmm("bench", "--op", op, "--dtype", "int32", "--sizes", "8").returncode == 2


EXPLAINED = {
    "gemm": (("100", "200", "300"), "100x200x300 nn float32 on "),
    "quantized": (("100x200x300", "--layout", "nt"), "quantized 100×200×300 nt uint8 on "),
    "weights:8bit-128": (("1", "256", "256"), "weights:8bit-128 1×256×256 float32 on "),
    "reduce:max": (("64x256x32@1",), "reduce:max 64×256×32 float32 on "),
    "normalise": (("512", "4096", "--dtype", "float16"), "normalise:softmax 512×4096×1 float16 on "),
    "attention:causal": (("2x33x40",), "attention:causal 33×33×40 float32 on "),
    "elementwise:silu": (("1000",), "elementwise:silu 1000000×1×1 float32 on "),
}


@pytest.mark.parametrize("op", sampled(EXPLAINED))
def test_explain_supports_every_op(webmm: Cli, op: str) -> None:
    arguments, title = EXPLAINED[op]
    done = webmm("explain", *arguments, "--op", op)
    assert done.returncode == 0, done.stderr
    first, *_ = lines = done.stdout.replace("\n    ", " ").splitlines()
    assert first.startswith(title)
    assert all(len(line) <= 100 or line.count(" ") < 4 for line in done.stdout.splitlines())
    choice = next(line for line in done.stdout.splitlines() if line.startswith("→"))[3:]
    assert any(f". {choice}: " in line and " workgroups" in line for line in lines)
    if op == "reduce:max":
        assert webmm("explain", "512", "--op", "reduce:median").returncode == 2
    if op == "gemm":
        assert "matrix_unit cannot run: multiplies float16, not float32" in done.stdout
        assert webmm("explain", "1", "0", "1").returncode == webmm("explain", "1", "1").returncode == 2


TUNED = ["quantized", "weights:4bit-128", "reduce:argmax", "normalise:rms_norm", "elementwise"]


@pytest.mark.parametrize("op", sampled(TUNED, 5, 1))
def test_tune_supports_every_op(webmm: Cli, tmp_path: Path, op: str) -> None:
    size = "8x64x64" if op[0] in "qw" else "8x512"
    cache = {"WEBMM_CACHE_DIR": str(tmp_path / "cache")}
    done = webmm("tune", "--op", op, "--sizes", size, "--budget", "3", "--json", "r.json", **cache)
    assert done.returncode == 0, done.stderr
    records = from_json((tmp_path / "r.json").read_text())
    assert {(r.op, r.variant) for r in records} == {(op.split(":")[0], records[0].variant)}
    assert records[0].variant == (op.partition(":")[2] or {"elementwise": "gelu"}.get(op, ""))
    assert "1 tuned records added" in done.stdout
    words = "×".join(map(str, (records[0].m, records[0].n, records[0].k)))
    shown = webmm("cache", "show", **cache).stdout
    assert f"{op.split(':')[0]}" in shown
    assert words in shown
    assert OPS[records[0].op].unit in shown
    explained = webmm("explain", size, "--op", op, **cache).stdout
    explained = explained.replace("\n    ", " ")
    assert f"tuned here at {words}{' nn' if op == 'quantized' else ''}, " in explained


@pytest.mark.parametrize(
    ("target", "mark"),
    [("msl", b"#include <metal_stdlib>"), ("hlsl", b"[numthreads(16, 16, 1)]"), ("spirv", b"\x03\x02\x23\x07")],
)
def test_shader_translates_to_other_languages(target: str, mark: bytes) -> None:
    done = CliRunner().invoke(main, ["shader", "tile_2d", "--to", target])
    assert done.exit_code == 0, done.output
    assert mark in done.stdout_bytes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("naive", "--dtype", "float64", "--to", "msl"), "cannot translate naive"),
        (("naive", "--dialect", "tint", "--to", "msl"), "leave --dialect out"),
    ],
)
def test_shader_refuses_what_naga_cannot_translate(webmm: Cli, options: tuple[str, ...], words: str) -> None:
    done = webmm("shader", *options)
    assert done.returncode == 2
    assert words in done.stderr
