"""Registering stages and ops from outside the package, and refusing those that cannot be used."""

import dataclasses

import pytest

import webmm
from webmm import plugins
from webmm.cases import OPS, op_of
from webmm.choose import tuned
from webmm.errors import ConfigError, ShaderError
from webmm.kernels import KERNELS, REGISTERED, STAGES, configure
from webmm.measure.records import Record
from webmm.problems.gemm import gemm
from webmm.wgsl.check import registered, texts
from webmm.wgsl.render import render

STAGE = '''
from dataclasses import dataclass
import webmm
from webmm.kernels.base import tunable
from webmm.kernels.gemm.base import GemmKernel

@webmm.register
@dataclass(frozen=True)
class Mine(GemmKernel):
    """A stage."""

    name = "mine"
    follows = "naive"
    summary = "what naive does"
    {more}
'''


@pytest.fixture
def mine(tmp_path, load_plugin):
    """Return a function that writes a plugin (with changes) and its template, loads it, and returns the stage."""

    def write(change=("", ""), more="", template='{% include "common/header.wgsl" %}\n@compute fn main() {}\n'):
        (tmp_path / "stage.py").write_text(STAGE.replace("{more}", more).replace(*change))
        if template:
            (tmp_path / "mine.wgsl").write_text(template)
        load_plugin(tmp_path / "stage.py")
        return STAGES["gemm"]["mine"]

    return write


def test_a_stage_is_registered_and_unregistered(examples, load_plugin):
    before = list(KERNELS)
    load_plugin(examples / "columns.py")
    load_plugin(examples / "columns.py")
    assert [stage.name for stage in REGISTERED] == ["columns"]
    assert list(KERNELS)[:2] == ["naive", "columns"]
    assert op_of("gemm").stages[1] is REGISTERED[0]
    assert plugins.files() == [str((examples / "columns.py").resolve())]
    kernel = configure("columns", {"tm": "8"})
    assert "const TM: u32 = 8u; // rows of C per invocation" in render(kernel, gemm(64, 64, 64)).wgsl
    plugins.unregister(REGISTERED[0])
    assert list(KERNELS) == before


def test_unregistering_an_op_removes_its_stages(examples, load_plugin):
    load_plugin(examples / "cumsum.py")
    assert list(STAGES["cumsum"]) == ["one_by_one"]
    assert list(texts("naga", registered()).values()) == [f"one_by_one(size=32) {t}" for t in MATRIX_NAMES]
    plugins.unregister(type(OPS["cumsum"]))
    assert "cumsum" not in OPS
    assert "cumsum" not in STAGES
    assert REGISTERED == []


MATRIX_NAMES = ("float32", "float16", "bfloat16")


def test_a_template_includes_files_of_its_folder_and_of_webmm(mine, tmp_path):
    (tmp_path / "part.wgsl").write_text("// mine\n")
    cls = mine(template='{% include "part.wgsl" %}\n{% include "common/header.wgsl" %}\n@compute fn main() {}\n')
    text = render(cls(), gemm(1, 1, 1)).wgsl
    assert text.startswith("// mine\n")
    assert "struct Params {" in text


def test_registering_a_class_again_replaces_it(mine, tmp_path, load_plugin):
    first = mine()
    (tmp_path / "again.py").write_text((tmp_path / "stage.py").read_text())
    load_plugin(tmp_path / "again.py")
    assert REGISTERED == [STAGES["gemm"]["mine"]] != [first]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("@webmm.register", ""), "registers nothing; call webmm.register"),
        (('"naive"', '"nope"'), "mine of gemm follows 'nope', which is not a stage"),
        (('"naive"', '""'), "mine must follow a stage of gemm: naive, "),
        (('"mine"', '"naive"'), "webmm has a kernel naive of gemm; choose another name"),
        (('"mine"', '"pack_b"'), "webmm has a kernel pack_b of gemm"),
        (("@dataclass(frozen=True)", 'WRONG = "'), "line 8: unterminated string"),
        (("import webmm\n", "import webmm, nonesuch\n"), "line 3: No module named 'nonesuch'"),
        (('"what naive does"', '""\n    tm: int = 3'), r"mine.tm must be a tunable\(\)"),
        (
            ('"what naive does"', '""\n    tm: int = tunable(3, (1, 3), "x")\n    op = "nope"'),
            r"must define name, op \(one of",
        ),
    ],
)
def test_an_invalid_stage_is_refused_and_not_registered(mine, change, words):
    before = list(KERNELS)
    with pytest.raises(ConfigError, match=words):
        mine(change)
    assert list(KERNELS) == before
    assert plugins.registered() == ()


def test_a_missing_or_invalid_template_is_named(mine, tmp_path):
    with pytest.raises(ConfigError, match=r"mine has no template: .*mine\.wgsl does not exist"):
        mine(template="")
    cls = mine(template="// {{ nothing }}\n")
    with pytest.raises(ShaderError, match=r"mine\.wgsl:1: 'nothing' is undefined"):
        render(cls(), gemm(1, 1, 1))
    (tmp_path / "mine.wgsl").write_text("\n{% if %}\n")
    with pytest.raises(ShaderError, match=r"mine\.wgsl:2: Expected an expression.*\n.*mine\.wgsl:2: {% if %}"):
        render(cls(), gemm(2, 1, 1, batch=2, dtype="float16"))


@pytest.mark.parametrize("wrong", [3, int, webmm.Problem])
def test_register_refuses_other_classes(wrong):
    with pytest.raises(ConfigError, match=r"register\(\) takes a subclass of Kernel or Op"):
        webmm.register(wrong)


@pytest.mark.parametrize("path", ["nope.py", "."])
def test_a_plugin_must_be_a_file(tmp_path, path):
    with pytest.raises(ConfigError, match="a plugin is a Python file, not"):
        plugins.load(tmp_path / path)


def test_records_of_unregistered_kernels_are_kept_but_not_used(mine, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBMM_CACHE_DIR", str(tmp_path))
    size = (512, 512, 512, 1, "float32", "wgpu", "a", "Vulkan", "1", webmm.__version__)
    ours = Record("gemm", "naive", *size, median_us=5.0, gflops=1.0)
    theirs = dataclasses.replace(ours, kernel="mine", median_us=2.0)
    cls = mine()
    assert tuned.add([theirs]) == 1
    plugins.unregister(cls)
    tuned.add([ours])
    assert sorted(r.kernel for r in tuned.load()) == ["mine", "naive"]
    assert tuned._nearest(gemm(512, 512, 512), tuned.load()) == ours
    mine()
    assert tuned._nearest(gemm(512, 512, 512), tuned.load()) == theirs
