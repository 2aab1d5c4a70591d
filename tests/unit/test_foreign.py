"""Shaders from other projects: grid expressions, checks of the options, and reversing the order of invocations."""

import numpy as np
import pytest

from webmm.errors import ConfigError, ProblemError
from webmm.foreign import Foreign, Signature
from webmm.foreign.counts import WORKGROUP, Counts
from webmm.foreign.lanes import in_reverse, workgroup_size_of
from webmm.foreign.tasks import OfFiles
from webmm.foreign.trace import with_debug_lines
from webmm.foreign.tune import combinations

TEXT = """
const M: u32 = 8u;
const N = 8;
override K: i32 = 8;
@group(0) @binding(0) var<uniform> s: vec4u;
@binding(1) @group(0) var<storage> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(8, 4)
fn main(
    @builtin(workgroup_id) w: vec3u,
    @builtin(global_invocation_id) g: vec3<u32>, @builtin(local_invocation_id) l: vec3u,
    @builtin(local_invocation_index) i: u32) {
    c[i] = a[g.x] + b[l.x];
}
"""


def foreign(text=TEXT, **changes):
    said = {
        "bindings": ("a", "b", "c"),
        "workgroup": Counts("8,4", (), WORKGROUP),
        "grid": Counts("m*n/8"),
        "uniform": ("m", "n", "k"),
    }
    return Foreign("my.wgsl", text, **(said | changes))


@pytest.mark.parametrize(
    ("text", "size", "counts"),
    [
        ("n/16,m/16", (33, 64, 5), (4, 3, 1)),
        ("m*n/256", (10, 100, 5), (4, 1, 1)),
        ("m/2/3", (7, 1, 1), (2, 1, 1)),
        ("2 + 3*4 - 5", (1, 1, 1), (9, 1, 1)),
        ("(m + n) * 2 / (k - 1), 3, k", (3, 4, 5), (4, 3, 5)),
        ("N × 2, M − 1", (9, 4, 1), (8, 8, 1)),
        ("((((m))))", (6, 1, 1), (6, 1, 1)),
    ],
)
def test_grid_expressions_are_evaluated_and_divisions_round_up(text, size, counts):
    assert Counts(text).of(dict(zip("mnk", size, strict=True))) == counts


@pytest.mark.parametrize(
    "text",
    [
        *("", "m,", "m n", "m**2", "m//2", "-m", "mn", "x", "1.5", "m;n", "(m", "m)", "1,2,3,4"),
        *("(" * 99, "m" + "+m" * 100, "__import__('os')", "m.bit_length()", "m if n else k"),
    ],
)
def test_other_grid_expressions_are_refused(text):
    with pytest.raises(ConfigError, match="a grid is one to three numbers, made of m, n, k"):
        Counts(text)


def test_a_division_by_zero_is_refused():
    with pytest.raises(ConfigError, match="divides by zero"):
        Counts("m/(n-k)").of({"m": 1, "n": 2, "k": 2})


def test_constants_are_set_to_each_size():
    text = foreign(constants=("M", "N", "K")).for_size({"m": 3, "n": 4, "k": 5})
    assert "const M: u32 = 3u;\nconst N = 4;\noverride K: i32 = 5;\n" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bindings": ("a", "b")}, "must name a, b and c, each once"),
        ({"bindings": ("c", "a", "b")}, r"binding 1 of my\.wgsl, c, is var<storage, read>"),
        ({"uniform": ("m", "rows")}, "must name m, n or k, not 'rows'"),
        ({"uniform": ()}, r"binding 0 of my\.wgsl is a uniform: name its members with --uniform"),
        ({"constants": ("ROWS",)}, "must be called m, n and k, or M, N and K"),
        ({"constants": ("m",)}, "has no constant m with a number"),
        ({"workgroup": Counts("4,8", (), WORKGROUP)}, "disagree about the workgroup size: 8,4,1 and 4,8,1"),
        ({"workgroup": Counts("8,4,0", (), WORKGROUP)}, "a workgroup size is one to three numbers of at least 1"),
        ({"tunables": {"TILE": (8,)}}, "has no constant TILE with a number"),
        ({"text": f"// const TILE = 8;\n{TEXT}", "tunables": {"TILE": (8,)}}, "has no constant TILE with a number"),
        ({"tunables": {"N": (8,)}}, "tunable N: this is the name of a length"),
        ({"entry": "other"}, r"no compute entry point other\(\); name it with --entry"),
        ({"text": TEXT.replace("@binding(3)", "@binding(4)")}, r"no @binding\(3\) var<storage…> for c"),
        ({"text": TEXT.replace("read_write", "read")}, r"binding 3 of my\.wgsl, c, is var<storage, read>"),
    ],
)
def test_options_that_contradict_the_shader_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        foreign(**changes)


