"""Messages of compilers: their line, in few words, and the template's line that a rendered one comes from."""

import re
import sys

import pytest

from webmm.errors import ShaderError
from webmm.kernels import LADDER
from webmm.kernels.gemm.naive import Naive
from webmm.problems.gemm import gemm
from webmm.wgsl import naga
from webmm.wgsl.check import located, texts
from webmm.wgsl.compilers import complaint, refused
from webmm.wgsl.places import places
from webmm.wgsl.render import _render, environment, render, shader_folder

NAGA = """Validation Error

Caused by:
  In wgpuDeviceCreateShaderModule, label = 'x'

Shader validation error: Entry point main at Compute is invalid
   ┌─ x:2:5
   │
2 │     y = 1u + 2.0;
   │         ^^^^^^^^ naga::ir::Expression [101]
   │
   = Expression [101] is invalid
   = Operation Add can't work with [97] and [100]


      Expression [101] is invalid
        Operation Add can't work with [97] and [100]"""
TINT = """Error while parsing WGSL: :2:9 error: no matching overload for 'operator + (u32, f32)'
    y = 1u + 2.0;
        ^^^^^^^^

 - While calling [Device].CreateShaderModule([ShaderModuleDescriptor]).
"""
PIPELINE = (
    "Validation Error\n\nCaused by:\n  In wgpuDeviceCreateComputePipeline\n    Unable to find entry point 'main'\n"
)
CLI = 'Could not parse WGSL:\nerror: expected `)`, found "}"\n   ┌─ x.wgsl:2:9\n   │\n 2 │ }\n   │ ^ expected `)`\n'


@pytest.mark.parametrize(
    ("message", "line", "words"),
    [
        (NAGA, 2, "Operation Add can't work with [97] and [100]"),
        (TINT, 2, "no matching overload for 'operator + (u32, f32)'"),
        (CLI, 2, 'expected `)`, found "}"'),
        (PIPELINE, 0, "Unable to find entry point 'main'"),
        ("Entry point missing\n - While validating", 0, "Entry point missing"),
        ("", 0, ""),
    ],
)
def test_a_message_has_a_line_and_words(message, line, words):
    found = complaint(message)
    assert (found.line, found.words) == (line, words)
    assert "Caused by" not in found.whole.partition("error")[0] or not line
    text = str(refused("x was refused", message, "a\nb = 1;"))
    assert text.startswith(f"x was refused: {'line 2: ' * bool(line)}{words}")
    assert ("\n  line 2: b = 1;" in text) == bool(line)


def test_a_line_beyond_the_text_is_not_quoted():
    assert "line 2" not in str(refused("x", TINT, "only one")).splitlines()[0]


def test_a_refusal_by_a_validator_is_located(templates):
    path = templates / "gemm/naive.wgsl"
    path.write_text(path.read_text().replace("let a_reg", "let missing = nothing;\nlet a_reg"))
    known = [("", Naive(), gemm(8, 8, 8))]
    with pytest.raises(ShaderError) as caught:
        naga.translate(*next(iter(texts("naga", known).items())))
    assert re.match(rf".*: {path}:\d+: .*\n  {path}:\d+: let missing = nothing;\n", str(located(caught.value, known)))


def test_every_line_of_a_stage_comes_from_a_template():
    for stage in LADDER[::2]:
        shader = render(stage(), gemm(65, 67, 63), debug=stage is LADDER[0])
        found = places(shader)
        lines = shader.wgsl.split("\n")
        assert len(found) == len(lines), stage
        for line, place in zip(lines, found, strict=True):
            assert (place is None) == (not line.strip())
            if place:
                assert place.file.startswith(str(shader_folder()))
        quoted = [place for line, place in zip(lines, found, strict=True) if place and line.strip() == place.text]
        assert len(quoted) > len(lines) / 8, "lines that templates do not change"
        main = next(place for line, place in zip(lines, found, strict=True) if re.match(r"fn main\(", line))
        assert main.text.startswith("fn main(")


def test_places_and_kept_code_of_templates_do_not_mix(templates, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    problem = gemm(65, 67, 63)
    shader = render(Naive(), problem)
    assert list(templates.rglob("*.pyc"))
    assert any(places(shader)), "found despite the code that was kept without marks"
    for path in templates.rglob("*.pyc"):
        path.unlink()
    environment.cache_clear()
    places(shader)
    environment.cache_clear()
    _render.cache_clear()
    assert render(Naive(), problem).wgsl == shader.wgsl, "not from code with marks"
