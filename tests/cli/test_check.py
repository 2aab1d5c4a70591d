"""`webmm check`: the shaders that it validates, messages about refused shaders, and checks without Tint."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from webmm import check, cli, naga, tint
from webmm.cases import OPS
from webmm.dtypes import COMPUTED
from webmm.epilogues import ACTIVATIONS, BIASES, NUMBERS
from webmm.errors import ConfigError, ShaderError
from webmm.kernels.elementwise.fused import Fused

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
    with pytest.raises(ShaderError, match=r"(?s)^the label: .*missing.*\nline 4: x \+= missing;$"):
        compiler(VALID.replace("+= 1u", "+= missing"), "the label")
    with pytest.raises(ShaderError, match=r"(?s)^the label: .*line [56]: "):
        compiler(VALID.replace("}", ""), "the label")


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
