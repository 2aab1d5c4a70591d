"""Building blocks of shaders: their page is complete and true, and the stage made of them is right."""

import re
from pathlib import Path

import pytest
from products import check_exactly

from webmm.kernels import configure
from webmm.problems.gemm import gemm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "building-blocks.md").read_text()
SHADERS = ROOT / "shaders"
FILES = {  # described in the sections of the page, by what the sections contain
    "matrix": "Loads and stores of matrices",
    "register_tiles/layout": "Register tiles",
    "register_tiles/load": "Register tiles",
    "register_tiles/multiply": "Register tiles",
    "register_tiles/store": "Register tiles",
    "splits": "Parts of k",
    "lanes": "Exchange within a subgroup",
    "reduce/workgroup": "Exchange within a subgroup",
}


def signatures(file):
    """Return the macros of a file, by name, as `name(parameters)`."""
    text = (SHADERS / "common" / f"{file}.wgsl").read_text()
    return {found[1]: found[0] for found in re.finditer(r"(?<=\{% macro )(\w+)\(.*?\)(?= -?%\})", text)}


def called(file):
    """Return the macros of a file that stages call."""
    names = set()
    for path in SHADERS.rglob("*.wgsl"):
        text = path.read_text()
        if "common" not in path.parts and (alias := re.search(rf'import "common/{file}\.wgsl" as (\w+)', text)):
            names |= set(re.findall(rf"\b{alias[1]}\.(\w+)", text)) & signatures(file).keys()
    return names


def test_the_page_has_every_macro_that_stages_use_as_it_is():
    documented = {}
    for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE):
        documented[title] = set(re.findall(r"^\| `(\w+\(.*?\))` \|", body, flags=re.MULTILINE))
    for title in set(FILES.values()):
        every = [signatures(file) for file, where in FILES.items() if where == title]
        wanted = {signatures(file)[name] for file, where in FILES.items() if where == title for name in called(file)}
        assert wanted == documented[title], title
        assert documented[title] <= {text for each in every for text in each.values()}


@pytest.mark.parametrize(
    "problem",
    [
        gemm(33, 35, 24),  # three steps of the tiles: the last iteration is half beyond k
        gemm(32, 32, 16, batch=2, transpose_a=True),
        gemm(5, 70, 9, transpose_b=True),
    ],
    ids=str,
)
def test_the_stage_made_of_them(device, examples, load_plugin, problem):
    load_plugin(examples / "two_buffers.py")
    tile = {"bm": "32", "bn": "32", "bk": "8", "tm": "4", "tn": "4", "unroll": "1"}
    check_exactly(device, configure("two_buffers", tile), problem)
