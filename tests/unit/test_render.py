"""Rendering kernels as WGSL."""

import dataclasses
import re
import sys
import time

import jinja2
import pytest

from webmm.errors import ConfigError
from webmm.kernels import KERNELS, LADDER
from webmm.kernels.gemm.base import GemmParams
from webmm.kernels.gemm.blocked import Blocked
from webmm.kernels.gemm.cpu_lanes import CpuLanes
from webmm.kernels.gemm.cpu_texture import CpuTexture
from webmm.kernels.gemm.gemv import Gemv
from webmm.kernels.gemm.naive import Naive
from webmm.kernels.gemm.pipelined import Pipelined
from webmm.kernels.gemm.shared import Shared
from webmm.kernels.gemm.tile_2d import Tile2D
from webmm.kernels.product import Grid
from webmm.kernels.reduce.tree import Tree
from webmm.problems.gemm import gemm
from webmm.problems.reduce import OPERATIONS, reduction
from webmm.wgsl import export, params
from webmm.wgsl.render import MAX_TEXT, _render, environment, params_bytes, render, shader_folder, tidy
from webmm.wgsl.templates import Environment

stages = pytest.mark.parametrize("cls", LADDER, ids=lambda cls: cls.name)
# Stages whose tiles cover C the same way for every shape; gemv's depend on the operand with more rows or columns.
tiled = pytest.mark.parametrize(
    "cls", [cls for cls in LADDER if cls().grid != Grid() or cls is Naive], ids=lambda cls: cls.name
)
LAYOUTS = [
    {"dtype": dtype, "transpose_a": ta, "transpose_b": tb}
    for dtype in ("float32", "float16")
    for ta in (False, True)
    for tb in (False, True)
]


def variants(cls):
    """Yield the description and WGSL of a stage for every layout, with aligned and unaligned sizes."""
    kernels = [cls()] if cls is not Pipelined else [cls(), cls(prefetch="workgroup")]
    for kernel in kernels:
        for layout in LAYOUTS:
            for problem in (gemm(512, 512, 512, **layout), gemm(33, 35, 37, **layout)):
                yield f"{kernel} {problem} {layout}", render(kernel, problem).wgsl


@stages
def test_tile_sizes_are_constants_with_their_docs(cls):
    kernel, text = cls(), render(cls(), gemm(5, 6, 7)).wgsl
    for name, value, doc in kernel.constants:
        line = (
            f"const {name.upper()}: u32 = {value}u; // {doc}"
            if isinstance(value, int)
            else f"// {name} = {value}: {doc}"
        )
        assert line in text.splitlines()


@stages
def test_header_states_changes_and_requirements(cls):
    text = export.stage(cls(), gemm(5, 6, 7), "naga")["wgsl"]
    assert text.startswith(f"// {cls.name}: C = A·B")
    header = text.split("\nconst")[0].split("\n\n")[0]
    for part in ("Storage:", "Shapes:", "Workgroup memory:"):
        assert part in header
    if cls is not LADDER[0]:
        before = re.search(r"Changed from (\w+):", header)
        assert before, "each stage says what it changes"
        assert before[1] in [other.name for other in LADDER[: LADDER.index(cls)]]


def test_templates_have_at_most_300_lines_of_120_columns():
    for path in shader_folder().rglob("*.wgsl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 300, f"{path} has {len(lines)} lines: divide it by purpose"
        for number, line in enumerate(lines, 1):
            assert len(line) <= 120, f"{path}, line {number}"


def test_each_operation_of_a_reduction_is_a_template():
    assert {path.stem for path in (shader_folder() / "reduce/operations").glob("*.wgsl")} == set(OPERATIONS)


def test_an_undefined_name_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ nothing }}").render()
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{% if nothing %}{% endif %}").render()


def test_unknown_dialects_and_impossible_tiles_are_refused():
    with pytest.raises(ConfigError, match="unknown dialect 'hlsl'; choose from naga, tint"):
        render(Shared(), gemm(1, 1, 1), "hlsl")
    with pytest.raises(ConfigError, match="blocked: tm = 6 must be a multiple of 4"):
        render(Blocked(tm=6), gemm(1, 1, 1))