def test_tunables_set_constants_workgroup_and_grid():
    text = "override BN = 16u;\n" + TEXT.replace("(8, 4)", "(BN, 4)")
    grid, workgroup = Counts("n/BN,m/4", ("m", "n", "k", "BN")), Counts("BN,4", ("BN",), WORKGROUP)
    made = foreign(text, grid=grid, workgroup=workgroup, tunables={"BN": (8, 32)})
    assert (str(made), made.invocations) == ("my.wgsl(BN=8)", (8, 4, 1))
    assert combinations(made) == [{"BN": 8}, {"BN": 32}]
    other = made.configured({"BN": 32})
    assert other.for_size({}).startswith("override BN = 32u;\n")
    assert other.invocations == (32, 4, 1)
    assert other.grid.of({"m": 8, "n": 65, "k": 1, **other.config}) == (3, 2, 1)
    with pytest.raises(ConfigError, match="disagree about the workgroup size: 8,4,1 and 4,4,1"):
        foreign(text, grid=grid, workgroup=Counts("BN/2,4", ("BN",), WORKGROUP), tunables={"BN": (8,)})
    with pytest.raises(ConfigError, match="there is nothing to tune"):
        combinations(foreign())
    with pytest.raises(ConfigError, match="160,000 combinations are too many"):
        combinations(foreign("const A = 1u; const B = 1u;" + TEXT, tunables=dict.fromkeys("AB", tuple(range(1, 401)))))


def test_comments_become_debug_lines():
    text = TEXT.replace(
        "    c[i] =", "    //dbg(ACC, g.y, g.x, 0u, 1.0);\n    // dbg_k(MINE, 0u, 0u, 0u, v);\n    c[i] ="
    )
    traced, tags = with_debug_lines(foreign(text))
    assert tags == ("ACC", "MINE")
    assert "\n    dbg(ACC, g.y, g.x, 0u, 1.0);\n    dbg_k(MINE, " in traced.text
    assert "@group(0) @binding(4) var<storage, read_write> debug: Debug;" in traced.text
    with pytest.raises(ConfigError, match=r"my\.wgsl has no debug lines: add comments such as //dbg"):
        with_debug_lines(foreign())


def test_files_name_lengths(tmp_path):
    def saved(name, *shape):
        np.save(tmp_path / name, np.ones(shape, np.float32))
        return tmp_path / name

    work = OfFiles([saved("a.npy", 3, 5), saved("b.npy", 5, 4)], saved("c.npy", 3, 4))
    assert work.signature.buffers == ("a", "b", "c")
    assert work.lengths == {"a0": 3, "a1": 5, "b0": 5, "b1": 4, "c0": 3, "c1": 4, "m": 3, "n": 4, "k": 5}
    assert (work.problem.flops, work.name(work.problem, 7)) == (120, "c[1, 3]")
    other = OfFiles([saved("a.npy", 3, 5)], saved("y.npy", 3))
    assert other.signature == Signature(("a", "b"), "b", ("a0", "a1", "b0"))
    assert (other.problem.sizes, other.problem.flops) == ((3, 1, 1, 1), 18)
    np.save(tmp_path / "i.npy", np.arange(3))
    with pytest.raises(ProblemError, match="holds int64; cast to float32"):
        OfFiles([tmp_path / "i.npy"], tmp_path / "y.npy")


def test_indices_in_a_struct_are_numbered_in_reverse():
    text = """struct In {
    @builtin(local_invocation_index) lane: u32, // @builtin(local_invocation_id) old: vec3u,
    @builtin(workgroup_id) group: vec3u,
}
@compute @workgroup_size(8) fn main(at: In, @builtin(num_workgroups) grid: vec3u) {
    _ = at.lane;
}
"""
    assert in_reverse(text, (8, 1, 1)) == text.replace("main(at:", "main(at_in_order:").replace(
        "grid: vec3u) {", "grid: vec3u) {\n    var at = at_in_order;\n    at.lane = 7u - at_in_order.lane;"
    )


def test_invocations_are_numbered_in_reverse():
    assert workgroup_size_of(TEXT) == (8, 4, 1)
    assert workgroup_size_of(TEXT.replace("(8, 4)", "(WX, 4)")) is None
    text = in_reverse(TEXT, (8, 4, 1))
    assert "@builtin(workgroup_id) w: vec3u" in text
    assert "@builtin(global_invocation_id) g_in_order: vec3<u32>, " in text
    assert "@builtin(local_invocation_id) l_in_order: vec3u" in text
    size = "vec3u(8u, 4u, 1u)"
    assert f"let g = g_in_order / {size} * {size} + ({size} - 1u - g_in_order % {size});" in text
    assert f"let l = {size} - 1u - l_in_order;\n    let i = 31u - i_in_order;\n    c[i]" in text
    for wrong in (TEXT.replace("fn main(", "fn main(i: Input) {} fn other("), TEXT.replace("fn main", "fn other")):
        with pytest.raises(ConfigError, match=r"has no @builtin index|no compute entry point"):
            in_reverse(wrong, (8, 4, 1))
