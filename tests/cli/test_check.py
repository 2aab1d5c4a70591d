"""`webmm check`: the shaders that it validates, messages about refused shaders, and checks without Tint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Cli
from webmm import cli
from webmm.cases import OPS
from webmm.dtypes import COMPUTED
from webmm.errors import ConfigError, ShaderError
from webmm.kernels.elementwise.fused import Fused
from webmm.wgsl import check, naga, tint
from webmm.wgsl.epilogues import ACTIVATIONS, BIASES, NUMBERS

VALID = "@compute @workgroup_size(1)\nfn main() {\n    var x = 1u;\n    x += 1u;\n}\n"
BOTH = {False, True}
EPILOGUES = {
    "gemm": {"terms": {frozenset(), frozenset(NUMBERS)}, "bias": set(BIASES), "activation": {"", *ACTIVATIONS}},
    "quantized": {"bias": BOTH},
    "elementwise": {"activation": set(ACTIVATIONS)},
}


@pytest.mark.parametrize("op", EPILOGUES)
def test_examples_cover_every_epilogue_of_every_stage(op: str) -> None:
    specialised: dict[type, list[object]] = {}
    for _, kernel, problem in OPS[op].shaders():
        specialised.setdefault(type(kernel), []).append(kernel.specialise(problem))
    of_float64 = [stage for stage in specialised if stage.integer]
    if op == "elementwise":
        assert {type for s in specialised[Fused] for type in s.types} == set(COMPUTED)
        assert {s.vec for s in specialised[Fused]} == BOTH
        del specialised[Fused]  # for expressions: not a stage, and without epilogue
    assert list(specialised) == [*OPS[op].stages, *of_float64]
    assert len(of_float64) == (3 if op == "gemm" else 0)
    for stage, specialisations in specialised.items():
        for choice, every in EPILOGUES[op].items():
            assert {getattr(s, choice) for s in specialisations} == every, (stage, choice)


@pytest.mark.parametrize("compiler", [naga.translate, tint.validate])
def test_a_refused_shader_is_quoted_with_its_line(compiler) -> None:
    compiler(VALID, "valid")
    with pytest.raises(ShaderError, match=r"(?s)^the label: line 4: .*missing.*\n  line 4: x \+= missing;\n"):
        compiler(VALID.replace("+= 1u", "+= missing"), "the label")
    with pytest.raises(ShaderError, match=r"(?s)^the label: line [56]: .*\n  line [56]: "):
        compiler(VALID.replace("}", ""), "the label")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write a program that prints a version, and forget those that were found."""
    for known in (naga._find, naga._version):
        known.cache_clear()
    monkeypatch.chdir(tmp_path)

    def write(prints: str, name: str = "naga") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {prints}\n")
        file.chmod(0o755)
        return file

    return write


@pytest.mark.parametrize("version", ["29.0.0", "29.7.1", "30.0.1"])
def test_versions_of_naga_that_were_tried_are_accepted(program, monkeypatch, version) -> None:
    file = program(version)
    monkeypatch.setenv("WEBMM_NAGA", str(file))
    assert (naga.find(), naga.version()) == (str(file), version)


@pytest.mark.parametrize("version", ["28.0.0", "31.0.0", ""])
def test_a_missing_naga_names_every_way_to_get_one(program, monkeypatch, version) -> None:
    monkeypatch.setenv("WEBMM_NAGA", str(program(version)))
    ways = ("cargo install naga-cli --version 29.0.3", "brew install", "tools/ensure-naga", "WEBMM_NAGA", "webmm.toml")
    with pytest.raises(ConfigError, match=f"29 to 30 is needed .*version {version or 'unknown'} at") as caught:
        naga.find()
    assert [way for way in ways if way not in str(caught.value)] == []


def test_naga_is_not_looked_for_in_the_working_folder(program, monkeypatch, tmp_path) -> None:
    program("29.0.3", ".tools/bin/naga")
    monkeypatch.setattr(naga, "CHECKOUT", tmp_path / "elsewhere")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("WEBMM_NAGA", raising=False)
    with pytest.raises(ConfigError, match="nothing was found"):
        naga.find()


def test_a_project_file_names_no_program_and_no_log(webmm: Cli, program, tmp_path: Path) -> None:
    ran = program("29.0.3; touch RAN", "tool.sh")
    (tmp_path / "victim").write_text("precious\n")
    (tmp_path / "webmm.toml").write_text(f'naga = "{ran}"\nlog = "debug"\nlog_file = "victim"\n')
    done = webmm("shader", "naive", "--to", "msl")
    assert not (tmp_path / "RAN").exists()
    assert (tmp_path / "victim").read_text() == "precious\n"
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{tmp_path / 'webmm.toml'}: log_file, naga ignored")


def test_tint_is_stricter_than_naga() -> None:
    text = VALID.replace("+= 1u", "= x | x << 1u")
    naga.translate(text, "")
    with pytest.raises(ShaderError, match="requires parenthesis"):
        tint.validate(text, "")


def test_tint_accepts_every_feature_that_shaders_enable() -> None:
    enable = "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n"
    tint.validate(enable + VALID, "")


def test_check_without_tint_reports_what_was_skipped(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpudawn", None)
    monkeypatch.setattr(check, "texts", lambda dialect: {VALID: dialect})
    done = CliRunner().invoke(cli.main, ["check"])
    assert done.exit_code == 0
    assert "shaders for browsers were not validated: Tint comes with wgpudawn" in done.output
    with pytest.raises(ConfigError, match="pip install 'webmm"):
        tint.version()