@tiled
def test_aligned_sizes_have_no_guards(cls):
    text = render(cls(), gemm(512, 512, 512)).wgsl
    code = "\n".join(line.split("//")[0] for line in text.splitlines())
    # The remaining guards are uniform, once per workgroup: for surplus workgroups of a folded grid.
    uniform = {"row0 >= params.m"}
    if cls.name in ("naive", "workgroup_1d"):
        uniform.add("row >= params.m")
    assert set(re.findall(r"\w+ >= params\.\w+", code)) <= uniform
    if "load_a" in code and cls.b_vector_axis:
        assert "array<vec4<f32>>" in code


@tiled
@pytest.mark.parametrize("axis", ["m", "n", "k"])
def test_a_ragged_edge_is_guarded(cls, axis):
    sizes = {"m": 512, "n": 512, "k": 512, axis: 511}
    aligned, ragged = render(cls(), gemm(512, 512, 512)).wgsl, render(cls(), gemm(**sizes)).wgsl
    always = cls.name in ("naive", "workgroup_1d") or (axis == "k" and cls().inner_step == 1)
    guards = [len(re.findall(rf"(?:>=|<) params\.{axis}\b", text)) for text in (ragged, aligned)]
    assert (guards[0] > guards[1]) is not always


@pytest.mark.parametrize("cls", [CpuLanes, CpuTexture], ids=lambda cls: cls.name)
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_loads_of_cpu_stages_do_not_branch(cls, layout):
    # SwiftShader takes minutes to compile a branch per load.
    transposed = {"transpose_a": layout == "tt", "transpose_b": layout == "tt"}
    text = render(cls(), gemm(511, 511, 511, **transposed)).wgsl
    loads = re.findall(r"^fn load_\w+\(.*?^}", text, flags=re.MULTILINE | re.DOTALL)
    assert loads
    assert not [load for load in loads if re.search(r"\bif\b|\|\||&&", load)]
    assert any("select(" in load for load in loads)


def test_gemv_has_no_guards_if_sizes_divide_its_steps():
    for sizes, guarded in (((8, 512, 512), "j0 >= params.m"), ((512, 8, 512), "j0 >= params.n")):
        text = render(Gemv(tj=8), gemm(*sizes)).wgsl
        assert re.findall(r"\w+ >= params\.\w+", text) == [guarded]
        ragged = render(Gemv(tj=8), gemm(*(size - 1 for size in sizes))).wgsl
        assert len(re.findall(r">= params\.\w+", ragged)) > 1


@tiled
def test_one_shader_serves_all_sizes(cls):
    kernel = cls()
    for one, other in (((512, 512, 512), (1024, 256, 2048)), ((33, 35, 37), (97, 191, 333))):
        assert render(kernel, gemm(*one)) is render(kernel, gemm(*other))
    assert render(kernel, gemm(512, 512, 512)).wgsl != render(kernel, gemm(512, 512, 512, transpose_a=True)).wgsl
    assert render(kernel, gemm(512, 512, 512)).wgsl != render(kernel, gemm(512, 512, 512, dtype="f16")).wgsl


@stages
def test_dbg_lines_leave_no_trace_in_normal_shaders(cls, templates):
    texts = dict(variants(cls))
    for path in templates.rglob("*.wgsl"):
        if path.name != "debug.wgsl":
            path.write_text(re.sub(r"^ *dbg.*\n", "", path.read_text(), flags=re.MULTILINE))
    _render.cache_clear()
    for what, text in variants(cls):
        assert text == texts[what], what
        assert "dbg" not in text, what
        assert "debug" not in text, what


@stages
def test_debug_shaders_record_every_tag(cls):
    shader = render(cls(), gemm(33, 35, 37), debug=True)
    assert shader.bindings[-1].name == "debug"
    for tag in ("LOADED_A", "LOADED_B", "ACC"):
        assert re.search(rf"^ +dbg\w*\({tag}, |^ +dbg_fragment", shader.wgsl, re.MULTILINE), tag


@stages
def test_text_is_tidy(cls):
    for what, text in variants(cls):
        assert text.endswith("}\n"), what
        assert "\t" not in text, what
        assert "\n\n\n" not in text, what
        assert "{\n\n" not in text, what
        assert "{{" not in text, what
        assert "{%" not in text, what
        for number, line in enumerate(text.splitlines(), 1):
            assert line == line.rstrip(), f"{what}, line {number}"
            assert (len(line) - len(line.lstrip())) % 4 == 0, f"{what}, line {number}"
        assert tidy(text) == text, f"{what}: tidying again changes it"


def test_tidy_indents_by_braces_and_drops_blank_lines():
    assert tidy("fn f(\nx: u32, // {\n) {\n\n\nif (x) {\n\nreturn;\n\n}\n}\n\n\n\nconst A = 1;") == (
        "fn f(\n    x: u32, // {\n) {\n    if (x) {\n        return;\n    }\n}\n\nconst A = 1;\n"
    )


@stages
def test_workgroup_tiles_are_stored_by_whole_vec4(cls):
    # WGSL lets a store to one component of a vec4 write all four: invocations that share a vec4 would race.
    for what, text in variants(cls):
        depths = {
            name: (kind.count("array<"), "vec4" in kind)
            for name, kind in re.findall(r"var<workgroup> (\w+): (.+?);", text)
        }
        stores = re.findall(r"^ *(\w+)((?:\[[^\]]+\])+)(\.\w+)? = ", text, re.MULTILINE)
        stored = [store for store in stores if store[0] in depths]
        assert {name for name, _, _ in stored} == set(depths), f"{what}: a tile that is never stored"
        for name, indices, component in stored:
            assert (indices.count("["), component) == (depths[name][0], ""), f"{what}: {name}{indices}{component} = …"
        assert not re.search(r"&\w+_tile", text), f"{what}: a pointer would escape this test"


@stages
def test_workgroup_memory_is_what_the_kernel_declares(cls):
    # The eligibility check relies on workgroup_bytes; a template that takes more could hang a driver.
    for kernel in (cls(), Pipelined(prefetch="workgroup")) if cls is Pipelined else (cls(),):
        text = render(kernel, gemm(33, 35, 37)).wgsl
        constants = {name: int(value) for name, value in re.findall(r"const (\w+): u32 = (\d+)u;", text)}
        for name, value in re.findall(r"^const (\w+) = ([^;.]+);", text, re.MULTILINE):
            constants[name] = eval(value.replace("u", "").replace("/", "//"), {}, constants)
        total = 0
        for kind in re.findall(r"var<workgroup> \w+: (.+?);", text):
            size = 16 if "vec4f" in kind else 4
            for length in re.findall(r", ([^,>]+)>", kind):
                size *= eval(length.replace("u", "").replace("/", "//"), {}, constants)
            total += size
        assert total == kernel.workgroup_bytes


@stages
def test_to_json_holds_everything_another_host_needs(cls):
    shader = render(cls(), gemm(33, 35, 37, dtype="f16"), "tint")
    data = shader.to_json()
    assert data["kernel"] == cls.name
    assert data["dialect"] == "tint"
    assert data["wgsl"] == shader.wgsl
    assert data["features"] == (["shader-f16", "subgroups"] if cls().subgroup else ["shader-f16"])
    assert "enable f16;" in shader.wgsl
    assert [binding["name"] for binding in data["bindings"]] == ["params", *cls.binds[:3]]
    assert data["params"]["size"] == params.layout(GemmParams).size
    assert data["limits"]["maxComputeWorkgroupStorageSize"] == cls().workgroup_bytes
    x, y, z = data["workgroup_size"]
    assert x * y * z == cls().invocations


def test_to_json_of_float64_describes_the_shader_of_doubles():
    keys = render(Tree(), reduction(3, 5000, "argmax", dtype="float64")).to_json()
    assert keys["limits"]["maxComputeWorkgroupStorageSize"] == 2 * Tree().workgroup_bytes
    assert [each["type"] for each in keys["params"]["members"]][-1] == "f32", "words need no f64"
    product = dataclasses.replace(gemm(33, 35, 37, dtype="float64"), alpha=0.5)
    native = render(Shared(), product).to_json()
    assert native["limits"]["maxComputeWorkgroupStorageSize"] == 2 * Shared().workgroup_bytes
    assert native["params"]["size"] == len(params_bytes(Shared(), product))
    for each in native["params"]["members"]:
        assert f"{each['name']}: {each['type']}," in native["wgsl"]


def test_grid_rule_as_text():
    assert (
        KERNELS["naive"]().grid.rule()["rule"].startswith("count = ceil(m / 1) * ceil(n / 1); y = ceil(count / 65535)")
    )
    assert KERNELS["workgroup_1d"]().grid.rule()["rule"].startswith("count = ceil(m*n / 256);")
    rule = KERNELS["persistent"](workgroups=500).grid.rule()["rule"]
    assert "min(ceil(m / 64) * ceil(n / 128), 500)" in rule


def test_uniform_holds_the_problem():
    problem = gemm(2, 3, 4, batch=5, transpose_a=True)
    words = [int.from_bytes(params_bytes(Blocked(), problem)[i : i + 4], "little") for i in range(0, 48, 4)]
    assert words == [2, 3, 4, 2, 3, 3, 0, 0, 0, 8, 12, 6]
    assert GemmParams.of(problem).lda == 2


ABSURD = [(CpuLanes(tm=1024, tn=16), "its text has 1,"), (CpuLanes(tm=160, tn=16), "its text has 24")]
ABSURD += [(Tile2D(tm=tm), "in more than 50,000 steps") for tm in (10**5, 10**30)]


@pytest.mark.parametrize(("kernel", "words"), ABSURD, ids=lambda x: str(x)[:40])
def test_a_text_that_takes_minutes_to_compile_is_refused(kernel, words):
    start = time.process_time()
    with pytest.raises(ConfigError, match=words) as caught:
        render(kernel, gemm(64, 64, 64))
    assert str(caught.value).startswith(f"{kernel}: ")
    assert "choose smaller tunables" in str(caught.value)
    assert time.process_time() - start < 10  # rendered whole, Tile2D would take hours


def test_a_debug_shader_may_be_as_long_as_its_shader():
    kernel, problem = CpuLanes(tm=128, tn=16), gemm(64, 64, 64)
    assert len(render(kernel, problem).wgsl) < MAX_TEXT < len(render(kernel, problem, debug=True).wgsl)


def test_compiled_templates_are_kept_where_python_keeps_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder, plugin = tmp_path / "shaders", tmp_path / "plugin.wgsl"
    folder.mkdir()
    template = folder / "one.wgsl"
    for file in (template, plugin):
        file.write_text("{{ 1 + 1 }}")
    compiled = []

    class Counting(Environment):
        def compile(self, source, name=None, filename=None, *rest):
            compiled.append(name)
            return super().compile(source, name, filename, *rest)

    def compiles(name="one.wgsl", expected="2"):
        compiled.clear()
        assert Counting(folder).get_template(name).render() == expected
        return bool(compiled)

    assert compiles()
    assert compiles(), "PYTHONDONTWRITEBYTECODE holds for templates, too"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert compiles()
    assert not compiles()
    (kept,) = (path for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert kept.name == f"one.wgsl.{sys.implementation.cache_tag}.pyc"
    template.write_text("{{ 1 + 2 }}")
    assert compiles(expected="3"), "its source has changed"
    for damaged in (b"", kept.read_bytes()[:60], b"nonsense"):
        kept.write_bytes(damaged)
        assert compiles(expected="3")
        assert not compiles(expected="3")
    monkeypatch.setattr("jinja2.__version__", "0")
    assert compiles(expected="3"), "another version of Jinja writes other code"
    for _ in range(2):
        assert compiles(str(plugin)), "plugins' templates are not kept"
    kept.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("a file")
    assert compiles(expected="3"), "a folder that cannot be written is ignored"
